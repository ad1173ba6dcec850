//! The receive path: tracker → window → reassembly → reorder → delivery.

mod ack;
mod check;
mod delayed_acks;
mod delivery;
mod filter;
mod flow_control;
mod measure;
mod reassembly;
mod recall;
mod refuse;
mod remote_sender;

use alloc::collections::VecDeque;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Incarnation, Mono, ProcessId, Psn, Timestamp};
use onepipe_reliability::PsnState;
use onepipe_wire::{AckDelay, Flags, Fragment, Frame, Opcode, Service};

use crate::arena::{PayloadArena, PayloadRef};
use crate::peers::PeerTable;
use crate::reorder::{Entry, Reorder, ReorderConfig};
use crate::send::LocalMessage;
use crate::stats::Stats;
use crate::{Config, MESSAGE_CHARGE_BYTES};
use delayed_acks::DelayedAcks;
use delivery::{Cursor, QueuedPayload};
use filter::DeliveryFilter;
pub(crate) use filter::Tombstone;
use flow_control::LocalReservation;
use measure::{measure, messages};
use reassembly::{Partial, Reassembly};
use refuse::Refusal;
use remote_sender::RemoteSender;

/// The receiver of one service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    service: Service,
    peers: PeerTable<RemoteSender>,
    arena: PayloadArena,
    reorder: Reorder<QueuedPayload>,
    /// The packet whose messages are being delivered.
    cursor: Option<Cursor>,
    /// Packets and messages without an order, to be delivered next.
    unordered: VecDeque<Cursor>,
    /// Number of messages in the reorder stage, at the cursor and without an order.
    waiting: usize,
    /// The newest timestamp received so far. Messages up to it may be undelivered until the barrier
    /// passes it.
    newest: Option<Timestamp>,
    reassembly: Reassembly,
    /// Window of each sender, in bytes.
    window: u64,
    /// Limit of all reservations, in bytes.
    reservation_bytes_max: u64,
    /// Bytes of reservations that are granted or used.
    reserved_bytes: u64,
    /// Senders that wait for a reservation, in FIFO order.
    reservation_queue: VecDeque<u32>,
    local_reservation: LocalReservation,
    /// Charge of all buffered messages, of every sender.
    buffered: u64,
    /// Senders to acknowledge now.
    ack_queue: VecDeque<u32>,
    delayed_acks: DelayedAcks,
    /// Packets of unknown connections, to be answered with Reset.
    reset_queue: VecDeque<(ProcessId, Psn)>,
    /// Recalled and discarded messages; empty in the best-effort service.
    pub(crate) filter: DeliveryFilter,
    /// Recalls to acknowledge.
    recall_ack_queue: VecDeque<(ProcessId, Timestamp)>,
    refusal: Refusal,
}

/// Limit on recalls that wait for their acknowledgement. A recall beyond it is ignored until its
/// sender retransmits it.
const RECALL_ACK_QUEUE_MAX: usize = 4096;

/// When a frame arrived.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub now: Mono,
    /// The clock, near the fabric's time.
    pub clock: Timestamp,
    /// The barrier before the frame's own promise is applied.
    pub barrier: Option<Timestamp>,
}

/// What was done with a data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    Accepted,
    /// Duplicate, late, stale or beyond the window; counted, and acknowledged where that helps.
    Dropped,
}

impl Receiver {
    pub fn new(config: &Config, service: Service) -> Self {
        let half = config.receive_buffer_bytes_max as u64 / 2;
        let share = half / u64::from(config.processes_max);
        Self {
            service,
            peers: PeerTable::new(config.processes_max),
            arena: PayloadArena::new(),
            reorder: Reorder::new(ReorderConfig::default()),
            cursor: None,
            unordered: VecDeque::new(),
            waiting: 0,
            newest: None,
            reassembly: Reassembly::new(),
            window: share.min(u64::from(config.window_bytes_max)),
            reservation_bytes_max: half,
            reserved_bytes: 0,
            reservation_queue: VecDeque::new(),
            local_reservation: LocalReservation::None,
            buffered: 0,
            ack_queue: VecDeque::new(),
            delayed_acks: DelayedAcks::new(),
            reset_queue: VecDeque::new(),
            filter: DeliveryFilter::new(),
            recall_ack_queue: VecDeque::new(),
            refusal: Refusal::default(),
        }
    }

