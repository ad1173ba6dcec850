//! A sender without receivers, for unit tests of its stages.

use alloc::vec::Vec;

use onepipe_base::{
    Incarnation, Mono, Now, ProcessId, ProcessInstance, Psn, ScatteringId, Timestamp,
};
use onepipe_wire::{
    Ack, AckDelay, AckView, Connect, Flags, Fragment, HEADER_LEN, Messages, Opcode, PIGGYBACK_LEN,
    Service, SharedReceiver, SharedReceivers,
};

use super::Sender;
use crate::stats::Stats;
use crate::timestamp::TimestampSource;
use crate::{Config, Message};

/// The sender of process 0.
pub(super) struct SenderHarness {
    pub config: Config,
    pub sender: Sender,
    pub stats: Stats,
    /// The processes for which data frames carry an acknowledgement.
    pub acknowledged: Vec<u32>,
    timestamps: TimestampSource,
    now: Mono,
}

/// A data frame as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentFrame {
    pub to: u32,
    pub psn: u32,
    pub timestamp: Timestamp,
    pub opcode: Opcode,
    pub flags: u8,
    /// Timestamp, index and length of each whole message; of a fragment, the length of its piece.
    pub messages: Vec<(Timestamp, u16, usize)>,
    /// The receivers of a shared frame.
    pub receivers: Vec<SharedReceiver>,
    /// Offset of a fragment in its message.
    pub offset: Option<u32>,
    /// Timestamp at which the promise is held after this frame.
    pub unfinished: Option<Timestamp>,
}

