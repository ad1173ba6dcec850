//! Drives one endpoint with hand-made frames of its peers.

// Each test file uses a part of the module.
#![allow(dead_code)]

use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp, Verdict,
};
use onepipe_endpoint::{Config, Endpoint, Event, Links, Message, SendFailed};
use onepipe_wire::{
    Ack, AckDelay, AckView, Connect, Flags, Fragment, FragmentHeader, Frame, HEADER_LEN, Header,
    Opcode, Probe, seal, write_fragment_header, write_message,
};

pub const ORIGIN_NS: u64 = 1 << 50;

/// Process 0 in a mesh whose other processes are played by the test.
pub struct Harness {
    pub end: Endpoint,
    pub ns: u64,
    pub failed: Vec<SendFailed>,
    pub delivered: usize,
    /// Frames sent by the endpoint that the test has not taken.
    pub sent: Vec<Vec<u8>>,
}

pub fn config(processes: u32) -> Config {
    let links = Links::Mesh;
    Config { processes_max: processes, links, ..Config::new(ProcessId(0), Incarnation(1)) }
}

impl Harness {
    pub fn new(tune: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(4);
        tune(&mut config);
        let end = Endpoint::new(config).expect("a valid configuration");
        let mut harness = Self { end, ns: 1_000, failed: vec![], delivered: 0, sent: vec![] };
        harness.drain();
        harness
    }

    pub fn now(&self) -> Now {
        let sync = Timestamp::from_ns(ORIGIN_NS + self.ns);
        Now { mono: Mono::from_ns(self.ns), sync }
    }

    /// Advances time in steps of 10 us.
    pub fn wait(&mut self, ns: u64) {
        let until = self.ns + ns;
        while self.ns < until {
            self.ns = (self.ns + 10_000).min(until);
            self.drain();
        }
    }

    /// What a driver does after every call, without polling events.
    pub fn drain(&mut self) {
        let now = self.now();
        if self.end.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.end.handle_timeout(now);
        }
        let mut slot = vec![0; self.end.config().frame_len_max];
        while let Some(transmit) = self.end.poll_transmit(now, &mut slot) {
            self.sent.push(slot[..transmit.bytes].to_vec());
            assert!(self.sent.len() < 1_000_000, "endless sequence of frames");
        }
        let next = self.end.poll_timeout();
        assert!(next.is_none_or(|due| due > now.mono), "due again at once: {next:?}");
    }

    pub fn take_events(&mut self) {
        while let Some(event) = self.end.poll_event() {
            match event {
                Event::Delivered(delivery) => {
                    self.delivered += 1;
                    self.end.release(delivery);
                }
                Event::SendFailed(failed) => self.failed.push(failed),
                _ => {}
            }
        }
        self.drain();
    }

    pub fn scatter(&mut self, messages: &[(u32, &[u8])]) {
        let messages: Vec<_> =
            messages.iter().map(|(to, payload)| Message { to: ProcessId(*to), payload }).collect();
        self.end.scatter(&messages).expect("the send buffer is large enough");
        self.drain();
    }

    /// Receives a frame of the peer `from` with `incarnation`, stamped now.
    pub fn receive(&mut self, from: u32, incarnation: u32, frame: &TestFrame) -> Verdict {
        let now = self.now();
        self.receive_at(from, incarnation, frame, now.sync, now.sync)
    }

    pub fn receive_at(
        &mut self,
        from: u32,
        incarnation: u32,
        frame: &TestFrame,
        timestamp: Timestamp,
        promise: Timestamp,
    ) -> Verdict {
        let mut bytes = vec![0; 70_000];
        let body = &mut bytes[HEADER_LEN..];
        let length = frame.body.len();
        body[..length].copy_from_slice(&frame.body);
        let header =
            Header::new(frame.opcode, ProcessId(from), ProcessId(0), Incarnation(incarnation))
                .stamped(timestamp, Promises::both(promise), Psn(frame.psn))
                .flagged(frame.flags);
        let length = seal(&mut bytes, header, length);
        let now = self.now();
        // An uplink has one port for all peers.
        let port = match self.end.config().links {
            Links::Uplink | Links::Overlay => Port(0),
            Links::Mesh => Port(from as u16),
        };
        let verdict = self.end.handle_frame(now, port, &mut bytes[..length]);
        self.drain();
        verdict
    }

    /// Takes the frames of this kind that were sent to `to`, and drops all others.
    pub fn take_sent(&mut self, opcode: Opcode, to: u32) -> Vec<(u32, Vec<u8>)> {
        let now = self.now();
        let frames = std::mem::take(&mut self.sent);
        let of_kind = |bytes: Vec<u8>| {
            let frame = Frame::parse(&bytes).expect("the endpoint seals its frames");
            let is_meant = frame.opcode == opcode && frame.header.dst() == ProcessId(to);
            assert!(frame.header.promises(now.sync).barrier.as_ns() > 0);
            is_meant.then(|| (frame.header.psn().0, frame.payload.to_vec()))
        };
        frames.into_iter().filter_map(of_kind).collect()
    }

    /// Takes the last acknowledgement of any kind to `to`.
    pub fn last_ack(&mut self, to: u32) -> Option<Ack> {
        let mut last = None;
        for bytes in std::mem::take(&mut self.sent) {
            let frame = Frame::parse(&bytes).expect("the endpoint seals its frames");
            let is_ack = matches!(frame.opcode, Opcode::Ack | Opcode::Nak | Opcode::Grant);
            if is_ack && frame.header.dst() == ProcessId(to) {
                last = Some(AckView::parse(frame.payload).expect("well formed").ack);
            }
        }
        last
    }

    /// Opens the connection of the peer `from` to the endpoint.
    pub fn connect(&mut self, from: u32, incarnation: u32) {
        self.receive(from, incarnation, &connect(0, 0, 0));
    }
}

