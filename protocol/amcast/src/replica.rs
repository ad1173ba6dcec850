//! Replica: delivers messages with final timestamps in order, up to the group's barrier.

mod invariants;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_reliability::{RetransmitTimer, RttEstimator};
use onepipe_wire::{Amcast, Frame, GroupId, GroupSet, LogicalTime, MessageId, Opcode};

use crate::config::{Config, ConfigError, MEMBERS_MAX};
use crate::member::Member;
use crate::outbox::Outbox;

/// Capacity of a replica's outbox in packets: a request and a reply to each member.
const OUTBOX: usize = 2 * MEMBERS_MAX;
const _: () = assert!(DeliveryPoint::LEN == 8 + 4 + 4 + 8, "a point is encoded without gaps");

/// Delivery of a message: `deliver(message, id, timestamp)`. [`Replica::message`] returns its
/// content until the next call that changes the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Message id.
    pub id: MessageId,
    /// Destination groups: the replicas of all of them deliver the message.
    pub groups: GroupSet,
    /// Final timestamp. Messages are delivered in ascending order of timestamp, then of id.
    pub timestamp: LogicalTime,
    position: u64,
}

/// Event of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaEvent {
    /// The next message is delivered.
    Delivered(Delivery),
    /// The replica lags by more than members retain: it must be restarted with the state of another
    /// replica ([`Replica::join`]).
    Behind,
}

/// Point between two deliveries of a replica. It identifies a state of the application, from which
/// another replica can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryPoint {
    /// Last delivery before this point.
    last: (LogicalTime, MessageId),
    /// All positions before this one have been delivered.
    position: u64,
}

impl DeliveryPoint {
    /// Length of the encoding in bytes.
    pub const LEN: usize = 24;

    /// Encodes the point, to be stored with the application's state.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (timestamp, id) = self.last;
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&timestamp.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&id.client.to_be_bytes());
        bytes[12..16].copy_from_slice(&id.sequence.to_be_bytes());
        bytes[16..].copy_from_slice(&self.position.to_be_bytes());
        bytes
    }

    /// Decodes a point from [`DeliveryPoint::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|nth| bytes[at + nth]));
        let long = |at: usize| u64::from_be_bytes(core::array::from_fn(|nth| bytes[at + nth]));
        let id = MessageId { client: word(8), sequence: word(12) };
        Self { last: (LogicalTime(long(0)), id), position: long(16) }
    }
}

/// Counters of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaStats {
    /// Messages delivered.
    pub delivered: u64,
    /// Final timestamps that were known already.
    pub duplicates: u64,
    /// Packets for positions that did not fit the buffer.
    pub out_of_window: u64,
    /// Invalid packets.
    pub invalid: u64,
}

/// Position of the group's log, as far as known to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Position {
    position: u64,
    id: MessageId,
    groups: GroupSet,
    decided: Option<LogicalTime>,
    bytes: Option<u16>,
    is_delivered: bool,
}

/// A message that waits for the barrier. The order is that of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PendingDelivery {
    timestamp: LogicalTime,
    id: MessageId,
    position: u64,
}

/// Replica of one group; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    config: Config,
    group: GroupId,
    positions: Vec<Option<Position>>,
    messages: Vec<u8>,
    /// First position that is not delivered.
    first_undelivered: u64,
    /// Value of the above at the last timeout: shows whether there was progress since.
    first_at_timeout: u64,
    /// All positions before this one are decided, with their messages.
    contiguous_until: u64,
    /// Latest barrier of each member, with the number of decided positions that it covers.
    barriers: Vec<(LogicalTime, u64)>,
    barrier: LogicalTime,
    /// Messages waiting for the barrier, with their positions, in the order of delivery.
    pending: VecDeque<PendingDelivery>,
    last: Option<(LogicalTime, MessageId)>,
    outbox: Outbox,
    timer: RetransmitTimer,
    rtt: RttEstimator,
    due: Option<Mono>,
    /// Member that requests are sent to.
    source: usize,
    /// End of the last request for missing positions, and the length of the next one, which doubles
    /// each time a request was answered in full.
    requested_until: u64,
    request_len: u64,
    /// End of the positions whose messages were received.
    received_until: u64,
    /// Members that have acknowledged this incarnation, one bit per member index.
    acked_by: u32,
    is_behind: bool,
    stats: ReplicaStats,
}