impl SentFrame {
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl SenderHarness {
    pub fn new(service: Service, change: impl FnOnce(&mut Config)) -> Self {
        // All payloads of `scatter` are parts of one.
        let mut config =
            Config { shares_payloads: false, ..Config::new(ProcessId(0), Incarnation(1)) };
        change(&mut config);
        let mut timestamps = TimestampSource::new();
        let now = Now { mono: Mono::from_ns(1_000), sync: Timestamp::from_ns(1 << 40) };
        timestamps.read(now);
        timestamps.raise_to(now.sync);
        let sender = Sender::new(&config, service, 1 << 20);
        let (stats, acknowledged) = (Stats::default(), Vec::new());
        Self { config, sender, stats, timestamps, now: now.mono, acknowledged }
    }

    /// Scatters a message of the given length to each of the processes.
    pub fn scatter(&mut self, messages: &[(u32, usize)]) -> ScatteringId {
        let bytes = [7; 1 << 16];
        let messages: Vec<_> = messages
            .iter()
            .map(|&(to, len)| Message { to: ProcessId(to), payload: &bytes[..len] })
            .collect();
        self.sender
            .submit(&self.config, &messages, |_| None)
            .expect("the send buffer is large enough")
    }

    /// Starts a burst. Returns the number of its messages.
    pub fn burst(&mut self) -> u64 {
        self.sender.start_burst(&self.config, self.now, &mut self.timestamps, |_| {}).messages
    }

    /// Writes the next data frame of the burst.
    pub fn frame(&mut self) -> Option<SentFrame> {
        let mut slot = [0; 1 << 16];
        let slot = &mut slot[..self.config.frame_len_max];
        let acknowledged = &self.acknowledged;
        let acknowledge = |to: ProcessId, payload: &mut [u8]| {
            let space = acknowledged.contains(&to.0).then(|| payload.get_mut(..PIGGYBACK_LEN));
            let ack = space.flatten();
            ack.map_or(0, |ack| {
                ack.fill(0xff);
                ack.len()
            })
        };
        let written = self.sender.write_data(&self.config, self.now, slot, acknowledge)?;
        let mut payload = &slot[HEADER_LEN..HEADER_LEN + written.payload_len];
        let mut receivers = Vec::new();
        if written.opcode == Opcode::SharedData {
            let (list, behind) = SharedReceivers::parse(payload).expect("written above");
            receivers.extend(list.iter());
            payload = behind;
        }
        let (mut messages, mut offset) = (Vec::new(), None);
        if written.opcode == Opcode::Fragment {
            let fragment = Fragment::parse(payload).expect("written above");
            offset = Some(fragment.header.offset);
            messages.push((written.timestamp, fragment.header.index, fragment.piece.len()));
        } else {
            let is_single = written.flags & Flags::SINGLE != 0;
            let all = if is_single { Messages::single(payload) } else { Messages::new(payload) };
            for message in all {
                let message = message.expect("written above");
                let timestamp = written.timestamp.wrapping_add_ns(u64::from(message.delta_ns));
                messages.push((timestamp, message.index, message.payload.len()));
            }
        }
        Some(SentFrame {
            to: written.to.0,
            psn: written.psn.0,
            timestamp: written.timestamp,
            opcode: written.opcode,
            flags: written.flags,
            messages,
            receivers,
            offset,
            unfinished: self.sender.unfinished_burst(),
        })
    }

    /// Writes all data frames of the burst.
    pub fn frames(&mut self) -> Vec<SentFrame> {
        let frames: Vec<_> = core::iter::from_fn(|| self.frame()).take(1_000).collect();
        assert!(frames.len() < 1_000, "a burst ends");
        frames
    }

    /// Sends a burst. Returns the destination and length of each message.
    pub fn send_lens(&mut self) -> Vec<(u32, usize)> {
        self.burst();
        let frames = self.frames();
        let each = |sent: &SentFrame| -> Vec<_> {
            sent.messages.iter().map(|message| (sent.to, message.2)).collect()
        };
        frames.iter().flat_map(each).collect()
    }

    /// Process `to` sends an acknowledgement, adjusted by `change`.
    pub fn respond(&mut self, to: u32, opcode: Opcode, change: impl FnOnce(&mut Ack)) {
        let mut ack = Ack {
            cumulative: Psn::FIRST,
            received: 0,
            marked: 0,
            window_bytes: 0,
            consumed_bytes: 0,
            acked_incarnation: self.config.incarnation.0,
            reservation_id: 0,
            reservation: Ack::RESERVATION_PENDING,
            delay: AckDelay::default(),
        };
        change(&mut ack);
        let mut bytes = [0; 64];
        let len = ack.write(&mut bytes, core::iter::empty()).expect("fits");
        let view = AckView::parse(&bytes[..len]).expect("written above");
        let from = ProcessInstance { process: ProcessId(to), incarnation: Incarnation(1) };
        assert!(self.sender.on_ack(&self.config, self.now, from, opcode, &view));
    }

    /// Opens connections to these processes, with windows of the given sizes in bytes.
    pub fn open(&mut self, windows: &[(u32, u32)]) {
        for &(to, _) in windows {
            self.scatter(&[(to, 0)]);
        }
        self.burst();
        for &(to, window) in windows {
            self.respond(to, Opcode::Grant, |ack| ack.window_bytes = window);
        }
        self.burst();
        self.frames();
        for &(to, window) in windows {
            self.respond(to, Opcode::Ack, |ack| {
                (ack.window_bytes, ack.consumed_bytes) = (window, 64);
                ack.cumulative = Psn::FIRST.plus(1);
            });
        }
        self.signals();
    }

    /// Lets `ns` pass without a response, and handles the timeouts.
    pub fn expire_after(&mut self, ns: u64) {
        self.now = self.now.after_ns(ns);
        self.sender.on_timeout(&self.config, self.now, true, &mut self.stats);
    }

    /// Lets `ns` pass without a response. Returns the packets that are retransmitted: destination,
    /// opcode, PSN and length of the message.
    pub fn retransmit_after(&mut self, ns: u64) -> Vec<(u32, Opcode, u32, usize)> {
        self.expire_after(ns);
        let mut slot = [0; 1 << 11];
        let (mut all, stats) = (Vec::new(), &mut self.stats);
        while let Some(written) = self.sender.write_retransmit(self.now, &mut slot, stats) {
            let payload = &slot[HEADER_LEN..HEADER_LEN + written.payload_len];
            for message in Messages::new(payload) {
                let len = message.expect("written above").payload.len();
                all.push((written.to.0, written.opcode, written.psn.0, len));
            }
        }
        all
    }

    /// Takes all signalling frames: destination, opcode, and the size of a requested reservation.
    pub fn signals(&mut self) -> Vec<(u32, Opcode, u64)> {
        let mut payload = [0; 256];
        let mut all = Vec::new();
        while let Some(signal) = self.sender.write_signal(&self.config, &mut payload) {
            let connect = Connect::parse(&payload[..signal.payload_len]);
            let reservation = match signal.opcode {
                Opcode::Connect => connect.expect("written above").reservation_bytes,
                _ => 0,
            };
            all.push((signal.to.0, signal.opcode, reservation));
        }
        all
    }
}
