//! From frames to messages in order: tracker → window → reassembly → reorder → delivery.

mod acknowledge;
mod deliver;
mod doom;
mod incoming;
mod reassemble;
mod room;
mod tracker;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Incarnation, Mono, ProcessId, Psn, Timestamp};
use onepipe_wire::{Flags, Fragment, Frame, Messages, Opcode, Service};

use crate::peers::Peers;
use crate::reorder::{Entry, Reorder, ReorderConfig};
use crate::segments::{Place, Segments};
use crate::send::Local;
use crate::stats::Stats;
use crate::{Config, MESSAGE_CHARGE_BYTES};
pub(crate) use deliver::Held;
use deliver::{Cursor, Waiting};
use doom::Doom;
pub(crate) use doom::Doomed;
use incoming::Incoming;
use reassemble::{Partial, Reassembly};
use room::LocalRoom;
use tracker::Arrival;

/// The receiving half of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    service: Service,
    peers: Peers<Incoming>,
    segments: Segments,
    reorder: Reorder<Waiting>,
    /// The packet that messages are being handed out from.
    cursor: Option<Cursor>,
    /// Messages that wait in the reorder stage and behind the cursor.
    waiting: usize,
    reassembly: Reassembly,
    /// The window of each sender, in bytes.
    window: u64,
    /// Bytes of room in all, and set aside or used.
    room_max: u64,
    room_used: u64,
    /// Senders that wait for room, first come first served.
    room_queue: VecDeque<u32>,
    local_room: LocalRoom,
    /// Charge of everything held, whoever sent it.
    held: u64,
    /// Senders to answer now, and when the delay is over.
    answers: VecDeque<u32>,
    delayed: Vec<u32>,
    answer_by: Option<Mono>,
    /// Packets of connections that are not known, to be told so.
    resets: VecDeque<(ProcessId, Psn)>,
    /// Of the reliable service: what must not be delivered, and recalls to acknowledge.
    pub(crate) doom: Doom,
    recall_acks: VecDeque<(ProcessId, Timestamp)>,
}

/// How many recalls wait to be acknowledged at most; the rest comes again.
const RECALL_ACKS_MAX: usize = 4096;

/// What a data frame has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// Duplicate, late, stale, over the window: counted, answered where that helps.
    No,
}

impl Receiver {
    pub fn new(config: &Config, service: Service) -> Self {
        let half = config.receive_buffer_bytes_max as u64 / 2;
        let share = half / u64::from(config.processes_max);
        Self {
            service,
            peers: Peers::new(config.processes_max),
            segments: Segments::new(),
            reorder: Reorder::new(ReorderConfig::default()),
            cursor: None,
            waiting: 0,
            reassembly: Reassembly::new(),
            window: share.min(u64::from(config.window_bytes_max)),
            room_max: half,
            room_used: 0,
            room_queue: VecDeque::new(),
            local_room: LocalRoom::None,
            held: 0,
            answers: VecDeque::new(),
            delayed: Vec::new(),
            answer_by: None,
            resets: VecDeque::new(),
            doom: Doom::new(),
            recall_acks: VecDeque::new(),
        }
    }

    /// Fetches what a frame from `process` will change.
    #[inline]
    pub fn fetch(&self, process: ProcessId) -> u64 {
        self.peers.find(process).map_or(0, |at| self.peers.peek(at).fetch())
    }

    /// The window of each sender, in bytes.
    pub fn window_bytes(&self) -> u64 {
        self.window
    }

    /// Charge of everything held, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Messages that wait, fragments of messages included.
    pub fn pending(&self) -> usize {
        self.waiting + self.reassembly.len()
    }

