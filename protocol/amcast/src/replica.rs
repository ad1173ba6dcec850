//! A replica: it delivers what is final, in order, as far as the order is settled.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_wire::{Amcast, Frame, GroupId, GroupSet, LogicalTime, MessageId, Opcode};

use crate::config::{Config, ConfigError, MEMBERS_MAX};
use crate::member::Member;
use crate::outbox::Outbox;
use crate::patience::{Patience, Pause};

/// Packets of a replica that may wait to leave: an answer to each member, and a question.
const OUTBOX: usize = 2 * MEMBERS_MAX;

/// A message that is delivered now: `deliver(message, id, timestamp)`. Its octets are
/// [`Replica::message`], until the replica is given anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Which message.
    pub id: MessageId,
    /// All its groups: their replicas deliver it, too.
    pub groups: GroupSet,
    /// Messages are delivered in ascending order of this, and of the id where it is the same.
    pub timestamp: LogicalTime,
    position: u64,
}

/// What a replica tells who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaEvent {
    /// The next message.
    Delivered(Delivery),
    /// It has missed more than members keep: it can go on only from the state of another replica
    /// ([`Replica::join`]).
    Behind,
}

/// Between two deliveries of a replica: what the state of the application after the first belongs
/// to. Another replica begins there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryPoint {
    /// The last delivery.
    last: (LogicalTime, MessageId),
    /// Positions before this one are delivered.
    position: u64,
}

impl DeliveryPoint {
    /// Octets of one that travels with the application's state.
    pub const OCTETS: usize = 24;

    /// As it travels with the state that belongs to it.
    pub fn to_octets(self) -> [u8; Self::OCTETS] {
        let (timestamp, id) = self.last;
        let mut octets = [0; Self::OCTETS];
        octets[..8].copy_from_slice(&timestamp.0.to_be_bytes());
        octets[8..12].copy_from_slice(&id.client.to_be_bytes());
        octets[12..16].copy_from_slice(&id.sequence.to_be_bytes());
        octets[16..].copy_from_slice(&self.position.to_be_bytes());
        octets
    }

    /// What [`DeliveryPoint::to_octets`] has made of one.
    pub fn from_octets(octets: [u8; Self::OCTETS]) -> Self {
        let word = |at: usize| u32::from_be_bytes(core::array::from_fn(|nth| octets[at + nth]));
        let long = |at: usize| u64::from_be_bytes(core::array::from_fn(|nth| octets[at + nth]));
        let id = MessageId { client: word(8), sequence: word(12) };
        Self { last: (LogicalTime(long(0)), id), position: long(16) }
    }
}

/// What a replica has counted since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplicaStats {
    /// Messages delivered.
    pub delivered: u64,
    /// Final timestamps that were known already.
    pub copies: u64,
    /// Positions that were too far ahead to be kept.
    pub too_far: u64,
    /// Packets that made no sense.
    pub foreign: u64,
}

/// A position of the group's log, as far as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    position: u64,
    id: MessageId,
    groups: GroupSet,
    decided: Option<LogicalTime>,
    octets: Option<u16>,
    is_delivered: bool,
}

/// A replica of one group: it delivers what is final, in order, as far as the order is settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    config: Config,
    group: GroupId,
    known: Vec<Option<Known>>,
    messages: Vec<u8>,
    /// The first position that is not delivered.
    first: u64,
    /// The same when it last thought of asking.
    first_before: u64,
    /// All before this one are known, with their messages.
    whole: u64,
    /// What each member has said last: up to where the order is settled, once how many positions
    /// are known.
    bounds: Vec<(LogicalTime, u64)>,
    barrier: LogicalTime,
    /// What is whole and not delivered, with its positions, in the order of delivery.
    settled: VecDeque<(LogicalTime, MessageId, u64)>,
    last: Option<(LogicalTime, MessageId)>,
    outbox: Outbox,
    pause: Pause,
    patience: Patience,
    due: Option<Mono>,
    asked: usize,
    /// Positions before this one were asked for last, and how many at a time: twice as many as
    /// before, if all have come.
    asked_until: u64,
    burst: u64,
    /// Messages were told up to here.
    told: u64,
    /// Members that know that this life begins, by their places.
    greeted: u32,
    is_behind: bool,
    stats: ReplicaStats,
}

