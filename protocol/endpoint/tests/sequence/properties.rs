//! Any sequence of well-sealed frames, commands and time: what must hold for an endpoint whatever
//! its peers say. Shared with `verify/fuzz`.

use std::collections::VecDeque;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp};
use onepipe_endpoint::{Config, Delivery, Endpoint, Event, Links, Message};
use onepipe_wire::{
    Ack, Connect, Flags, FragmentHeader, HEADER_OCTETS, Header, Opcode, Probe, seal,
    write_fragment_header, write_message,
};

const PROCESSES: u32 = 5;
const ORIGIN_NS: u64 = 1 << 50;
static PAYLOAD: [u8; 100_000] = [9; 100_000];

/// Octets that decide what happens next; zeros behind their end.
struct Script<'a> {
    rest: &'a [u8],
}

impl Script<'_> {
    fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.octet()) % limit
    }

    fn wide(&mut self) -> u64 {
        (0..8).fold(0, |value, _| value << 8 | u64::from(self.octet()))
    }

    /// Near `near`, often; anything, sometimes.
    fn number(&mut self, near: u64) -> u64 {
        match self.octet() {
            choice @ 0..=199 => near.wrapping_add(u64::from(choice % 20)).wrapping_sub(4),
            200..=229 => self.octet().into(),
            230..=239 => near.wrapping_add(1 << 31),
            240..=247 => u64::MAX - u64::from(self.octet()),
            _ => self.wide(),
        }
    }

    /// A time not far off, or far.
    fn time(&mut self, near: u64) -> u64 {
        match self.octet() {
            choice @ 0..=219 => near.wrapping_add(u64::from(choice) * 100).wrapping_sub(2_000),
            220..=239 => near.wrapping_add(u64::from(self.octet()) << 20),
            240..=249 => near.wrapping_sub(u64::from(self.octet()) << 20),
            _ => self.wide(),
        }
    }
}

struct Play<'a> {
    script: Script<'a>,
    end: Endpoint,
    ns: u64,
    sync_ns: u64,
    held: VecDeque<Delivery>,
    last: Option<(Timestamp, ProcessId)>,
    barrier: Option<Timestamp>,
    slot: Vec<u8>,
    psn: [u64; PROCESSES as usize],
}

/// Plays `octets` as a script.
pub fn endpoint(octets: &[u8]) {
    let mut script = Script { rest: octets };
    let links = match script.octet() % 4 {
        1 => Links::Uplink,
        3 => Links::Overlay,
        _ => Links::Mesh,
    };
    let config = Config {
        links,
        processes_max: PROCESSES,
        frame_octets_max: [256, 300, 1_472][script.below(3) as usize],
        receive_buffer_octets_max: 1 << 20,
        window_octets_max: [4_096, 65_536][script.below(2) as usize],
        message_octets_max: 100_000,
        send_buffer_octets_max: 300_000,
        congestion_window_octets: 4_096,
        probes_max: 2,
        reorder_packets: script.below(4) as u32,
        ack_packets: 1 + script.below(8) as u32,
        ..Config::new(ProcessId(0), Incarnation(1))
    };
    let slot = vec![0; config.frame_octets_max];
    let end = Endpoint::new(config).expect("a valid configuration");
    let mut play = Play {
        script,
        end,
        ns: 1_000,
        sync_ns: ORIGIN_NS,
        held: VecDeque::new(),
        last: None,
        barrier: None,
        slot,
        psn: [0; PROCESSES as usize],
    };
    while !play.script.rest.is_empty() {
        play.step();
        play.drain();
        play.check();
    }
    play.finish();
}