    /// Takes in a data or fragment frame. Its barrier has not been applied yet: `barrier` is what
    /// was promised before.
    #[inline]
    pub fn on_data(
        &mut self,
        config: &Config,
        now: Mono,
        frame: &Frame<'_>,
        (clock, barrier): (Timestamp, Option<Timestamp>),
        stats: &mut Stats,
    ) -> Taken {
        let header = frame.header;
        let Some(at) = self.peers.find(header.src()) else {
            self.on_unknown(header.src(), header.psn());
            return Taken::No;
        };
        let psn = header.psn();
        let sender = self.peers.at(at);
        if sender.incarnation != header.incarnation() {
            stats.frames_stale += 1;
            if sender.incarnation < header.incarnation() {
                self.on_unknown(header.src(), psn);
            }
            return Taken::No;
        }
        if header.has(Flags::CONGESTION) {
            sender.marked = sender.marked.wrapping_add(1);
            stats.packets_marked += 1;
        }
        sender.received = sender.received.wrapping_add(1);
        sender.hear(now);
        match sender.tracker.arrival(psn) {
            Arrival::New => {}
            Arrival::Duplicate => {
                stats.packets_duplicate += 1;
                self.answer_now(at, Opcode::Ack);
                return Taken::No;
            }
            Arrival::Beyond => {
                stats.window_violations += 1;
                return Taken::No;
            }
        }
        let timestamp = header.message_ts(clock);
        let barrier = barrier.filter(|_| !makes(Mistake::LateAccepted));
        if barrier.is_some_and(|barrier| timestamp < barrier) {
            stats.packets_late += 1;
            self.refuse(at, psn);
            return Taken::No;
        }
        let drops = makes(Mistake::AckBeforeBuffering) && psn.0.is_multiple_of(64);
        if drops && self.service == Service::Reliable {
            self.peers.at(at).tracker.receive(psn);
            self.answer_now(at, Opcode::Ack);
            return Taken::Yes;
        }
        let in_room = header.has(Flags::RESERVED);
        let taken = match frame.opcode.in_best_effort() {
            Opcode::Fragment => self.take_fragment(config, at, timestamp, in_room, frame, stats),
            _ => self.take_messages(at, timestamp, in_room, frame, stats),
        };
        if !taken {
            // What breaks the rules is refused for good in best effort. To refuse a reliable
            // message would take its scattering back; it is sent again.
            if self.service == Service::BestEffort {
                self.refuse(at, psn);
            }
            return Taken::No;
        }
        let sender = self.peers.at(at);
        sender.tracker.receive(psn);
        sender.unacknowledged = sender.unacknowledged.saturating_add(1);
        // Commits wait for acknowledgements.
        let is_urgent = header.has(Flags::ACK_NOW) || self.service == Service::Reliable;
        if is_urgent || u32::from(sender.unacknowledged) >= config.ack_packets {
            self.answer_now(at, Opcode::Ack);
        } else {
            self.answer_later(config, now, at);
        }
        Taken::Yes
    }

