//! The sending end of a flow.

use std::collections::VecDeque;

use onepipe_base::{Mono, ProcessId};

use crate::TcpConfig;
use crate::rtt::RttEstimator;
use crate::segment::{Ack, Data};
use crate::window::{AckUpdate, Window};

/// State of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PacketState {
    InFlight,
    Acked,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Packet {
    part: u64,
    bytes: u32,
    sent_at: Mono,
    state: PacketState,
}

/// A stream to another host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    pub to: ProcessId,
    segment_len: u64,
    /// A packet is lost when one sent this number of packets later was received.
    reorder_threshold: u64,
    /// Length of the stream; `None` without an end.
    bytes: Option<u64>,
    opened_at: Mono,
    /// The next part never sent.
    next_new: u64,
    /// Parts to retransmit.
    retransmit: VecDeque<u64>,
    /// Sent packets from the first one in flight on, and the number of that.
    packets: VecDeque<Packet>,
    first: u64,
    in_flight: u64,
    /// The receiver has all parts before this one.
    delivered: u64,
    marked: u32,
    window: Window,
    rtt: RttEstimator,
    pub timeout_at: Option<Mono>,
}

/// Losses detected by an acknowledgement or a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub packets: u64,
    pub timeouts: u64,
}

impl Sender {
    pub fn new(config: &TcpConfig, now: Mono, to: ProcessId, bytes: Option<u64>) -> Self {
        Self {
            to,
            segment_len: config.segment_len.into(),
            reorder_threshold: config.reorder_threshold,
            bytes,
            opened_at: now,
            next_new: 0,
            retransmit: VecDeque::new(),
            packets: VecDeque::new(),
            first: 0,
            in_flight: 0,
            delivered: 0,
            marked: 0,
            window: Window::new(config),
            rtt: RttEstimator::new(config.timeout_ns_min),
            timeout_at: None,
        }
    }

    /// Returns the time since the flow was opened, ns.
    pub fn age_ns(&self, now: Mono) -> u64 {
        now.since_ns(self.opened_at)
    }

    /// Whether the receiver has the whole stream.
    pub fn is_done(&self) -> bool {
        self.bytes.is_some_and(|bytes| self.delivered * self.segment_len >= bytes)
    }

    /// Ends the stream with what was sent so far.
    pub fn close(&mut self) {
        let sent = self.next_new * self.segment_len;
        self.bytes = Some(self.bytes.map_or(sent, |bytes| bytes.min(sent)));
    }

    /// Returns the bytes delivered.
    pub fn delivered_bytes(&self) -> u64 {
        let bytes = self.delivered * self.segment_len;
        self.bytes.map_or(bytes, |all| bytes.min(all))
    }

    /// Returns the congestion window, in bytes.
    pub fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    /// Returns the bytes in flight.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    fn bytes_of(&self, part: u64) -> u32 {
        let before = part * self.segment_len;
        let left = self.bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(before));
        left.min(self.segment_len) as u32
    }

    fn has_space(&self) -> bool {
        self.in_flight == 0 || self.in_flight + self.segment_len <= self.window.bytes()
    }

    /// Returns the next packet to send.
    pub fn next(&mut self, now: Mono, flow: u32) -> Option<Data> {
        if !self.has_space() {
            return None;
        }
        let part = loop {
            match self.retransmit.pop_front() {
                Some(part) if part >= self.delivered => break part,
                Some(_) => {}
                None => break self.next_new,
            }
        };
        let bytes = self.bytes_of(part);
        if bytes == 0 {
            return None;
        }
        self.next_new = self.next_new.max(part + 1);
        let packet = self.first + self.packets.len() as u64;
        self.packets.push_back(Packet { part, bytes, sent_at: now, state: PacketState::InFlight });
        self.in_flight += u64::from(bytes);
        if self.timeout_at.is_none() {
            self.wait(now);
        }
        let is_last = self.bytes_of(part + 1) == 0;
        Some(Data { flow, packet, part, bytes, is_last })
    }

    /// Handles an acknowledgement. Returns the losses detected.
    pub fn on_ack(&mut self, now: Mono, ack: &Ack) -> Losses {
        let next = self.first + self.packets.len() as u64;
        if ack.highest >= next || ack.next > self.next_new {
            return Losses::default();
        }
        let was_full = !self.has_space();
        let mut update = AckUpdate {
            packets: 0,
            bytes: 0,
            marked: ack.marked.wrapping_sub(self.marked).into(),
            lost: None,
            highest: ack.highest,
            next,
            was_full,
        };
        let mut losses = Losses::default();
        let mut round_trip_ns = None;
        for (number, packet) in (self.first..=ack.highest).zip(&mut self.packets) {
            let distance = ack.highest - number;
            let acked = distance < 64 && ack.acked >> distance & 1 == 1;
            if acked && packet.state != PacketState::Acked {
                update.packets += 1;
                update.bytes += u64::from(packet.bytes);
                if packet.state == PacketState::InFlight {
                    self.in_flight -= u64::from(packet.bytes);
                }
                if distance == 0 {
                    round_trip_ns = Some(now.since_ns(packet.sent_at));
                }
                packet.state = PacketState::Acked;
            } else if distance >= self.reorder_threshold && packet.state == PacketState::InFlight {
                packet.state = PacketState::Lost;
                self.in_flight -= u64::from(packet.bytes);
                self.retransmit.push_back(packet.part);
                update.lost = Some(number);
                losses.packets += 1;
            }
        }
        while self.packets.front().is_some_and(|packet| packet.state != PacketState::InFlight) {
            self.packets.pop_front();
            self.first += 1;
        }
        if update.marked > u64::from(u32::MAX / 2) {
            // Reordered: an older count.
            update.marked = 0;
        } else {
            self.marked = ack.marked;
        }
        self.delivered = self.delivered.max(ack.next);
        if let Some(ns) = round_trip_ns {
            self.rtt.on_sample(ns);
        }
        self.window.on_ack(&update);
        if update.packets > 0 || self.in_flight == 0 {
            self.wait(now);
        }
        losses
    }

    /// Declares everything in flight lost if the retransmission timer has expired.
    pub fn on_timeout(&mut self, now: Mono) -> Losses {
        if self.timeout_at.is_none_or(|due| due > now) {
            return Losses::default();
        }
        let flying = self.packets.iter().filter(|one| one.state == PacketState::InFlight);
        let mut lost: Vec<u64> = flying.map(|one| one.part).collect();
        let losses = Losses { packets: lost.len() as u64, timeouts: 1 };
        lost.extend(self.retransmit.drain(..));
        lost.sort_unstable();
        self.retransmit = lost.into();
        self.first += self.packets.len() as u64;
        self.packets.clear();
        self.in_flight = 0;
        self.window.on_timeout(self.first);
        self.rtt.on_timeout();
        self.timeout_at = None;
        losses
    }

    fn wait(&mut self, now: Mono) {
        let waits = self.in_flight > 0;
        self.timeout_at = waits.then(|| now.after_ns(self.rtt.timeout_ns()));
    }
}
