//! Checks of agreed multicast: uniform agreement, one total order for all groups, integrity,
//! validity, and genuineness (only processes concerned with a message take part in it). U in the
//! table of invariants of this crate.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, GroupId, GroupSet, LogicalTime, MessageId};

/// Number of violations kept as text; further ones are only counted.
const TEXTS_MAX: usize = 20;

/// A position in the total order.
type Place = (LogicalTime, MessageId);

/// The deliveries of a replica, over all incarnations that continued from another one's state.
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

/// The roles of processes, as far as the checker needs them.
#[derive(Clone, Debug, Default)]
pub struct Belongs {
    /// For each process: the groups that it orders or delivers for.
    pub of: Vec<GroupSet>,
    /// For each client number: its process.
    pub clients: Vec<ProcessId>,
    /// Processes that appoint leaders and take no part in messages.
    pub coordinators: Vec<ProcessId>,
}

/// Checks one history of agreed multicast. Knows no machine: it is fed with the events of clients,
/// replicas and leaders, and with frames.
#[derive(Clone, Debug)]
pub struct Agreed {
    belongs: Belongs,
    sent: BTreeMap<MessageId, Sent>,
    over: BTreeSet<MessageId>,
    places: BTreeMap<MessageId, LogicalTime>,
    /// For each replica.
    logs: Vec<Log>,
    /// Logs of incarnations that have ended.
    former: Vec<Log>,
    leaders: BTreeMap<(GroupId, u32), ProcessId>,
    texts: Vec<String>,
    wrong: u64,
    delivered: u64,
}

impl Agreed {
    /// Creates a checker with replicas of the given groups.
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

    /// Returns the number of violations.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Returns the first violations as text.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns the number of checked deliveries.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the number of messages sent.
    pub fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Records a violation found elsewhere.
    pub fn complain(&mut self, text: String) {
        self.wrong += 1;
        if self.texts.len() < TEXTS_MAX {
            self.texts.push(text);
        }
    }

    /// Handles the submission of a message with this digest by a client.
    pub fn on_sent(&mut self, id: MessageId, groups: GroupSet, digest: u64) {
        if self.sent.insert(id, Sent { groups, digest }).is_some() {
            self.complain(format!("client sent {id:?} twice"));
        }
    }

    /// Handles the completion of a message at its client, with its position in the order if known.
    pub fn on_over(&mut self, id: MessageId, timestamp: Option<LogicalTime>) {
        self.over.insert(id);
        if let Some(timestamp) = timestamp {
            self.has_one_place((timestamp, id));
        }
    }

    /// Handles the delivery of a message for `groups` with this digest at a replica.
    pub fn on_delivered(&mut self, replica: usize, place: Place, groups: GroupSet, digest: u64) {
        let (group, id) = (self.logs[replica].group, place.1);
        self.delivered += 1;
        match self.sent.get(&id) {
            None => self.complain(format!("{id:?} was delivered but never sent")),
            Some(sent) if !sent.groups.contains(group) || sent.groups != groups => {
                self.complain(format!("{id:?} was delivered in {group:?}, or for other groups"));
            }
            Some(sent) if sent.digest != digest => {
                self.complain(format!("{id:?} was delivered with another payload"));
            }
            Some(_) => {}
        }
        let last = self.logs[replica].delivered.last().copied();
        if last.is_some_and(|last| last >= place) {
            self.complain(format!("replica {replica} delivered {place:?} after {last:?}"));
        }
        self.has_one_place(place);
        self.logs[replica].delivered.push(place);
    }

    fn has_one_place(&mut self, (timestamp, id): Place) {
        let known = *self.places.entry(id).or_insert(timestamp);
        if known != timestamp {
            self.complain(format!("{id:?} has timestamps {timestamp:?} and {known:?}"));
        }
    }

    /// Starts a new incarnation of a replica with the state of another replica, or with none.
    pub fn on_joined(&mut self, replica: usize, from: Option<usize>) {
        let nothing = Log { group: self.logs[replica].group, delivered: Vec::new() };
        let new = from.map_or(nothing, |from| self.logs[from].clone());
        self.former.push(std::mem::replace(&mut self.logs[replica], new));
    }

    /// Handles the start of a member's leadership of its group.
    pub fn on_leads(&mut self, group: GroupId, epoch: u32, member: ProcessId) {
        let known = *self.leaders.entry((group, epoch)).or_insert(member);
        if known != member {
            self.complain(format!("{group:?} has two leaders in epoch {epoch}"));
        }
    }

    /// Returns the number of leaderships seen.
    pub fn elections(&self) -> usize {
        self.leaders.len()
    }

    /// Checks genuineness: a frame from `src` to `dst` must concern both.
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
            self.complain(format!("{src:?} sends {dst:?}, which is not concerned, {body:?}"));
        }
    }

    /// Checks uniform agreement: all live replicas have delivered, in every group of a message,
    /// what any replica has delivered, crashed ones included; a crashed replica has delivered a
    /// prefix. Returns the first violation without recording it, because disagreement is allowed
    /// until the run has quiesced.
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
                return Some(format!(
                    "replica {replica} delivered {has} of {of} messages, or others"
                ));
            }
        }
        let dead = self.logs.iter().enumerate().filter(|(replica, _)| !is_alive(*replica));
        let first = dead.map(|(_, log)| log).chain(&self.former).find(gone)?;
        Some(format!("a crashed replica of {:?} had delivered other messages", first.group))
    }

    /// Checks validity at the end of a run: every message of a live client is completed, and every
    /// completed message was delivered by each of its groups that has a live replica. Returns the
    /// first violation.
    pub fn unheard(
        &self,
        is_client_alive: impl Fn(u32) -> bool,
        is_replica_alive: impl Fn(usize) -> bool,
    ) -> Option<String> {
        for (id, sent) in &self.sent {
            let is_over = self.over.contains(id);
            if is_client_alive(id.client) && !is_over {
                return Some(format!("{id:?} has not completed at its client"));
            }
            let has_replica =
                self.logs.iter().enumerate().any(|(replica, log)| {
                    sent.groups.contains(log.group) && is_replica_alive(replica)
                });
            if is_over && has_replica && !self.places.contains_key(id) {
                return Some(format!("{id:?} has completed, but no replica delivered it"));
            }
        }
        None
    }
}