impl Replica {
    /// Creates a replica that has delivered nothing and requests the group's whole log. If members
    /// do not retain all of that, the replica reports [`ReplicaEvent::Behind`].
    ///
    /// # Errors
    /// [`ConfigError`] if a setting is out of range or the process is not a replica of any group.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let (value, groups) = (u64::from(config.process.0), &config.groups);
        let is_own = |group: &crate::Group| group.replicas.contains(&config.process);
        let Some(at) = groups.groups.iter().position(is_own) else {
            return Err(ConfigError { name: "process", value });
        };
        let positions = config.log_capacity();
        Ok(Self {
            group: GroupId(at as u16),
            positions: vec![None; positions],
            messages: vec![0; positions * groups.message_len_max()],
            first_undelivered: 0,
            first_at_timeout: 0,
            contiguous_until: 0,
            barriers: vec![(LogicalTime(0), 0); groups.groups[at].members.len()],
            barrier: LogicalTime(0),
            last: None,
            outbox: Outbox::new(OUTBOX, groups.groups[at].members.iter().copied()),
            pending: VecDeque::with_capacity(positions),
            timer: RetransmitTimer::default(),
            rtt: config.rtt(),
            // The extent of the log is unknown: request it at once.
            due: Some(Mono::from_ns(0)),
            source: 0,
            requested_until: 0,
            request_len: Member::REQUEST_LEN,
            received_until: 0,
            acked_by: 0,
            is_behind: false,
            stats: ReplicaStats::default(),
            config,
        })
    }

    //= spec/amcast.md#R32
    /// Creates a replica whose application has the state of another replica at `point`.
    ///
    /// # Errors
    /// See [`Replica::new`].
    pub fn join(config: Config, point: DeliveryPoint) -> Result<Self, ConfigError> {
        let mut replica = Self::new(config)?;
        (replica.first_undelivered, replica.contiguous_until) = (point.position, point.position);
        replica.last = Some(point.last);
        Ok(replica)
    }

    /// Returns the point behind the last delivery, if any.
    pub fn point(&self) -> Option<DeliveryPoint> {
        Some(DeliveryPoint { last: self.last?, position: self.first_undelivered })
    }

    /// Returns the content of the last delivered message.
    pub fn message(&self, delivery: &Delivery) -> &[u8] {
        let slot = self.slot(delivery.position);
        let bytes = self.positions[slot].filter(|known| known.position == delivery.position);
        let bytes = bytes.and_then(|known| known.bytes).unwrap_or_default();
        &self.messages[slot * self.config.groups.message_len_max()..][..usize::from(bytes)]
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the replica's group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the counters.
    pub fn stats(&self) -> &ReplicaStats {
        &self.stats
    }

    /// Returns whether there is something to send.
    pub fn wants_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn slot(&self, position: u64) -> usize {
        (position % self.positions.len() as u64) as usize
    }

    fn on_packet(&mut self, member: usize, opcode: Opcode, body: &Amcast, message: &[u8]) -> bool {
        match opcode {
            Opcode::Prop if body.has(Amcast::MESSAGE) => {
                let decided = body.has(Amcast::DECIDED).then_some(body.barrier);
                self.learn(body, decided, Some(message));
            }
            Opcode::Deliver => {
                if body.has(Amcast::MESSAGE | Amcast::DECIDED) {
                    self.learn(body, Some(body.timestamp), None);
                }
                let barrier = &mut self.barriers[member];
                *barrier = (*barrier).max((body.barrier, body.count));
                self.update_barrier();
                if body.has(Amcast::WANTS_REPLY) {
                    self.request(member);
                }
                // Ignore replies to a previous incarnation.
                if body.has(Amcast::FETCH) && body.position == self.incarnation() {
                    self.acked_by |= 1 << member;
                }
            }
            // The requested positions may have arrived from another member meanwhile.
            Opcode::Gap if body.has(Amcast::BEHIND) => {
                //= spec/amcast.md#R31
                self.is_behind |= self.contiguous_until < body.position;
            }
            _ => return false,
        }
        true
    }

    /// Records what a packet says of a position: its final timestamp, its message, or both.
    fn learn(&mut self, body: &Amcast, decided: Option<LogicalTime>, message: Option<&[u8]>) {
        let bytes_max = self.config.groups.message_len_max();
        if body.position < self.first_undelivered
            || message.is_some_and(|bytes| bytes.len() > bytes_max)
        {
            return;
        }
        //= spec/amcast.md#R31
        if body.position - self.first_undelivered >= self.positions.len() as u64 {
            // A member retransmits the position once there is space.
            self.stats.out_of_window += 1;
            return;
        }
        let slot = self.slot(body.position);
        let (position, id, groups) = (body.position, body.id, body.groups);
        let new =
            Position { position, id, groups, decided: None, bytes: None, is_delivered: false };
        let old = self.positions[slot].filter(|known| known.position == position);
        // Before a position is decided, a new leader may assign another message to it.
        let mut known = match old {
            Some(old) if old.id == id => old,
            Some(old) if old.decided.is_some() => return,
            _ => new,
        };
        if let Some(decided) = decided {
            self.stats.duplicates += u64::from(known.decided.is_some());
            known.decided = known.decided.or(Some(decided));
            // Positions that the state given to [`Replica::join`] contains.
            known.is_delivered |= self.last.is_some_and(|last| (decided, id) <= last);
        }
        if let (None, Some(message)) = (known.bytes, message) {
            self.messages[slot * bytes_max..][..message.len()].copy_from_slice(message);
            known.bytes = Some(message.len() as u16);
            self.received_until = self.received_until.max(position + 1);
        }
        debug_assert_eq!(known.position, position, "a slot is of one position");
        debug_assert!(known.decided.is_some() || !known.is_delivered, "decided, then delivered");
        self.positions[slot] = Some(known);
        let before = self.contiguous_until;
        while let Some(known) = self.get(self.contiguous_until).copied() {
            let Some(decided) = known.decided else { break };
            if known.bytes.is_none() && !known.is_delivered {
                break;
            }
            if !known.is_delivered {
                let (id, position) = (known.id, self.contiguous_until);
                self.insert_pending(PendingDelivery { timestamp: decided, id, position });
            }
            self.contiguous_until += 1;
        }
        if self.contiguous_until > before {
            self.timer.reset();
            self.update_barrier();
            self.request_more();
        }
    }

    fn get(&self, position: u64) -> Option<&Position> {
        self.positions[self.slot(position)].as_ref().filter(|known| known.position == position)
    }

    //= spec/amcast.md#R15
    fn update_barrier(&mut self) {
        for (barrier, count) in &self.barriers {
            if *count <= self.contiguous_until {
                self.barrier = self.barrier.max(*barrier);
            }
        }
    }

    //= spec/amcast.md#R28
    /// After a request was answered in full: if the next position was lost as well, which a later
    /// one shows, requests more without waiting for the timeout.
    fn request_more(&mut self) {
        if self.requested_until == 0 || self.contiguous_until < self.requested_until {
            return;
        }
        let is_lost = |known: Option<&Position>| known.is_none_or(|known| known.bytes.is_none());
        if self.contiguous_until < self.received_until && is_lost(self.get(self.contiguous_until)) {
            self.request_len = (2 * self.request_len).min(Member::REQUEST_LEN_MAX);
            self.request(self.source);
        } else {
            (self.requested_until, self.request_len) = (0, Member::REQUEST_LEN);
        }
    }

    fn request(&mut self, member: usize) {
        let own = self.config.groups.get(self.group).expect("the replica's own group exists");
        let is_received =
            |position: &u64| self.get(*position).is_some_and(|known| known.bytes.is_some());
        let until = self.contiguous_until + self.request_len;
        self.requested_until =
            (self.contiguous_until + 1..until).find(is_received).unwrap_or(until);
        let timestamp = LogicalTime(self.requested_until);
        let body =
            Amcast { position: self.contiguous_until, timestamp, ..Amcast::new(self.group, 0) };
        let is_known = self.acked_by >> member & 1 == 1;
        let (flags, count) =
            if is_known { (0, 0) } else { (Amcast::WANTS_REPLY, self.incarnation()) };
        self.outbox.push(own.members[member], Opcode::Gap, Amcast { flags, count, ..body }, None);
    }

    fn incarnation(&self) -> u64 {
        self.config.incarnation.0.into()
    }

    //= spec/amcast.md#R32
    /// Returns whether less than a majority has acknowledged this incarnation. Of a majority one
    /// member survives, and retransmits to the replica until it has everything.
    fn is_starting(&self) -> bool {
        self.acked_by.count_ones() < self.config.groups.majority(self.group)
    }

    fn is_waiting(&self) -> bool {
        // A position may be missing, or the barrier for a complete one.
        let is_open = |position| self.get(position).is_some();
        let has_less = |(_, count): &(LogicalTime, u64)| *count > self.contiguous_until;
        self.is_starting()
            || self.barriers.iter().any(has_less)
            || is_open(self.contiguous_until)
            || !self.pending.is_empty()
    }

    fn advance(&mut self, now: Now) {
        if cfg!(debug_assertions) {
            self.check_counts();
        }
        self.rtt.track(now.mono, self.received_until, self.first_undelivered);
        if !self.is_waiting() {
            self.due = None;
            self.timer.reset();
        } else if self.due.is_none() {
            self.due = Some(now.mono.after_ns(self.timer.next_timeout_ns(&self.rtt)));
        }
    }

    //= spec/amcast.md#R16
    /// Inserts a message in the order of delivery, searching from the back.
    fn insert_pending(&mut self, message: PendingDelivery) {
        let is_behind = |other: &&PendingDelivery| **other > message;
        let behind = self.pending.iter().rev().take_while(is_behind).count();
        debug_assert!(!self.pending.contains(&message), "a message waits once");
        self.pending.insert(self.pending.len() - behind, message);
    }

    //= spec/amcast.md#R16
    fn next_delivery(&mut self) -> Option<Delivery> {
        let PendingDelivery { timestamp, id, position } = *self.pending.front()?;
        if timestamp > self.barrier {
            return None;
        }
        self.pending.pop_front();
        let slot = self.slot(position);
        let known =
            self.positions[slot].as_mut().expect("pending messages are held until delivered");
        debug_assert!(!known.is_delivered, "a message is delivered once");
        debug_assert_eq!((known.id, known.decided), (id, Some(timestamp)), "as it was decided");
        known.is_delivered = true;
        let groups = known.groups;
        self.last = Some((timestamp, id));
        while self.get(self.first_undelivered).is_some_and(|known| known.is_delivered) {
            self.first_undelivered += 1;
        }
        debug_assert!(self.first_undelivered <= self.contiguous_until, "a prefix is delivered");
        self.stats.delivered += 1;
        Some(Delivery { id, groups, timestamp, position })
    }
}

