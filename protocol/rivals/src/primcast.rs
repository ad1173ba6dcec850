//! Genuine atomic multicast among processes (PrimCast, Middleware 2023). The primary of each
//! destination group proposes a timestamp, a majority of the group acknowledges it, and the highest
//! timestamp defines the message's position: three communication steps from sender to delivery.
//!
//! All members exchange acknowledgements directly, and each member delivers. As with the other
//! baselines, members do not fail, but deliveries wait for quorums, which is the method's cost.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::ProcessId;
use onepipe_wire::{GroupId, GroupSet};

use crate::To;
use crate::context::OrderContext;
use crate::entry::{Entry, Kind};

/// Assignment of processes to groups: the first `group_members` processes are group 0, and so on.
/// Processes behind the last group only send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GroupLayout {
    groups: u32,
    group_members: u32,
}

impl GroupLayout {
    /// Returns the group of `process` and its index there.
    fn locate(self, process: ProcessId) -> Option<(GroupId, usize)> {
        let (group, index) = (process.0 / self.group_members, process.0 % self.group_members);
        (group < self.groups).then_some((GroupId(group as u16), index as usize))
    }

    fn members(self, group: GroupId) -> impl Iterator<Item = ProcessId> {
        let first = u32::from(group.0) * self.group_members;
        (first..first + self.group_members).map(ProcessId)
    }

    fn are_valid(self, groups: GroupSet) -> bool {
        !groups.is_empty() && groups.iter().all(|group| u32::from(group.0) < self.groups)
    }
}

/// Sender of a message, and its sequence number there.
type Id = (u32, u32);

/// Votes of a group for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Vote {
    timestamp: u64,
    /// Members that have acknowledged the timestamp: one bit per member index.
    voters: u64,
}

/// State of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cell {
    /// Destination groups; empty until the message itself arrives.
    groups: GroupSet,
    payload: Bytes,
    votes: Vec<Vote>,
    /// Final timestamp, once decided.
    final_timestamp: Option<u64>,
    is_delivered: bool,
}

/// Member of a group, or a process that only sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Primcast {
    own: ProcessId,
    layout: GroupLayout,
    /// Number of own messages.
    sent: u32,
    /// Own messages, with the groups that have not delivered them.
    open: BTreeMap<u32, GroupSet>,
    clock: u64,
    /// Clock value that the own group knows.
    advertised: u64,
    /// Clocks of the members of the own group, by member index.
    clocks: Vec<u64>,
    cells: BTreeMap<Id, Cell>,
    /// Proposals of the own primary in ascending order, from the first without a final timestamp.
    proposed: VecDeque<(u64, Id)>,
    /// Messages with a final timestamp that are not delivered.
    waiting: BTreeSet<(u64, Id)>,
}

