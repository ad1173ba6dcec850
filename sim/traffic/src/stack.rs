//! The TCP of one host.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Frame, Opcode};

use crate::receiver::Receiver;
use crate::segment::{self, Segment};
use crate::sender::{Losses, Sender};
use crate::{ConfigError, TcpConfig};

/// A flow, by its number at the host that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

impl FlowId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An event of a host's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A flow is complete, and its sender knows.
    Done {
        /// The flow.
        flow: FlowId,
        /// Its length.
        bytes: u64,
        /// Time from its opening to the last acknowledgement, ns.
        ns: u64,
    },
}

/// Counters of a host's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stats {
    /// Data segments sent, with retransmissions.
    pub data_sent: u64,
    /// Data segments received.
    pub data_received: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Segments found to be lost.
    pub lost: u64,
    /// Expiries of retransmission timers.
    pub timeouts: u64,
    /// Marked segments received.
    pub marked: u64,
    /// Bytes of streams delivered in order.
    pub bytes_received: u64,
    /// Frames that are no segments for this host.
    pub refused: u64,
}

/// All flows of one host, at both ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    config: TcpConfig,
    senders: Vec<Sender>,
    /// Incomplete flows.
    open: Vec<FlowId>,
    /// Flows that may have something to send, each once, in turn.
    ready: VecDeque<FlowId>,
    is_ready: Vec<bool>,
    receivers: BTreeMap<(ProcessId, u32), Receiver>,
    /// Acknowledgements to send.
    acks: VecDeque<(ProcessId, u32)>,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Stack {
    /// Creates a host without flows.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: TcpConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            senders: Vec::new(),
            open: Vec::new(),
            ready: VecDeque::new(),
            is_ready: Vec::new(),
            receivers: BTreeMap::new(),
            acks: VecDeque::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
        })
    }

    /// Opens a flow to another host, with a length in bytes or endless.
    pub fn open(&mut self, now: Now, to: ProcessId, bytes: Option<u64>) -> FlowId {
        let flow = FlowId(self.senders.len() as u32);
        self.senders.push(Sender::new(&self.config, now.mono, to, bytes));
        self.is_ready.push(false);
        self.open.push(flow);
        self.note_ready(flow);
        flow
    }

    /// Ends a flow with what was sent so far, which is still delivered. Unknown and complete flows
    /// are ignored.
    pub fn close(&mut self, now: Now, flow: FlowId) {
        if let Some(sender) = self.senders.get_mut(flow.index()).filter(|one| !one.is_done()) {
            sender.close();
            self.note_done(now.mono, flow);
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &TcpConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the bytes of a flow delivered, as known by the sender; `None` for unknown flows.
    pub fn delivered_bytes(&self, flow: FlowId) -> Option<u64> {
        self.senders.get(flow.index()).map(Sender::delivered_bytes)
    }

    /// Returns the congestion window of a flow, in bytes.
    pub fn window_bytes(&self, flow: FlowId) -> Option<u64> {
        self.senders.get(flow.index()).map(Sender::window_bytes)
    }

    /// Returns the bytes of a flow in flight.
    pub fn in_flight_bytes(&self, flow: FlowId) -> Option<u64> {
        self.senders.get(flow.index()).map(Sender::in_flight_bytes)
    }

    /// Returns the bytes received in order of another host's flow.
    pub fn received_bytes(&self, from: ProcessId, flow: FlowId) -> u64 {
        self.receivers.get(&(from, flow.0)).map_or(0, |receiver| receiver.bytes)
    }

    /// Whether a frame is a segment.
    pub fn is_segment(frame: &[u8]) -> bool {
        let segment = Frame::parse(frame).ok().filter(|frame| frame.opcode == Opcode::Foreign);
        segment.is_some_and(|frame| segment::read(&frame).is_some())
    }

    fn note_ready(&mut self, flow: FlowId) {
        if !std::mem::replace(&mut self.is_ready[flow.index()], true) {
            self.ready.push_back(flow);
        }
    }

    /// Reports a flow that has just become complete.
    fn note_done(&mut self, now: Mono, flow: FlowId) {
        let sender = &self.senders[flow.index()];
        if sender.is_done() {
            let (bytes, ns) = (sender.delivered_bytes(), sender.age_ns(now));
            self.events.push_back(Event::Done { flow, bytes, ns });
            self.open.retain(|one| *one != flow);
        }
    }

    fn count(&mut self, losses: Losses) {
        self.stats.lost += losses.packets;
        self.stats.timeouts += losses.timeouts;
    }

    fn on_frame(&mut self, now: Mono, frame: &[u8]) -> Option<()> {
        let frame = Frame::parse(frame).ok()?;
        let is_ours = frame.opcode == Opcode::Foreign && frame.header.dst() == self.config.host;
        let from = frame.header.src();
        let (segment, is_marked) = segment::read(is_ours.then_some(&frame)?)?;
        match segment {
            Segment::Data(data) => {
                let receiver = self.receivers.entry((from, data.flow)).or_default();
                let before = receiver.bytes;
                let delay_ns = self.config.ack_delay_ns;
                if receiver.on_data(now, &data, is_marked, delay_ns) && !receiver.is_waiting {
                    receiver.is_waiting = true;
                    self.acks.push_back((from, data.flow));
                }
                self.stats.bytes_received += receiver.bytes - before;
                self.stats.data_received += 1;
                self.stats.marked += u64::from(is_marked);
            }
            Segment::Ack(ack) => {
                let flow = FlowId(ack.flow);
                let sender = self.senders.get_mut(flow.index()).filter(|one| one.to == from)?;
                let was_done = sender.is_done();
                let losses = sender.on_ack(now, &ack);
                if !was_done {
                    self.note_done(now, flow);
                }
                self.stats.acks_received += 1;
                self.count(losses);
                self.note_ready(flow);
            }
        }
        Some(())
    }

    /// Writes the next segment to a destination for which `has_space` holds, acknowledgements
    /// first. Returns the destination and the length.
    pub fn poll_to(
        &mut self,
        now: Now,
        slot: &mut [u8],
        mut has_space: impl FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        let ack = self.write_ack(slot, &mut has_space);
        ack.or_else(|| self.write_data(now, slot, &mut has_space))
    }

    /// Writes the next acknowledgement that is due.
    fn write_ack(
        &mut self,
        slot: &mut [u8],
        has_space: &mut impl FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        for _ in 0..self.acks.len() {
            let (to, flow) = self.acks.pop_front()?;
            if !has_space(to) {
                self.acks.push_back((to, flow));
                continue;
            }
            // One acknowledgement covers everything received.
            let Some(receiver) = self.receivers.get_mut(&(to, flow)) else { continue };
            receiver.is_waiting = false;
            let is_due = receiver.due.is_some();
            if let Some(ack) = receiver.ack(flow).filter(|_| is_due) {
                self.stats.acks_sent += 1;
                let ends = (self.config.host, to);
                return Some((to, segment::write(ends, Segment::Ack(ack), slot)));
            }
        }
        None
    }

    fn write_data(
        &mut self,
        now: Now,
        slot: &mut [u8],
        has_space: &mut impl FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        for _ in 0..self.ready.len() {
            let flow = self.ready.pop_front()?;
            let sender = &mut self.senders[flow.index()];
            let to = sender.to;
            if !has_space(to) {
                self.ready.push_back(flow);
                continue;
            }
            self.is_ready[flow.index()] = false;
            if let Some(data) = sender.next(now.mono, flow.0) {
                self.note_ready(flow);
                self.stats.data_sent += 1;
                let ends = (self.config.host, to);
                return Some((to, segment::write(ends, Segment::Data(data), slot)));
            }
        }
        None
    }
}

impl Machine for Stack {
    type Event = Event;

    fn handle_frame(&mut self, now: Now, _port: Port, frame: &mut [u8]) -> Verdict {
        match self.on_frame(now.mono, frame) {
            Some(()) => Verdict::Consumed,
            None => {
                self.stats.refused += 1;
                Verdict::Dropped
            }
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        for at in 0..self.open.len() {
            let flow = self.open[at];
            let losses = self.senders[flow.index()].on_timeout(now.mono);
            if losses.timeouts > 0 {
                self.count(losses);
                self.note_ready(flow);
            }
        }
        for (key, receiver) in &mut self.receivers {
            let is_due = receiver.due.is_some_and(|due| due <= now.mono);
            if is_due && !std::mem::replace(&mut receiver.is_waiting, is_due) {
                self.acks.push_back(*key);
            }
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let (_, bytes) = self.poll_to(now, slot, |_| true)?;
        Some(Transmit { port: self.config.card, bytes })
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let waits = self.open.iter().filter_map(|flow| self.senders[flow.index()].timeout_at);
        let acks = self.receivers.values().filter(|one| !one.is_waiting);
        let acks = acks.filter_map(|receiver| receiver.due);
        waits.chain(acks).min()
    }
}
