//! Agreed multicast: uniform agreement, one order for all groups, integrity, validity, and nobody
//! who is not concerned hears of a message (U and E of the design's list of invariants).

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, GroupId, GroupSet, LogicalTime, MessageId};

/// Texts that are kept; more are only counted.
const TEXTS_MAX: usize = 20;

/// A place in the order.
type Place = (LogicalTime, MessageId);

/// What one replica has delivered, in all its lives that go on from one another's state.
#[derive(Clone, Debug)]
struct Log {
    group: GroupId,
    delivered: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    groups: GroupSet,
    digest: u64,
}

/// Who belongs where, as far as the checker must know.
#[derive(Clone, Debug, Default)]
pub struct Belongs {
    /// Of each process: the groups that it orders or delivers for.
    pub of: Vec<GroupSet>,
    /// Of each client, by its number: who it is.
    pub clients: Vec<ProcessId>,
    /// Who says who leads, and hears of no message.
    pub coordinators: Vec<ProcessId>,
}

/// Checks one history. It knows no machine: it is told what clients, replicas and leaders say, and
/// shown frames.
#[derive(Clone, Debug)]
pub struct Agreed {
    belongs: Belongs,
    sent: BTreeMap<MessageId, Sent>,
    over: BTreeSet<MessageId>,
    places: BTreeMap<MessageId, LogicalTime>,
    /// Of each replica.
    logs: Vec<Log>,
    /// Of lives that are gone.
    former: Vec<Log>,
    leaders: BTreeMap<(GroupId, u32), ProcessId>,
    texts: Vec<String>,
    wrong: u64,
    delivered: u64,
}

impl Agreed {
    /// With replicas of these groups.
    pub fn new(belongs: Belongs, replicas: impl IntoIterator<Item = GroupId>) -> Self {
        let log = |group| Log { group, delivered: Vec::new() };
        Self {
            belongs,
            sent: BTreeMap::new(),
            over: BTreeSet::new(),
            places: BTreeMap::new(),
            logs: replicas.into_iter().map(log).collect(),
            former: Vec::new(),
            leaders: BTreeMap::new(),
            texts: Vec::new(),
            wrong: 0,
            delivered: 0,
        }
    }

    /// How many things were wrong.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// The first of them, in words.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Messages delivered, each checked.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// How many messages were sent.
    pub fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Whatever else is wrong.
    pub fn complain(&mut self, text: String) {
        self.wrong += 1;
        if self.texts.len() < TEXTS_MAX {
            self.texts.push(text);
        }
    }

    /// A client has begun a message with this digest.
    pub fn on_sent(&mut self, id: MessageId, groups: GroupSet, digest: u64) {
        if self.sent.insert(id, Sent { groups, digest }).is_some() {
            self.complain(format!("{id:?} was sent twice"));
        }
    }

    /// A client was told that its message is over, and perhaps where in the order it is.
    pub fn on_over(&mut self, id: MessageId, timestamp: Option<LogicalTime>) {
        self.over.insert(id);
        if let Some(timestamp) = timestamp {
            self.has_one_place((timestamp, id));
        }
    }

    /// A replica delivers a message for `groups` with this digest.
    pub fn on_delivered(&mut self, replica: usize, place: Place, groups: GroupSet, digest: u64) {
        let (group, id) = (self.logs[replica].group, place.1);
        self.delivered += 1;
        match self.sent.get(&id) {
            None => self.complain(format!("{id:?} was never sent")),
            Some(sent) if !sent.groups.contains(group) || sent.groups != groups => {
                self.complain(format!("{id:?} is not for {group:?}"));
            }
            Some(sent) if sent.digest != digest => {
                self.complain(format!("{id:?} is another message"));
            }
            Some(_) => {}
        }
        let last = self.logs[replica].delivered.last().copied();
        if last.is_some_and(|last| last >= place) {
            self.complain(format!("replica {replica} delivers {place:?} behind {last:?}"));
        }
        self.has_one_place(place);
        self.logs[replica].delivered.push(place);
    }