impl Replica {
    /// A replica that has delivered nothing. What its group has delivered before it asks for: if
    /// members do not keep that any more, it is behind.
    ///
    /// # Errors
    /// When a setting makes no sense, or its process is no replica of any group.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let (value, groups) = (u64::from(config.process.0), &config.groups);
        let is_own = |group: &crate::Group| group.replicas.contains(&config.process);
        let Some(at) = groups.groups.iter().position(is_own) else {
            return Err(ConfigError { name: "process", value });
        };
        let positions = config.log_positions();
        Ok(Self {
            group: GroupId(at as u16),
            known: vec![None; positions],
            messages: vec![0; positions * groups.message_octets_max()],
            first: 0,
            first_before: 0,
            whole: 0,
            bounds: vec![(LogicalTime(0), 0); groups.groups[at].members.len()],
            barrier: LogicalTime(0),
            last: None,
            outbox: Outbox::new(OUTBOX, groups.groups[at].members.iter().copied()),
            settled: VecDeque::with_capacity(positions),
            pause: Pause::default(),
            patience: Patience::new(config.repeat_ns),
            // It does not know what it lacks: it asks.
            due: Some(Mono::from_ns(0)),
            asked: 0,
            asked_until: 0,
            burst: Member::BURST,
            told: 0,
            greeted: 0,
            is_behind: false,
            stats: ReplicaStats::default(),
            config,
        })
    }

    /// A replica whose application has the state of another one at `point`.
    ///
    /// # Errors
    /// As for [`Replica::new`].
    pub fn join(config: Config, point: DeliveryPoint) -> Result<Self, ConfigError> {
        let mut replica = Self::new(config)?;
        (replica.first, replica.whole) = (point.position, point.position);
        replica.last = Some(point.last);
        Ok(replica)
    }

    /// Where it is, once it has delivered anything.
    pub fn point(&self) -> Option<DeliveryPoint> {
        Some(DeliveryPoint { last: self.last?, position: self.first })
    }

    /// The octets of what was delivered last.
    pub fn message(&self, delivery: &Delivery) -> &[u8] {
        let slot = self.slot(delivery.position);
        let octets = self.known[slot].filter(|known| known.position == delivery.position);
        let octets = octets.and_then(|known| known.octets).unwrap_or_default();
        &self.messages[slot * self.config.groups.message_octets_max()..][..usize::from(octets)]
    }

    /// How it is set up.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Of which group it is a replica.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// What it has counted.
    pub fn stats(&self) -> &ReplicaStats {
        &self.stats
    }

    /// Whether there is something to send.
    pub fn wants_transmit(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn slot(&self, position: u64) -> usize {
        (position % self.known.len() as u64) as usize
    }

    fn on_packet(&mut self, place: usize, opcode: Opcode, body: &Amcast, message: &[u8]) -> bool {
        match opcode {
            Opcode::Prop if body.has(Amcast::MESSAGE) => {
                let decided = body.has(Amcast::DECIDED).then_some(body.barrier);
                self.learn(body, decided, Some(message));
            }
            Opcode::Deliver => {
                if body.has(Amcast::MESSAGE | Amcast::DECIDED) {
                    self.learn(body, Some(body.timestamp), None);
                }
                let bound = &mut self.bounds[place];
                *bound = (*bound).max((body.barrier, body.count));
                self.on_bounds();
                if body.has(Amcast::ASKS) {
                    self.ask(place);
                }
                // Not what was told a former life.
                if body.has(Amcast::FETCH) && body.position == self.life() {
                    self.greeted |= 1 << place;
                }
            }
            // What was asked for may have come since, from where it had waited.
            Opcode::Gap if body.has(Amcast::BEHIND) => {
                self.is_behind |= self.whole < body.position;
            }
            _ => return false,
        }
        true
    }

    /// What stands at a position, perhaps its final timestamp, perhaps its message.
    fn learn(&mut self, body: &Amcast, decided: Option<LogicalTime>, message: Option<&[u8]>) {
        let octets_max = self.config.groups.message_octets_max();
        if body.position < self.first || message.is_some_and(|octets| octets.len() > octets_max) {
            return;
        }
        if body.position - self.first >= self.known.len() as u64 {
            // The group goes on; this comes again when there is room.
            self.stats.too_far += 1;
            return;
        }
        let slot = self.slot(body.position);
        let (position, id, groups) = (body.position, body.id, body.groups);
        let new = Known { position, id, groups, decided: None, octets: None, is_delivered: false };
        let old = self.known[slot].filter(|known| known.position == position);
        // Before it is decided, another message may come to stand there.
        let mut known = match old {
            Some(old) if old.id == id => old,
            Some(old) if old.decided.is_some() => return,
            _ => new,
        };
        if let Some(decided) = decided {
            self.stats.copies += u64::from(known.decided.is_some());
            known.decided = known.decided.or(Some(decided));
            // What the state that it has joined with contains.
            known.is_delivered |= self.last.is_some_and(|last| (decided, id) <= last);
        }
        if let (None, Some(message)) = (known.octets, message) {
            self.messages[slot * octets_max..][..message.len()].copy_from_slice(message);
            known.octets = Some(message.len() as u16);
            self.told = self.told.max(position + 1);
        }
        self.known[slot] = Some(known);
        let before = self.whole;
        while let Some(known) = self.get(self.whole).copied() {
            let Some(decided) = known.decided else { break };
            if known.octets.is_none() && !known.is_delivered {
                break;
            }
            if !known.is_delivered {
                self.line_up((decided, known.id, self.whole));
            }
            self.whole += 1;
        }
        if self.whole > before {
            self.pause.reset();
            self.on_bounds();
            self.ask_on();
        }
    }

    fn get(&self, position: u64) -> Option<&Known> {
        self.known[self.slot(position)].as_ref().filter(|known| known.position == position)
    }

    fn on_bounds(&mut self) {
        for (barrier, count) in &self.bounds {
            if *count <= self.whole {
                self.barrier = self.barrier.max(*barrier);
            }
        }
    }

    /// What was asked for has come. If more messages were lost (later ones have come), the next of
    /// them need not wait for their time.
    fn ask_on(&mut self) {
        if self.asked_until == 0 || self.whole < self.asked_until {
            return;
        }
        let is_lost = |known: Option<&Known>| known.is_none_or(|known| known.octets.is_none());
        if self.whole < self.told && is_lost(self.get(self.whole)) {
            self.burst = (2 * self.burst).min(Member::BURST_MAX);
            self.ask(self.asked);
        } else {
            (self.asked_until, self.burst) = (0, Member::BURST);
        }
    }

    fn ask(&mut self, place: usize) {
        let own = self.config.groups.get(self.group).expect("it is a replica of it");
        let has_come =
            |position: &u64| self.get(*position).is_some_and(|known| known.octets.is_some());
        let until = self.whole + self.burst;
        self.asked_until = (self.whole + 1..until).find(has_come).unwrap_or(until);
        let timestamp = LogicalTime(self.asked_until);
        let body = Amcast { position: self.whole, timestamp, ..Amcast::new(self.group, 0) };
        let is_known = self.greeted >> place & 1 == 1;
        let (flags, count) = if is_known { (0, 0) } else { (Amcast::ASKS, self.life()) };
        self.outbox.push(own.members[place], Opcode::Gap, Amcast { flags, count, ..body }, None);
    }

    fn life(&self) -> u64 {
        self.config.incarnation.0.into()
    }

    /// Whether some member that will live on may not know what this life lacks: of a majority one
    /// lives on, and tells it until it has everything.
    fn is_new(&self) -> bool {
        self.greeted.count_ones() < self.config.groups.majority(self.group)
    }

    fn lacks(&self) -> bool {
        // Positions, or a barrier at which what it has can be delivered.
        let is_open = |position| self.get(position).is_some();
        let has_less = |(_, count): &(LogicalTime, u64)| *count > self.whole;
        self.is_new()
            || self.bounds.iter().any(has_less)
            || is_open(self.whole)
            || !self.settled.is_empty()
    }

    fn settle(&mut self, now: Now) {
        self.patience.time(now.mono, self.told, self.first);
        if !self.lacks() {
            self.due = None;
            self.pause.reset();
        } else if self.due.is_none() {
            self.due = Some(now.mono.after_ns(self.pause.next_ns(&self.patience)));
        }
    }

    /// Puts a message among those that wait for the barrier: most often it is the last.
    fn line_up(&mut self, message: (LogicalTime, MessageId, u64)) {
        let is_before = |other: &&(LogicalTime, MessageId, u64)| **other > message;
        let behind = self.settled.iter().rev().take_while(is_before).count();
        self.settled.insert(self.settled.len() - behind, message);
    }

    fn next_delivery(&mut self) -> Option<Delivery> {
        let (timestamp, id, position) = *self.settled.front()?;
        if timestamp > self.barrier {
            return None;
        }
        self.settled.pop_front();
        let slot = self.slot(position);
        let known = self.known[slot].as_mut().expect("what is lined up stays until delivered");
        known.is_delivered = true;
        let groups = known.groups;
        self.last = Some((timestamp, id));
        while self.get(self.first).is_some_and(|known| known.is_delivered) {
            self.first += 1;
        }
        self.stats.delivered += 1;
        Some(Delivery { id, groups, timestamp, position })
    }
}