impl Play<'_> {
    fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.ns), sync: Timestamp::from_ns(self.sync_ns) }
    }

    fn step(&mut self) {
        match self.script.octet() {
            0..=149 => self.frame(),
            150..=179 => {
                let octet = u64::from(self.script.octet());
                self.pass(octet * octet * 50);
            }
            180..=219 => self.scatter(),
            220..=239 => {
                for _ in 0..self.script.below(8) {
                    if let Some(delivery) = self.held.pop_front() {
                        assert_eq!(self.end.payload(&delivery).len(), delivery.octets as usize);
                        self.end.release(delivery);
                    }
                }
            }
            240..=244 => self.end.unlink(Port(self.script.below(u64::from(PROCESSES)) as u16)),
            245..=249 => {
                let promise = Timestamp::from_ns(self.script.time(self.sync_ns).min(1 << 61));
                let port = Port(self.script.below(8) as u16);
                self.end.hear(self.now(), port, Promises::both(promise));
            }
            250 => self.sync_ns = self.script.time(self.sync_ns).min(1 << 60),
            251 if self.script.octet() == 7 => self.end.leave(),
            _ => self.pass(1_000),
        }
    }

    fn pass(&mut self, ns: u64) {
        self.ns += ns;
        self.sync_ns += ns;
    }

    fn scatter(&mut self) {
        let count = 1 + self.script.below(6) as usize;
        let messages: Vec<_> = (0..count)
            .map(|_| {
                let octets = match self.script.octet() {
                    octet @ 0..=199 => usize::from(octet),
                    octet => usize::from(octet - 199) * 1_700,
                };
                let to = ProcessId(self.script.below(u64::from(PROCESSES)) as u32);
                Message { to, payload: &PAYLOAD[..octets] }
            })
            .collect();
        let _ = self.end.scatter(&messages);
    }

    fn frame(&mut self) {
        let from = self.script.below(u64::from(PROCESSES) + 1) as u32;
        let life = 1 + self.script.below(3) as u32;
        let at = (from as usize).min(self.psn.len() - 1);
        let psn = match self.script.octet() {
            0..=159 => self.psn[at],
            _ => self.script.number(self.psn[at]),
        };
        let opcode = Opcode::ALL[self.script.below(Opcode::ALL.len() as u64) as usize];
        let mut octets = [0; 10_000];
        let length = self.body(opcode, psn, &mut octets[HEADER_OCTETS..]);
        if opcode.has_messages() {
            self.psn[at] = psn.wrapping_add(1) & u64::from(u32::MAX);
        }
        let timestamp = Timestamp::from_ns(self.script.time(self.sync_ns));
        let promise = Timestamp::from_ns(self.script.time(self.sync_ns));
        let flags = self.script.octet() & (Flags::ACK_NOW | Flags::ROOM | Flags::CONGESTION);
        let header = Header::new(opcode, ProcessId(from), ProcessId(0), Incarnation(life))
            .stamped(timestamp, Promises::both(promise), Psn(psn as u32))
            .flagged(flags);
        let length = seal(&mut octets, header, length);
        let port = match self.end.config().links {
            Links::Mesh => Port(from as u16),
            Links::Uplink => Port(0),
            Links::Overlay => Port(self.script.below(3) as u16),
        };
        self.end.handle_frame(self.now(), port, &mut octets[..length]);
    }

    /// A body that fits the opcode, with anything in its fields.
    fn body(&mut self, opcode: Opcode, psn: u64, body: &mut [u8]) -> usize {
        let script = &mut self.script;
        match opcode {
            Opcode::Data => {
                let (mut used, mut index) = (0, 0);
                for _ in 0..script.below(5) {
                    let payload = &PAYLOAD[..script.number(30) as usize % 2_000];
                    index += script.below(3) as u16;
                    let delta_ns = script.octet() as u32 / 64;
                    let message = onepipe_wire::Message { delta_ns, index, payload };
                    used += write_message(&mut body[used..], message).unwrap_or(0);
                }
                used.saturating_sub(usize::from(script.octet() == 255))
            }
            Opcode::Fragment => {
                let index = script.below(2) as u16;
                let message_octets = script.number(400) as u32;
                let offset = script.number(0) as u32;
                write_fragment_header(body, FragmentHeader { index, message_octets, offset });
                12 + script.number(200) as usize % 1_400
            }
            Opcode::Ack | Opcode::Nak | Opcode::Grant => {
                let ack = Ack {
                    cumulative: Psn(script.number(0) as u32),
                    received: script.number(0) as u32,
                    marked: script.number(0) as u32,
                    window_octets: script.number(8_192) as u32,
                    consumed_octets: script.number(500),
                    connection: 1 + script.below(8) as u32 / 7,
                    room_id: script.number(4) as u32,
                    room: script.below(3) as u8,
                };
                let words: Vec<_> =
                    (0..script.below(4)).map(|_| (script.wide(), script.wide())).collect();
                ack.write(body, words.iter().copied()).unwrap_or(0)
            }
            Opcode::Probe => {
                let (settled, until) = (script.number(psn) as u32, script.number(psn) as u32);
                let room_done = script.number(4) as u32;
                let probe = Probe { settled: Psn(settled), until: Psn(until), room_done };
                probe.write(body).unwrap_or(0)
            }
            Opcode::Connect => {
                let connect = Connect {
                    room_id: script.number(4) as u32,
                    room_octets: script.number(100_000),
                };
                connect.write(body).unwrap_or(0)
            }
            _ => script.below(3) as usize,
        }
    }

    /// What a driver does after each call.
    fn drain(&mut self) {
        let now = self.now();
        if self.end.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.end.handle_timeout(now);
        }
        let mut frames = 0;
        while let Some(transmit) = self.end.poll_transmit(now, &mut self.slot) {
            assert!(onepipe_wire::Frame::parse(&self.slot[..transmit.octets]).is_ok());
            frames += 1;
            assert!(frames < 10_000, "it never stops sending");
        }
        let next = self.end.poll_timeout();
        assert!(next.is_none_or(|due| due > now.mono), "due again at once: {next:?}");
        while let Some(event) = self.end.poll_event() {
            if let Event::Delivered(delivery) = event {
                let key = (delivery.timestamp, delivery.from);
                assert!(self.last.is_none_or(|last| last <= key), "out of order");
                let barrier = self.end.barrier();
                assert!(barrier.is_some_and(|barrier| delivery.timestamp < barrier));
                self.last = Some(key);
                self.held.push_back(delivery);
            }
        }
    }

    fn check(&mut self) {
        let config = self.end.config();
        let receive_max = config.receive_buffer_octets_max as u64;
        assert!(self.end.receive_buffer_octets() <= receive_max, "the receive buffer overflows");
        assert!(self.end.send_buffer_octets() <= config.send_buffer_octets_max);
        let barrier = self.end.barrier();
        assert!(barrier >= self.barrier, "the barrier went back");
        self.barrier = barrier;
    }

    /// Everything is consumed, nobody answers any more: what is held is freed, what is on the way
    /// is reported.
    fn finish(&mut self) {
        self.end.leave();
        for _ in 0..40 {
            while let Some(delivery) = self.held.pop_front() {
                self.end.release(delivery);
            }
            self.pass(5_000_000);
            let later = Timestamp::from_ns((1 << 62) + self.ns);
            for port in 0..PROCESSES as u16 {
                self.end.hear(self.now(), Port(port), Promises::both(later));
            }
            self.drain();
            self.check();
        }
        self.held.drain(..).for_each(|delivery| self.end.release(delivery));
        assert_eq!(self.end.pending(), 0, "something waits for ever");
        assert_eq!(self.end.receive_buffer_octets(), 0, "the accounts do not balance");
    }
}