    fn has_one_place(&mut self, (timestamp, id): Place) {
        let known = *self.places.entry(id).or_insert(timestamp);
        if known != timestamp {
            self.complain(format!("{id:?} is at {timestamp:?} and at {known:?}"));
        }
    }

    /// A new life of a replica begins with the state of another one, or with nothing.
    pub fn on_joined(&mut self, replica: usize, from: Option<usize>) {
        let nothing = Log { group: self.logs[replica].group, delivered: Vec::new() };
        let new = from.map_or(nothing, |from| self.logs[from].clone());
        self.former.push(std::mem::replace(&mut self.logs[replica], new));
    }

    /// A member leads its group.
    pub fn on_leads(&mut self, group: GroupId, epoch: u32, member: ProcessId) {
        let known = *self.leaders.entry((group, epoch)).or_insert(member);
        if known != member {
            self.complain(format!("{group:?} has two leaders in epoch {epoch}"));
        }
    }

    /// How often anybody began to lead.
    pub fn elections(&self) -> usize {
        self.leaders.len()
    }

    /// A frame travels from `src` to `dst`: genuineness.
    pub fn on_frame(&mut self, src: ProcessId, dst: ProcessId, body: &Amcast) {
        let is_about_message = body.has(Amcast::MESSAGE);
        let groups = if is_about_message { body.groups } else { GroupSet::EMPTY.with(body.group) };
        let belongs = &self.belongs;
        let client = belongs.clients.get(body.id.client as usize).copied();
        let is_concerned = |process: ProcessId| {
            let of = belongs.of.get(process.index()).copied().unwrap_or_default();
            of.to_bits() & groups.to_bits() != 0
                || (is_about_message && client == Some(process))
                || (!is_about_message && belongs.coordinators.contains(&process))
        };
        if !is_concerned(src) || !is_concerned(dst) {
            self.complain(format!("{src:?} tells {dst:?} of {body:?}"));
        }
    }

    /// Uniform agreement: what any replica has delivered, even one that is gone, all have that
    /// live, in all groups that it is for; and who is gone has delivered the beginning of that.
    /// Answers what is wrong first, without counting it: before all is over it is lawful.
    pub fn disagreement(&self, is_alive: impl Fn(usize) -> bool) -> Option<String> {
        let mut orders: BTreeMap<GroupId, Vec<Place>> = BTreeMap::new();
        for (id, timestamp) in &self.places {
            let groups = self.sent.get(id).map_or(GroupSet::EMPTY, |sent| sent.groups);
            for group in groups.iter() {
                orders.entry(group).or_default().push((*timestamp, *id));
            }
        }
        orders.values_mut().for_each(|order| order.sort_unstable());
        let order = |group: GroupId| orders.get(&group).map_or(&[][..], Vec::as_slice);
        let gone = |log: &&Log| !order(log.group).starts_with(&log.delivered);
        for (replica, log) in self.logs.iter().enumerate() {
            let order = order(log.group);
            if is_alive(replica) && log.delivered != order {
                let (has, of) = (log.delivered.len(), order.len());
                return Some(format!("replica {replica} has delivered {has} of {of}, or others"));
            }
        }
        let dead = self.logs.iter().enumerate().filter(|(replica, _)| !is_alive(*replica));
        let first = dead.map(|(_, log)| log).chain(&self.former).find(gone)?;
        Some(format!("a replica of {:?} delivered, and died with, something else", first.group))
    }

    /// Validity, at the end: whatever a client that lives has sent is over, and what is over was
    /// delivered by every group that has a replica left. Answers what is wrong first.
    pub fn unheard(
        &self,
        is_client_alive: impl Fn(u32) -> bool,
        is_replica_alive: impl Fn(usize) -> bool,
    ) -> Option<String> {
        for (id, sent) in &self.sent {
            let is_over = self.over.contains(id);
            if is_client_alive(id.client) && !is_over {
                return Some(format!("{id:?} is not over"));
            }
            let has_replica =
                self.logs.iter().enumerate().any(|(replica, log)| {
                    sent.groups.contains(log.group) && is_replica_alive(replica)
                });
            if is_over && has_replica && !self.places.contains_key(id) {
                return Some(format!("{id:?} is over and nobody delivers it"));
            }
        }
        None
    }
}
