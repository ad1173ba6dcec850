//! Genuine atomic multicast among processes, as PrimCast does it (Middleware 2023): the primary of
//! each group that a message is for proposes a timestamp, a majority of the group acknowledges it,
//! and the highest of them is the message's place: three steps from sender to delivery.
//!
//! Everybody is told everything by everybody, and each member delivers: there is nobody between
//! them. As with the other rivals, members do not fail; their quorums are waited for nevertheless,
//! for that is what the method costs.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::ProcessId;
use onepipe_wire::{GroupId, GroupSet};

use crate::To;
use crate::desk::Desk;
use crate::entry::{Entry, Kind};

/// Which processes are a group: the first `group_members` are group 0, and so on. Those behind the
/// last group send, and deliver nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seats {
    groups: u32,
    group_members: u32,
}

impl Seats {
    /// Of which group `process` is, and which member of it.
    fn of(self, process: ProcessId) -> Option<(GroupId, usize)> {
        let (group, place) = (process.0 / self.group_members, process.0 % self.group_members);
        (group < self.groups).then_some((GroupId(group as u16), place as usize))
    }

    fn members(self, group: GroupId) -> impl Iterator<Item = ProcessId> {
        let first = u32::from(group.0) * self.group_members;
        (first..first + self.group_members).map(ProcessId)
    }

    fn are(self, groups: GroupSet) -> bool {
        !groups.is_empty() && groups.iter().all(|group| u32::from(group.0) < self.groups)
    }
}

/// Who sent it, and its number there.
type Id = (u32, u32);

/// What a group has said of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Vote {
    timestamp: u64,
    /// Who has acknowledged it, by their places.
    by: u64,
}

/// A message that this member has heard of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cell {
    /// Empty, until the message itself has come.
    groups: GroupSet,
    payload: Bytes,
    votes: Vec<Vote>,
    last: Option<u64>,
    is_delivered: bool,
}

/// A member of a group, or who only sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Primcast {
    own: ProcessId,
    seats: Seats,
    /// Own messages so far, and which groups have not delivered which of them.
    sent: u32,
    open: BTreeMap<u32, GroupSet>,
    clock: u64,
    /// Up to where the own group has been told that.
    told: u64,
    /// What the members of the own group have said of theirs, by their places.
    clocks: Vec<u64>,
    cells: BTreeMap<Id, Cell>,
    /// What the own primary has proposed, ascending, from the first on whose place is not final.
    proposed: VecDeque<(u64, Id)>,
    /// What is final and not delivered.
    waiting: BTreeSet<(u64, Id)>,
}