/// A frame before sealing.
pub struct TestFrame {
    pub opcode: Opcode,
    pub psn: u32,
    pub flags: u8,
    pub body: Vec<u8>,
}

pub fn data(psn: u32, payload: &[u8]) -> TestFrame {
    let mut body = vec![0; payload.len() + 8];
    let message = onepipe_wire::Message { delta_ns: 0, index: 0, payload };
    let bytes = write_message(&mut body, message).expect("fits");
    body.truncate(bytes);
    TestFrame { opcode: Opcode::Data, psn, flags: Flags::ACK_NOW, body }
}

pub fn fragment(psn: u32, header: FragmentHeader, piece: &[u8]) -> TestFrame {
    let mut body = vec![0; 12 + piece.len()];
    write_fragment_header(&mut body, header);
    body[12..].copy_from_slice(piece);
    Fragment::parse(&body).expect("a legal fragment");
    TestFrame { opcode: Opcode::Fragment, psn, flags: 0, body }
}

pub fn connect(psn: u32, reservation_id: u32, reservation_bytes: u64) -> TestFrame {
    let mut body = vec![0; 16];
    Connect { reservation_id, reservation_bytes, ack_delay_ns: 100_000 }
        .write(&mut body)
        .expect("fits");
    TestFrame { opcode: Opcode::Connect, psn, flags: 0, body }
}

pub fn probe(resolved: u32, until: u32, reservation_done: u32) -> TestFrame {
    let mut body = vec![0; 16];
    let probe = Probe { resolved: Psn(resolved), until: Psn(until), reservation_done };
    probe.write(&mut body).expect("fits");
    TestFrame { opcode: Opcode::Probe, psn: resolved, flags: 0, body }
}

pub fn reset(psn: u32) -> TestFrame {
    TestFrame { opcode: Opcode::Reset, psn, flags: 0, body: vec![] }
}

/// An acknowledgement to incarnation 1 of the endpoint, with a window of 64 KiB.
pub fn ack(
    opcode: Opcode,
    cumulative: u32,
    words: &[(u64, u64)],
    tune: impl FnOnce(&mut Ack),
) -> TestFrame {
    let mut ack = Ack {
        cumulative: Psn(cumulative),
        received: cumulative,
        marked: 0,
        window_bytes: 64 << 10,
        consumed_bytes: 0,
        acked_incarnation: 1,
        reservation_id: 0,
        reservation: 0,
        delay: AckDelay::default(),
    };
    tune(&mut ack);
    let mut body = vec![0; 600];
    let bytes = ack.write(&mut body, words.iter().copied()).expect("fits");
    body.truncate(bytes);
    TestFrame { opcode, psn: 0, flags: 0, body }
}