impl Machine for Replica {
    type Event = ReplicaEvent;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_valid = false;
        if let Some(frame) = parsed {
            let member = self.config.groups.member_index(self.group, frame.header.src());
            for packet in Amcast::packets(frame.opcode, frame.payload) {
                let packet = packet.ok().filter(|(body, _)| body.group == self.group);
                is_valid = packet.zip(member).is_some_and(|((body, message), member)| {
                    self.on_packet(member, frame.opcode, &body, message)
                });
                if !is_valid {
                    break;
                }
            }
        }
        self.stats.invalid += u64::from(!is_valid);
        self.advance(now);
        if is_valid { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.due.is_some_and(|due| due <= now.mono) {
            self.due = None;
            if self.is_starting() {
                let is_known = self.acked_by;
                let others = (0..self.barriers.len()).filter(|member| is_known >> member & 1 == 0);
                others.for_each(|member| self.request(member));
            } else if core::mem::replace(&mut self.first_at_timeout, self.first_undelivered)
                == self.first_undelivered
            {
                // Ask another member each time, as any of them may have failed.
                self.source = (self.source + 1) % self.barriers.len();
                self.request_len = Member::REQUEST_LEN;
                self.request(self.source);
                self.rtt.discard_sample();
            } else {
                // Under load something is always missing for a moment: there is progress.
                self.timer.reset();
            }
            if cfg!(debug_assertions) {
                self.check_invariants();
            }
        }
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let sender = self.config.own();
        let bytes = self.outbox.write(slot, now, sender, |_, _| None)?;
        Some(Transmit { port: Port(0), bytes })
    }

    fn poll_event(&mut self) -> Option<ReplicaEvent> {
        if core::mem::take(&mut self.is_behind) {
            return Some(ReplicaEvent::Behind);
        }
        self.next_delivery().map(ReplicaEvent::Delivered)
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