impl Primcast {
    pub(crate) fn new(own: ProcessId, groups: u32, group_members: u32) -> Self {
        Self {
            own,
            layout: GroupLayout { groups, group_members },
            sent: 0,
            open: BTreeMap::new(),
            clock: 0,
            advertised: 0,
            clocks: alloc::vec![0; group_members as usize],
            cells: BTreeMap::new(),
            proposed: VecDeque::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Returns the number of own messages that some group has not delivered.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn send(&mut self, context: &mut OrderContext, to: To, payload: Bytes) {
        let groups = match to {
            To::Groups(groups) => groups,
            To::All => GroupSet::from_bits(u64::MAX >> (64 - self.layout.groups)),
            // [`Rival::send`](crate::Rival::send) refuses it.
            To::One(_) => return,
        };
        let (sequence, number) = (self.sent, groups.to_bits());
        self.sent = self.sent.wrapping_add(1);
        self.open.insert(sequence, groups);
        let start = Entry { kind: Kind::Message, origin: self.own, sequence, number, payload };
        self.send_to_groups(context, groups, &start);
        if self.group().is_some_and(|group| groups.contains(group)) {
            self.on_message(context, start);
        }
        self.deliver(context);
    }

    /// Handles an entry. Returns whether it was valid.
    pub(crate) fn receive(
        &mut self,
        context: &mut OrderContext,
        from: ProcessId,
        entry: Entry,
    ) -> bool {
        let is_valid = match entry.kind {
            Kind::Message => {
                let groups = GroupSet::from_bits(entry.number);
                let is_destination = self.group().is_some_and(|group| groups.contains(group));
                let is_valid =
                    is_destination && self.layout.are_valid(groups) && entry.origin == from;
                if is_valid {
                    self.on_message(context, entry);
                }
                is_valid
            }
            Kind::Ack => self.on_ack(context, from, &entry),
            Kind::Clock => self.on_clock(from, entry.number),
            Kind::Delivered => self.on_delivered(from, &entry),
            Kind::Token => false,
        };
        self.deliver(context);
        is_valid
    }

    fn group(&self) -> Option<GroupId> {
        self.layout.locate(self.own).map(|(group, _)| group)
    }

    /// Sends an entry to all other members of `groups`.
    fn send_to_groups(&self, context: &mut OrderContext, groups: GroupSet, entry: &Entry) {
        for to in groups.iter().flat_map(|group| self.layout.members(group)) {
            if to != self.own {
                context.send(to, entry.clone());
            }
        }
    }

    fn cell(&mut self, id: Id) -> &mut Cell {
        let groups = self.layout.groups as usize;
        self.cells.entry(id).or_insert_with(|| Cell {
            groups: GroupSet::EMPTY,
            payload: Bytes::new(),
            votes: alloc::vec![Vote::default(); groups],
            final_timestamp: None,
            is_delivered: false,
        })
    }

    fn on_message(&mut self, context: &mut OrderContext, entry: Entry) {
        let Some((group, index)) = self.layout.locate(self.own) else { return };
        let id = (entry.origin.0, entry.sequence);
        let cell = self.cell(id);
        if !cell.groups.is_empty() {
            return;
        }
        cell.groups = GroupSet::from_bits(entry.number);
        cell.payload = entry.payload;
        let vote = cell.votes[group.index()];
        if index == 0 {
            self.clock = self.clock.saturating_add(1);
            self.vote(context, id, self.clock);
        } else if vote.voters & 1 == 1 {
            self.vote(context, id, vote.timestamp);
        }
    }

    /// Proposes or acknowledges the own group's timestamp of a message.
    fn vote(&mut self, context: &mut OrderContext, id: Id, timestamp: u64) {
        let (kind, origin) = (Kind::Ack, ProcessId(id.0));
        let payload = Bytes::new();
        let ack = Entry { kind, origin, sequence: id.1, number: timestamp, payload };
        let groups = self.cell(id).groups;
        self.advertised = self.advertised.max(timestamp);
        self.send_to_groups(context, groups, &ack);
        self.on_vote(self.own, id, timestamp);
    }

    fn on_ack(&mut self, context: &mut OrderContext, from: ProcessId, ack: &Entry) -> bool {
        let id = (ack.origin.0, ack.sequence);
        let (Some((group, _)), Some((own, index))) =
            (self.layout.locate(from), self.layout.locate(self.own))
        else {
            return false;
        };
        if !self.on_vote(from, id, ack.number) {
            return false;
        }
        self.clock = self.clock.max(ack.number);
        if ack.number > self.advertised && group != own {
            // The message may be final at this timestamp: advertise the clock to the own group.
            self.advertised = self.clock;
            let clock_update = Entry { kind: Kind::Clock, number: self.clock, ..ack.clone() };
            self.send_to_groups(context, GroupSet::EMPTY.with(own), &clock_update);
        }
        // The primary's acknowledgement is the proposal, and may arrive before the message.
        let is_here = self.cells.get(&id).is_some_and(|cell| !cell.groups.is_empty());
        if from == self.primary(own) && index != 0 && is_here {
            self.vote(context, id, ack.number);
        }
        true
    }

    fn primary(&self, group: GroupId) -> ProcessId {
        ProcessId(u32::from(group.0) * self.layout.group_members)
    }

    /// Records a member's acknowledgement of a timestamp. Returns whether it was valid.
    fn on_vote(&mut self, voter: ProcessId, id: Id, timestamp: u64) -> bool {
        let Some((group, index)) = self.layout.locate(voter) else { return false };
        let is_own = self.group() == Some(group);
        if is_own && index == 0 {
            let is_later = self.proposed.back().is_none_or(|last| last.0 < timestamp);
            if !is_later || timestamp <= self.clocks[0] {
                return false;
            }
        }
        let vote = &mut self.cell(id).votes[group.index()];
        if vote.voters >> index & 1 == 1 || (vote.voters != 0 && vote.timestamp != timestamp) {
            return false;
        }
        debug_assert!((index as u32) < 64, "a bit for each member");
        *vote = Vote { timestamp, voters: vote.voters | 1 << index };
        if is_own {
            self.clocks[index] = self.clocks[index].max(timestamp);
            if index == 0 {
                let last = self.proposed.back();
                debug_assert!(last.is_none_or(|last| last.0 < timestamp), "proposals ascend");
                self.proposed.push_back((timestamp, id));
            }
        }
        self.decide(id);
        self.remove_if_done(id);
        true
    }

    fn decide(&mut self, id: Id) {
        let majority = self.layout.group_members / 2 + 1;
        let Some(cell) = self.cells.get_mut(&id).filter(|cell| cell.final_timestamp.is_none())
        else {
            return;
        };
        let votes = || cell.groups.iter().map(|group| cell.votes[group.index()]);
        let is_final = votes().all(|vote| vote.voters.count_ones() >= majority);
        let final_timestamp = votes().map(|vote| vote.timestamp).max();
        if let Some(final_timestamp) = final_timestamp.filter(|_| is_final) {
            debug_assert!(!cell.is_delivered, "a message is delivered once it is final");
            cell.final_timestamp = Some(final_timestamp);
            self.waiting.insert((final_timestamp, id));
        }
    }

    /// Removes a message that was delivered and acknowledged by all members.
    fn remove_if_done(&mut self, id: Id) {
        let all = self.layout.group_members;
        let is_done = self.cells.get(&id).is_some_and(|cell| {
            let mut votes = cell.groups.iter().map(|group| cell.votes[group.index()]);
            cell.is_delivered && votes.all(|vote| vote.voters.count_ones() == all)
        });
        if is_done {
            self.cells.remove(&id);
        }
    }

    /// Panics if the votes, or the messages that wait, contradict each other.
    pub(crate) fn check_invariants(&self) {
        assert!(self.advertised <= self.clock, "no clock is advertised before it is reached");
        assert!(self.proposed.iter().is_sorted_by_key(|(at, _)| at), "proposals ascend");
        assert!(self.open.values().all(|groups| !groups.is_empty()), "open until all have it");
        for (at, id) in &self.waiting {
            let cell = self.cells.get(id).expect("a message that waits has a cell");
            assert_eq!(cell.final_timestamp, Some(*at), "a message waits at its final timestamp");
            assert!(!cell.is_delivered, "a delivered message does not wait");
        }
        for cell in self.cells.values() {
            let members = self.layout.group_members;
            assert!(cell.votes.iter().all(|vote| vote.voters >> members == 0), "of the group");
            let voted = cell.groups.iter().map(|group| cell.votes[group.index()].timestamp);
            let last = voted.max().unwrap_or_default();
            assert!(cell.final_timestamp.is_none_or(|at| at == last), "the highest one is final");
        }
    }

    fn on_clock(&mut self, from: ProcessId, clock: u64) -> bool {
        let location = self.layout.locate(from).filter(|location| Some(location.0) == self.group());
        let known = location.and_then(|(_, index)| self.clocks.get_mut(index));
        let Some(known) = known else { return false };
        *known = clock.max(*known);
        self.clock = self.clock.max(clock);
        true
    }

    fn on_delivered(&mut self, from: ProcessId, delivered: &Entry) -> bool {
        let group =
            self.layout.locate(from).filter(|(_, index)| *index == 0).map(|location| location.0);
        let is_own = delivered.origin == self.own;
        is_own && group.is_some_and(|group| self.complete(delivered.sequence, group))
    }

    fn complete(&mut self, sequence: u32, group: GroupId) -> bool {
        let Some(open) = self.open.get_mut(&sequence) else { return false };
        *open = open.without(group);
        if open.is_empty() {
            self.open.remove(&sequence);
        }
        true
    }

    /// Returns the barrier: no later message of the own group gets a timestamp at or below it.
    fn barrier(&mut self) -> u64 {
        while let Some((_, id)) = self.proposed.front()
            && self.cells.get(id).is_none_or(|cell| cell.final_timestamp.is_some())
        {
            self.proposed.pop_front();
        }
        let pending = self.proposed.front().map_or(u64::MAX, |first| first.0 - 1);
        // The (f + 1)-th highest clock: a majority has reached it.
        let majority = self.clocks.len() / 2 + 1;
        let is_quorum =
            |clock: &&u64| self.clocks.iter().filter(|other| other >= clock).count() >= majority;
        let quorum = self.clocks.iter().filter(is_quorum).max().copied().unwrap_or_default();
        pending.min(self.clocks[0]).min(quorum)
    }

    fn deliver(&mut self, context: &mut OrderContext) {
        let Some((group, index)) = self.layout.locate(self.own) else { return };
        self.clocks[index] = self.clock;
        let barrier = self.barrier();
        while let Some((number, id)) = self.waiting.first().copied()
            && number <= barrier
        {
            self.waiting.pop_first();
            let Some(cell) = self.cells.get_mut(&id) else { continue };
            debug_assert!(!cell.is_delivered, "a message is delivered once");
            debug_assert_eq!(cell.final_timestamp, Some(number), "at its final timestamp");
            cell.is_delivered = true;
            let payload = core::mem::take(&mut cell.payload);
            let (kind, origin, sequence) = (Kind::Delivered, ProcessId(id.0), id.1);
            context.deliver(Entry { kind: Kind::Message, origin, sequence, number, payload });
            let delivered = Entry { kind, origin, sequence, number, payload: Bytes::new() };
            match origin == self.own {
                true if index == 0 => drop(self.complete(sequence, group)),
                false if index == 0 => context.send(origin, delivered),
                _ => {}
            }
            self.remove_if_done(id);
        }
    }
}