    /// Puts the whole messages of a packet into the reorder stage.
    #[inline]
    fn take_messages(
        &mut self,
        at: usize,
        timestamp: Timestamp,
        in_room: bool,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> bool {
        // Measure first: a malformed or oversized packet must leave no trace.
        let Some(measure) = measure(frame.payload) else {
            stats.frames_malformed += 1;
            return false;
        };
        let charge = measure.bytes + measure.count * u64::from(MESSAGE_CHARGE_BYTES);
        if !self.admit(at, charge, in_room, stats) {
            return false;
        }
        let count = measure.count as u32;
        let place = self.segments.reserve(frame.payload.len(), count);
        self.segments.get_mut(place, frame.payload.len()).copy_from_slice(frame.payload);
        let (life, from) = (self.peers.peek(at).life, frame.header.src());
        let bytes = frame.payload.len() as u32;
        let (delta_ns, index) = measure.first;
        self.waiting += measure.count as usize;
        // One entry for the packet, by its first message: see `deliver.rs`.
        self.reorder.insert(Entry {
            timestamp: timestamp.wrapping_add_ns(u64::from(delta_ns)),
            order: order(from, life, index),
            value: Waiting { place, bytes, life, in_room, is_packet: true },
        });
        true
    }

    fn take_fragment(
        &mut self,
        config: &Config,
        at: usize,
        timestamp: Timestamp,
        in_room: bool,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> bool {
        let Ok(fragment) = Fragment::parse(frame.payload) else {
            stats.frames_malformed += 1;
            return false;
        };
        let bytes = fragment.header.message_len;
        let of_first = if fragment.header.offset == 0 { MESSAGE_CHARGE_BYTES } else { 0 };
        let charge = fragment.piece.len() as u64 + u64::from(of_first);
        if bytes > config.message_len_max {
            stats.frames_malformed += 1;
            return false;
        }
        let sender = self.peers.peek(at);
        let (life, from, index) = (sender.life, sender.from, fragment.header.index);
        let first = Partial {
            from: at as u32,
            life,
            index,
            timestamp,
            place: Place::NOWHERE,
            bytes,
            arrived: 0,
            charge: 0,
            in_room,
        };
        let known = self.reassembly.find(&first);
        let number = match known {
            Some(number) => number,
            // What is not whole is charged in full: it takes up its full length.
            None if self.admit(at, first.full_charge(), in_room, stats) => {
                self.reassembly.begin(&mut self.segments, first)
            }
            None => return false,
        };
        match self.reassembly.add(&mut self.segments, number, &fragment, charge) {
            Ok(Some(whole)) => {
                let (place, in_room) = (whole.place, whole.in_room);
                let value = Waiting { place, bytes, life, in_room, is_packet: false };
                self.waiting += 1;
                self.reorder.insert(Entry { timestamp, order: order(from, life, index), value });
                true
            }
            Ok(None) => true,
            Err(broken) => {
                stats.frames_malformed += 1;
                if let Some(partial) = broken {
                    self.discard(partial);
                }
                false
            }
        }
    }

    /// A sender takes scatterings back: they will not be delivered, unless they have been.
    pub fn on_recall(
        &mut self,
        from: (ProcessId, Incarnation),
        timestamps: impl Iterator<Item = Timestamp>,
    ) -> bool {
        let sender = self.peers.find(from.0).map(|at| self.peers.peek(at));
        let Some(sender) = sender.filter(|sender| sender.incarnation == from.1) else {
            return false;
        };
        let whose = (from.0, sender.life);
        for timestamp in timestamps {
            if self.recall_acks.len() < RECALL_ACKS_MAX && self.doom.recall(whose, timestamp) {
                self.recall_acks.push_back((from.0, timestamp));
            }
        }
        true
    }

    /// The process takes a scattering to itself back.
    pub fn recall_local(&mut self, own: ProcessId, timestamp: Timestamp) {
        self.doom.recall_for_sure((own, 0), timestamp);
    }

    /// A scattering of any life of `from` was taken back, as this process is told when it recovers.
    pub fn recall_recovered(&mut self, from: ProcessId, timestamp: Timestamp) {
        let Some(at) = self.peers.find(from) else { return };
        // The record does not say which life it was. All that are met here have failed but one.
        for life in 0..=self.peers.peek(at).life {
            self.doom.recall_for_sure((from, life), timestamp);
        }
    }

    /// Recalls to acknowledge at once, at most `max`, all of one sender.
    pub fn take_recall_acks(&mut self, into: &mut Vec<Timestamp>, max: usize) -> Option<ProcessId> {
        let (to, _) = *self.recall_acks.front()?;
        into.clear();
        while let Some((from, timestamp)) = self.recall_acks.front().copied()
            && from == to
            && into.len() < max
        {
            into.push(timestamp);
            self.recall_acks.pop_front();
        }
        Some(to)
    }

    /// The last life of `process` that has opened a connection.
    pub fn life_of(&self, process: ProcessId) -> Option<Incarnation> {
        self.peers.find(process).map(|at| self.peers.peek(at).incarnation)
    }

    /// Every life of `process` up to `incarnation` has failed at `at`, but those of which that was
    /// said before: what is here of it from then on is discarded.
    pub fn on_failed(&mut self, process: ProcessId, incarnation: Incarnation, at: Timestamp) {
        let peers = &self.peers;
        self.doom.forget_discards(|process| {
            // Of this process itself there is no sender: that is kept.
            peers.find(process).is_some_and(|at| peers.peek(at).holds_nothing())
        });
        let Some(index) = self.peers.find(process) else { return };
        let sender = self.peers.peek(index);
        if sender.incarnation <= incarnation {
            self.doom.discard(process, sender.life, at);
            self.close_room(index);
        } else if sender.life > 0 {
            self.doom.discard(process, sender.life - 1, at);
        }
    }

    /// This process itself was declared failed at `at`: what it has scattered to itself from then
    /// on nobody else delivers.
    pub fn on_excluded(&mut self, own: ProcessId, at: Timestamp) {
        self.doom.discard(own, 0, at);
    }

    /// Takes in a message of the process to itself.
    pub fn on_local(&mut self, config: &Config, local: Local<'_>) {
        let bytes = local.payload.len() as u32;
        let charge = u64::from(bytes) + u64::from(MESSAGE_CHARGE_BYTES);
        self.held += charge;
        let place = self.segments.reserve(local.payload.len(), 1);
        self.segments.get_mut(place, local.payload.len()).copy_from_slice(local.payload);
        self.waiting += 1;
        self.reorder.insert(Entry {
            timestamp: local.timestamp,
            order: order(config.process, 0, local.index),
            value: Waiting { place, bytes, life: 0, in_room: local.in_room, is_packet: false },
        });
    }

    /// The barrier has risen: what is not whole below it never will be.
    #[inline]
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        if self.reassembly.len() > 0 {
            self.discard_overdue(barrier);
        }
    }

    #[cold]
    fn discard_overdue(&mut self, barrier: Timestamp) {
        while let Some(partial) = self.reassembly.take_overdue(barrier) {
            self.discard(partial);
            self.answer_now(partial.from as usize, Opcode::Ack);
        }
    }

    fn discard(&mut self, partial: Partial) {
        self.segments.release(partial.place);
        let charges = (partial.full_charge(), partial.charge);
        self.unhold(partial.from as usize, partial.life, charges, partial.in_room);
    }

    /// Takes `charge` out of the buffer's accounts, of which `consumed` has arrived.
    #[inline]
    fn unhold(&mut self, at: usize, life: u16, (charge, consumed): (u64, u64), in_room: bool) {
        self.held -= charge;
        let sender = self.peers.at(at);
        if in_room {
            sender.rare_mut().held_in_room -= charge;
            self.room_used -= charge;
            self.give_room();
            return;
        }
        sender.freed = sender.freed.saturating_add(u32::try_from(charge).unwrap_or(u32::MAX));
        if sender.life == life {
            sender.held -= charge as u32;
            sender.consumed += consumed;
        } else {
            sender.rare_mut().held_before -= charge;
        }
    }
}

/// The part of the key behind the timestamp: `(sender, its life, index in scattering)`. The life is
/// in it because a process that restarts may take a timestamp that its former life had taken: both
/// may have been lifted to the same barrier.
#[inline]
fn order(from: ProcessId, life: u16, index: u16) -> u64 {
    u64::from(from.0) << 32 | u64::from(life) << 16 | u64::from(index)
}

/// What a packet of whole messages holds.
struct Measure {
    count: u64,
    bytes: u64,
    /// Delta and index of the first message.
    first: (u32, u16),
}

/// Measures a packet; `None` when it is malformed, empty, or not in ascending order.
#[inline]
fn measure(payload: &[u8]) -> Option<Measure> {
    let mut messages = Messages::new(payload);
    let first = messages.next()?.ok()?;
    let mut last = (first.delta_ns, first.index);
    let mut measure = Measure { count: 1, bytes: first.payload.len() as u64, first: last };
    for message in messages {
        let message = message.ok()?;
        let key = (message.delta_ns, message.index);
        if key <= last {
            return None;
        }
        last = key;
        measure.bytes += message.payload.len() as u64;
        measure.count += 1;
    }
    Some(measure)
}