    /// Prefetches the state that a frame from `process` will change.
    #[inline]
    pub fn prefetch(&self, process: ProcessId) -> u64 {
        self.peers.index_of(process).map_or(0, |peer_index| self.peers.get(peer_index).prefetch())
    }

    pub fn window_bytes(&self) -> u64 {
        self.window
    }

    /// Returns the charge of all buffered messages in bytes.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered
    }

    /// Returns the newest timestamp of all messages received so far, complete or not.
    #[inline]
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Returns the number of waiting messages, incomplete ones included.
    pub fn pending(&self) -> usize {
        self.waiting + self.reassembly.len()
    }

    /// Handles a data or fragment frame.
    #[inline]
    pub fn on_data(
        &mut self,
        config: &Config,
        arrival: Arrival,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> Disposition {
        let Arrival { now, clock, barrier } = arrival;
        let header = frame.header;
        let Some(peer_index) = self.peers.index_of(header.src()) else {
            self.queue_reset(header.src(), header.psn());
            return Disposition::Dropped;
        };
        let psn = header.psn();
        let sender = self.peers.get_mut(peer_index);
        //= spec/ordering.md#R36
        if sender.incarnation != header.incarnation() {
            stats.frames_stale += 1;
            if sender.incarnation < header.incarnation() {
                self.queue_reset(header.src(), psn);
            }
            return Disposition::Dropped;
        }
        if header.has(Flags::CONGESTION) {
            sender.marked = sender.marked.wrapping_add(1);
            stats.packets_marked += 1;
        }
        sender.received = sender.received.wrapping_add(1);
        sender.touch(now);
        match sender.tracker.classify(psn) {
            PsnState::New => {}
            PsnState::Duplicate => {
                stats.packets_duplicate += 1;
                self.queue_ack(peer_index, Opcode::Ack);
                return Disposition::Dropped;
            }
            PsnState::Beyond => {
                stats.window_violations += 1;
                return Disposition::Dropped;
            }
        }
        let timestamp = header.message_ts(clock);
        let is_fragment = frame.opcode.in_best_effort() == Opcode::Fragment;
        //= spec/ordering.md#R86
        // A late fragment is rejected: the others may have been dropped when the barrier passed.
        let has_order = is_fragment || !self.is_unordered(frame);
        let barrier = barrier.filter(|_| has_order);
        //= spec/ordering.md#R22
        if barrier.is_some_and(|barrier| timestamp < barrier) && !makes(Mistake::LateAccepted) {
            stats.packets_late += 1;
            self.reject(peer_index, psn);
            return Disposition::Dropped;
        }
        debug_assert!(Some(timestamp) >= barrier, "what is buffered can be delivered in order");
        if self.refusal.is_active {
            self.refuse(peer_index, timestamp, frame);
            return Disposition::Dropped;
        }
        let drops = makes(Mistake::AckBeforeBuffering) && psn.0.is_multiple_of(64);
        if drops && self.service == Service::Reliable {
            self.peers.get_mut(peer_index).tracker.receive(psn);
            self.queue_ack(peer_index, Opcode::Ack);
            return Disposition::Accepted;
        }
        let is_reserved = header.has(Flags::RESERVED);
        let is_accepted = match is_fragment {
            true => self.accept_fragment(config, peer_index, timestamp, is_reserved, frame, stats),
            false => self.accept_messages(peer_index, timestamp, is_reserved, frame, stats),
        };
        if !is_accepted {
            // Best effort rejects an invalid packet permanently. Rejecting a reliable message would
            // recall its scattering, so the packet is left to retransmission.
            if self.service == Service::BestEffort {
                self.reject(peer_index, psn);
            }
            return Disposition::Dropped;
        }
        let sender = self.peers.get_mut(peer_index);
        let opens_gap = sender.tracker.opens_gap(psn);
        sender.tracker.receive(psn);
        sender.unacked = sender.unacked.saturating_add(1);
        sender.newest_at = AckDelay::ticks(now.as_ns());
        //= spec/ordering.md#R29
        // Commits wait for acknowledgements.
        let is_urgent =
            header.has(Flags::ACK_NOW) || self.service == Service::Reliable || opens_gap;
        if is_urgent || u32::from(sender.unacked) >= config.ack_packets {
            self.queue_ack(peer_index, Opcode::Ack);
        } else {
            self.delay_ack(now, peer_index);
        }
        Disposition::Accepted
    }

    /// Inserts the whole messages of a packet into the reorder stage.
    #[inline]
    fn accept_messages(
        &mut self,
        peer_index: usize,
        timestamp: Timestamp,
        is_reserved: bool,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> bool {
        // Measured first: a malformed or oversized packet must not change any state.
        let is_single = frame.header.has(Flags::SINGLE);
        let Some(measure) = measure(messages(frame)) else {
            stats.frames_malformed += 1;
            return false;
        };
        let charge = measure.len + measure.count * u64::from(MESSAGE_CHARGE_BYTES);
        if !self.admit(peer_index, charge, is_reserved, stats) {
            return false;
        }
        let count = measure.count as u32;
        let payload_ref = self.arena.alloc(frame.payload.len(), count);
        self.arena.get_mut(payload_ref, frame.payload.len()).copy_from_slice(frame.payload);
        let (generation, from) = (self.peers.get(peer_index).generation, frame.header.src());
        let len = frame.payload.len() as u32;
        let (delta_ns, index) = measure.first;
        self.waiting += measure.count as usize;
        // One entry for the whole packet, ordered by its first message: see `delivery.rs`.
        let entry = Entry {
            timestamp: timestamp.wrapping_add_ns(u64::from(delta_ns)),
            order: order(from, generation, index),
            value: QueuedPayload {
                payload_ref,
                len,
                generation,
                is_reserved,
                is_packet: !is_single,
            },
        };
        if self.is_unordered(frame) {
            self.unordered.push_back(Cursor::new(entry, &self.arena));
        } else {
            let last = timestamp.wrapping_add_ns(u64::from(measure.last_delta_ns));
            self.newest = self.newest.max(Some(last));
            self.reorder.insert(entry);
        }
        true
    }

    /// Returns whether the messages of a data frame are delivered without an order.
    #[inline]
    fn is_unordered(&self, frame: &Frame<'_>) -> bool {
        frame.header.has(Flags::UNORDERED) && self.service == Service::BestEffort
    }

    /// Adds a fragment to its message, and inserts the message into the reorder stage once it is
    /// complete.
    fn accept_fragment(
        &mut self,
        config: &Config,
        peer_index: usize,
        timestamp: Timestamp,
        is_reserved: bool,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> bool {
        let Ok(fragment) = Fragment::parse(frame.payload) else {
            stats.frames_malformed += 1;
            return false;
        };
        let len = fragment.header.message_len;
        let message_charge = if fragment.header.offset == 0 { MESSAGE_CHARGE_BYTES } else { 0 };
        let charge = fragment.piece.len() as u64 + u64::from(message_charge);
        if len > config.message_len_max {
            stats.frames_malformed += 1;
            return false;
        }
        let sender = self.peers.get(peer_index);
        let (generation, from, index) = (sender.generation, sender.from, fragment.header.index);
        let new = Partial {
            from: peer_index as u32,
            generation,
            index,
            timestamp,
            payload_ref: PayloadRef::NONE,
            len,
            arrived: 0,
            charge: 0,
            is_reserved,
        };
        let known = self.reassembly.find(&new);
        let position = match known {
            Some(position) => position,
            // An incomplete message is charged in full, because its memory is allocated in full.
            None if self.admit(peer_index, new.full_charge(), is_reserved, stats) => {
                self.reassembly.start(&mut self.arena, new)
            }
            None => return false,
        };
        self.newest = self.newest.max(Some(timestamp));
        match self.reassembly.add(&mut self.arena, position, &fragment, charge) {
            Ok(Some(whole)) => {
                let (payload_ref, is_reserved) = (whole.payload_ref, whole.is_reserved);
                let value =
                    QueuedPayload { payload_ref, len, generation, is_reserved, is_packet: false };
                self.waiting += 1;
                let order = order(from, generation, index);
                let entry = Entry { timestamp, order, value };
                match self.is_unordered(frame) {
                    true => self.unordered.push_back(Cursor::new(entry, &self.arena)),
                    false => self.reorder.insert(entry),
                }
                true
            }
            Ok(None) => true,
            Err(broken) => {
                stats.frames_malformed += 1;
                if let Some(partial) = broken {
                    self.drop_partial(partial);
                }
                false
            }
        }
    }

    /// Returns the last incarnation of `process` that has opened a connection.
    pub fn incarnation_of(&self, process: ProcessId) -> Option<Incarnation> {
        self.peers.index_of(process).map(|peer_index| self.peers.get(peer_index).incarnation)
    }

    /// Inserts a local message.
    pub fn on_local(&mut self, config: &Config, local: LocalMessage<'_>) {
        let len = local.payload.len() as u32;
        let charge = u64::from(len) + u64::from(MESSAGE_CHARGE_BYTES);
        self.buffered += charge;
        let payload_ref = self.arena.store(local.payload);
        self.waiting += 1;
        let entry = Entry {
            timestamp: local.timestamp,
            order: order(config.process, 0, local.index),
            value: QueuedPayload {
                payload_ref,
                len,
                generation: 0,
                is_reserved: local.is_reserved,
                is_packet: false,
            },
        };
        if local.is_unordered {
            self.unordered.push_back(Cursor::new(entry, &self.arena));
        } else {
            self.newest = self.newest.max(Some(local.timestamp));
            self.reorder.insert(entry);
        }
    }

    /// Drops messages that are incomplete when the barrier passes them: they can no longer
    /// complete.
    #[inline]
    pub fn on_barrier(&mut self, barrier: Timestamp) {
        if self.reassembly.len() > 0 {
            self.drop_overdue(barrier);
        }
    }

    #[cold]
    fn drop_overdue(&mut self, barrier: Timestamp) {
        while let Some(partial) = self.reassembly.take_overdue(barrier) {
            self.drop_partial(partial);
            self.queue_ack(partial.from as usize, Opcode::Ack);
        }
    }

    fn drop_partial(&mut self, partial: Partial) {
        self.arena.release(partial.payload_ref);
        let Partial { from, generation, charge: arrived, is_reserved, .. } = partial;
        let charge = partial.full_charge();
        self.release_charge(from as usize, generation, charge, arrived, is_reserved);
    }

    /// Releases `charge` from all accounts. The sender regains only `consumed`: less than `charge`
    /// if some fragments of the message never arrived.
    #[inline]
    fn release_charge(
        &mut self,
        peer_index: usize,
        generation: u16,
        charge: u64,
        consumed: u64,
        is_reserved: bool,
    ) {
        self.buffered -= charge;
        let sender = self.peers.get_mut(peer_index);
        if is_reserved {
            sender.cold_mut().buffered_reserved -= charge;
            self.reserved_bytes -= charge;
            self.grant_reservations();
            return;
        }
        sender.freed_since_ack =
            sender.freed_since_ack.saturating_add(u32::try_from(charge).unwrap_or(u32::MAX));
        if sender.generation == generation {
            sender.buffered -= charge as u32;
            sender.consumed += consumed;
        } else {
            sender.cold_mut().buffered_before -= charge;
        }
    }
}

//= spec/ordering.md#R20
/// Returns the sort key behind the timestamp: `(sender, generation, index in the scattering)`. The
/// generation is part of it because a restarted process may reuse a timestamp of its previous
/// incarnation: both may have been raised to the same barrier.
#[inline]
fn order(from: ProcessId, generation: u16, index: u16) -> u64 {
    u64::from(from.0) << 32 | u64::from(generation) << 16 | u64::from(index)
}