impl Primcast {
    pub(crate) fn new(own: ProcessId, groups: u32, group_members: u32) -> Self {
        Self {
            own,
            seats: Seats { groups, group_members },
            sent: 0,
            open: BTreeMap::new(),
            clock: 0,
            told: 0,
            clocks: alloc::vec![0; group_members as usize],
            cells: BTreeMap::new(),
            proposed: VecDeque::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Own messages that some group has not delivered.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn send(&mut self, desk: &mut Desk, to: To, payload: Bytes) {
        let groups = match to {
            To::Groups(groups) => groups,
            To::Everybody => GroupSet::from_bits(u64::MAX >> (64 - self.seats.groups)),
            // Refused by `Rival::send`.
            To::One(_) => return,
        };
        let (place, number) = (self.sent, groups.to_bits());
        self.sent = self.sent.wrapping_add(1);
        self.open.insert(place, groups);
        let start = Entry { kind: Kind::Message, origin: self.own, place, number, payload };
        self.tell(desk, groups, &start);
        if self.group().is_some_and(|group| groups.contains(group)) {
            self.start(desk, start);
        }
        self.deliver(desk);
    }

    /// Something has come. Answers whether it made sense.
    pub(crate) fn take(&mut self, desk: &mut Desk, from: ProcessId, entry: Entry) -> bool {
        let makes_sense = match entry.kind {
            Kind::Message => {
                let groups = GroupSet::from_bits(entry.number);
                let is_for_it = self.group().is_some_and(|group| groups.contains(group));
                let is_right = is_for_it && self.seats.are(groups) && entry.origin == from;
                if is_right {
                    self.start(desk, entry);
                }
                is_right
            }
            Kind::Ack => self.on_ack(desk, from, &entry),
            Kind::Clock => self.on_clock(from, entry.number),
            Kind::Over => self.on_over(from, &entry),
            Kind::Token => false,
        };
        self.deliver(desk);
        makes_sense
    }

    fn group(&self) -> Option<GroupId> {
        self.seats.of(self.own).map(|(group, _)| group)
    }

    /// To all other members of `groups`.
    fn tell(&self, desk: &mut Desk, groups: GroupSet, entry: &Entry) {
        for to in groups.iter().flat_map(|group| self.seats.members(group)) {
            if to != self.own {
                desk.send(to, entry.clone());
            }
        }
    }

    fn cell(&mut self, id: Id) -> &mut Cell {
        let groups = self.seats.groups as usize;
        self.cells.entry(id).or_insert_with(|| Cell {
            groups: GroupSet::EMPTY,
            payload: Bytes::new(),
            votes: alloc::vec![Vote::default(); groups],
            last: None,
            is_delivered: false,
        })
    }

    fn start(&mut self, desk: &mut Desk, entry: Entry) {
        let Some((group, place)) = self.seats.of(self.own) else { return };
        let id = (entry.origin.0, entry.place);
        let cell = self.cell(id);
        if !cell.groups.is_empty() {
            return;
        }
        cell.groups = GroupSet::from_bits(entry.number);
        cell.payload = entry.payload;
        let vote = cell.votes[group.index()];
        if place == 0 {
            self.clock = self.clock.saturating_add(1);
            self.vote(desk, id, self.clock);
        } else if vote.by & 1 == 1 {
            self.vote(desk, id, vote.timestamp);
        }
    }

    /// Proposes the own group's timestamp of a message, or acknowledges it.
    fn vote(&mut self, desk: &mut Desk, id: Id, timestamp: u64) {
        let (kind, origin) = (Kind::Ack, ProcessId(id.0));
        let payload = Bytes::new();
        let ack = Entry { kind, origin, place: id.1, number: timestamp, payload };
        let groups = self.cell(id).groups;
        self.told = self.told.max(timestamp);
        self.tell(desk, groups, &ack);
        self.count(self.own, id, timestamp);
    }

    fn on_ack(&mut self, desk: &mut Desk, from: ProcessId, ack: &Entry) -> bool {
        let id = (ack.origin.0, ack.place);
        let (Some((group, _)), Some((own, place))) = (self.seats.of(from), self.seats.of(self.own))
        else {
            return false;
        };
        if !self.count(from, id, ack.number) {
            return false;
        }
        self.clock = self.clock.max(ack.number);
        if ack.number > self.told && group != own {
            // The message may end there: the own group must know who is past that.
            self.told = self.clock;
            let bump = Entry { kind: Kind::Clock, number: self.clock, ..ack.clone() };
            self.tell(desk, GroupSet::EMPTY.with(own), &bump);
        }
        // The primary's is the proposal; it may have overtaken the message.
        let is_here = self.cells.get(&id).is_some_and(|cell| !cell.groups.is_empty());
        if from == self.primary(own) && place != 0 && is_here {
            self.vote(desk, id, ack.number);
        }
        true
    }

    fn primary(&self, group: GroupId) -> ProcessId {
        ProcessId(u32::from(group.0) * self.seats.group_members)
    }

    /// A member has taken a timestamp for a message. Answers whether it can be so.
    fn count(&mut self, by: ProcessId, id: Id, timestamp: u64) -> bool {
        let Some((group, place)) = self.seats.of(by) else { return false };
        let is_own = self.group() == Some(group);
        if is_own && place == 0 {
            let is_later = self.proposed.back().is_none_or(|last| last.0 < timestamp);
            if !is_later || timestamp <= self.clocks[0] {
                return false;
            }
        }
        let vote = &mut self.cell(id).votes[group.index()];
        if vote.by >> place & 1 == 1 || (vote.by != 0 && vote.timestamp != timestamp) {
            return false;
        }
        *vote = Vote { timestamp, by: vote.by | 1 << place };
        if is_own {
            self.clocks[place] = self.clocks[place].max(timestamp);
            if place == 0 {
                self.proposed.push_back((timestamp, id));
            }
        }
        self.decide(id);
        self.forget(id);
        true
    }

    fn decide(&mut self, id: Id) {
        let majority = self.seats.group_members / 2 + 1;
        let Some(cell) = self.cells.get_mut(&id).filter(|cell| cell.last.is_none()) else { return };
        let votes = || cell.groups.iter().map(|group| cell.votes[group.index()]);
        let is_final = votes().all(|vote| vote.by.count_ones() >= majority);
        let last = votes().map(|vote| vote.timestamp).max();
        if let Some(last) = last.filter(|_| is_final) {
            cell.last = Some(last);
            self.waiting.insert((last, id));
        }
    }

    /// What is delivered, and everybody has spoken of, need not be kept.
    fn forget(&mut self, id: Id) {
        let all = self.seats.group_members;
        let is_done = self.cells.get(&id).is_some_and(|cell| {
            let mut votes = cell.groups.iter().map(|group| cell.votes[group.index()]);
            cell.is_delivered && votes.all(|vote| vote.by.count_ones() == all)
        });
        if is_done {
            self.cells.remove(&id);
        }
    }

    fn on_clock(&mut self, from: ProcessId, clock: u64) -> bool {
        let seat = self.seats.of(from).filter(|seat| Some(seat.0) == self.group());
        let known = seat.and_then(|(_, place)| self.clocks.get_mut(place));
        let Some(known) = known else { return false };
        *known = clock.max(*known);
        self.clock = self.clock.max(clock);
        true
    }

    fn on_over(&mut self, from: ProcessId, over: &Entry) -> bool {
        let group = self.seats.of(from).filter(|(_, place)| *place == 0).map(|seat| seat.0);
        let is_own = over.origin == self.own;
        is_own && group.is_some_and(|group| self.close(over.place, group))
    }

    fn close(&mut self, sequence: u32, group: GroupId) -> bool {
        let Some(open) = self.open.get_mut(&sequence) else { return false };
        *open = open.without(group);
        if open.is_empty() {
            self.open.remove(&sequence);
        }
        true
    }

    /// No message of the own group that is not final yet can come at or below it.
    fn barrier(&mut self) -> u64 {
        while let Some((_, id)) = self.proposed.front()
            && self.cells.get(id).is_none_or(|cell| cell.last.is_some())
        {
            self.proposed.pop_front();
        }
        let pending = self.proposed.front().map_or(u64::MAX, |first| first.0 - 1);
        // The (f + 1)-th highest clock: a majority is there.
        let majority = self.clocks.len() / 2 + 1;
        let are_there =
            |clock: &&u64| self.clocks.iter().filter(|other| other >= clock).count() >= majority;
        let quorum = self.clocks.iter().filter(are_there).max().copied().unwrap_or_default();
        pending.min(self.clocks[0]).min(quorum)
    }

    fn deliver(&mut self, desk: &mut Desk) {
        let Some((group, place)) = self.seats.of(self.own) else { return };
        self.clocks[place] = self.clock;
        let barrier = self.barrier();
        while let Some((number, id)) = self.waiting.first().copied()
            && number <= barrier
        {
            self.waiting.pop_first();
            let Some(cell) = self.cells.get_mut(&id) else { continue };
            cell.is_delivered = true;
            let payload = core::mem::take(&mut cell.payload);
            let (kind, origin, sequence) = (Kind::Over, ProcessId(id.0), id.1);
            desk.deliver(Entry { kind: Kind::Message, origin, place: sequence, number, payload });
            let over = Entry { kind, origin, place: sequence, number, payload: Bytes::new() };
            match origin == self.own {
                true if place == 0 => drop(self.close(sequence, group)),
                false if place == 0 => desk.send(origin, over),
                _ => {}
            }
            self.forget(id);
        }
    }
}