impl Machine for Replica {
    type Event = ReplicaEvent;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let own = self.config.process;
        let parsed = Frame::parse(frame).ok().filter(|frame| frame.header.dst() == own);
        let mut is_taken = false;
        if let Some(frame) = parsed {
            let place = self.config.groups.member_place(self.group, frame.header.src());
            for packet in Amcast::packets(frame.opcode, frame.payload) {
                let packet = packet.ok().filter(|(body, _)| body.group == self.group);
                is_taken = packet.zip(place).is_some_and(|((body, message), place)| {
                    self.on_packet(place, frame.opcode, &body, message)
                });
                if !is_taken {
                    break;
                }
            }
        }
        self.stats.foreign += u64::from(!is_taken);
        self.settle(now);
        if is_taken { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.due.is_some_and(|due| due <= now.mono) {
            self.due = None;
            if self.is_new() {
                let is_known = self.greeted;
                let others = (0..self.bounds.len()).filter(|place| is_known >> place & 1 == 0);
                others.for_each(|place| self.ask(place));
            } else if core::mem::replace(&mut self.first_before, self.first) == self.first {
                // Another one each time, for any of them may have crashed.
                self.asked = (self.asked + 1) % self.bounds.len();
                self.burst = Member::BURST;
                self.ask(self.asked);
                self.patience.forget_timed();
            } else {
                // It lacks something all the time under load, and gets it.
                self.pause.reset();
            }
        }
        self.settle(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let ends = (self.config.process, self.config.incarnation);
        let octets = self.outbox.write(slot, now, ends, |_, _| None)?;
        Some(Transmit { port: Port(0), octets })
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
