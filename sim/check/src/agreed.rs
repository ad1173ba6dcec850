//! Checks of agreed multicast: uniform agreement, one total order for all groups, integrity,
//! validity, and genuineness (only processes concerned with a message take part in it). U in the
//! table of invariants of this crate.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::ProcessId;
use onepipe_wire::{Amcast, GroupId, GroupSet, LogicalTime, MessageId};

/// Number of violations kept as text; further ones are only counted.
const DESCRIPTIONS_MAX: usize = 20;

/// A position in the total order.
type Position = (LogicalTime, MessageId);

/// The deliveries of a replica, over all incarnations that continued from another one's state.
#[derive(Clone, Debug)]
struct Log {
    group: GroupId,
    delivered: Vec<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    groups: GroupSet,
    digest: u64,
}

/// The roles of processes, as far as the checker needs them.
#[derive(Clone, Debug, Default)]
pub struct Membership {
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
pub struct AgreedChecker {
    membership: Membership,
    sent: BTreeMap<MessageId, Sent>,
    completed: BTreeSet<MessageId>,
    timestamps: BTreeMap<MessageId, LogicalTime>,
    /// For each replica.
    logs: Vec<Log>,
    /// Logs of incarnations that have ended.
    previous: Vec<Log>,
    leaders: BTreeMap<(GroupId, u32), ProcessId>,
    descriptions: Vec<String>,
    violations: u64,
    delivered: u64,
}

impl AgreedChecker {
    /// Creates a checker with replicas of the given groups.
    pub fn new(membership: Membership, replicas: impl IntoIterator<Item = GroupId>) -> Self {
        let log = |group| Log { group, delivered: Vec::new() };
        Self {
            membership,
            sent: BTreeMap::new(),
            completed: BTreeSet::new(),
            timestamps: BTreeMap::new(),
            logs: replicas.into_iter().map(log).collect(),
            previous: Vec::new(),
            leaders: BTreeMap::new(),
            descriptions: Vec::new(),
            violations: 0,
            delivered: 0,
        }
    }

    /// Returns the number of violations.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// Returns the first violations as text.
    pub fn descriptions(&self) -> &[String] {
        &self.descriptions
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
    pub fn add_violation(&mut self, text: String) {
        self.violations += 1;
        if self.descriptions.len() < DESCRIPTIONS_MAX {
            self.descriptions.push(text);
        }
    }

    /// Handles the submission of a message with this digest by a client.
    pub fn on_sent(&mut self, id: MessageId, groups: GroupSet, digest: u64) {
        if self.sent.insert(id, Sent { groups, digest }).is_some() {
            self.add_violation(format!("client sent {id:?} twice"));
        }
    }

    /// Handles the completion of a message at its client, with its position in the order if known.
    pub fn on_completed(&mut self, id: MessageId, timestamp: Option<LogicalTime>) {
        self.completed.insert(id);
        if let Some(timestamp) = timestamp {
            self.check_position((timestamp, id));
        }
    }

    /// Handles the delivery of a message for `groups` with this digest at a replica.
    pub fn on_delivered(
        &mut self,
        replica: usize,
        position: Position,
        groups: GroupSet,
        digest: u64,
    ) {
        let (group, id) = (self.logs[replica].group, position.1);
        self.delivered += 1;
        match self.sent.get(&id) {
            None => self.add_violation(format!("{id:?} was delivered but never sent")),
            Some(sent) if !sent.groups.contains(group) || sent.groups != groups => {
                self.add_violation(format!(
                    "{id:?} was delivered in {group:?}, or for other groups"
                ));
            }
            Some(sent) if sent.digest != digest => {
                self.add_violation(format!("{id:?} was delivered with another payload"));
            }
            Some(_) => {}
        }
        let last = self.logs[replica].delivered.last().copied();
        if last.is_some_and(|last| last >= position) {
            self.add_violation(format!("replica {replica} delivered {position:?} after {last:?}"));
        }
        self.check_position(position);
        self.logs[replica].delivered.push(position);
    }

    fn check_position(&mut self, (timestamp, id): Position) {
        let known = *self.timestamps.entry(id).or_insert(timestamp);
        if known != timestamp {
            self.add_violation(format!("{id:?} has timestamps {timestamp:?} and {known:?}"));
        }
    }

    /// Starts a new incarnation of a replica with the state of another replica, or with none.
    pub fn on_joined(&mut self, replica: usize, from: Option<usize>) {
        let nothing = Log { group: self.logs[replica].group, delivered: Vec::new() };
        let new = from.map_or(nothing, |from| self.logs[from].clone());
        self.previous.push(std::mem::replace(&mut self.logs[replica], new));
    }

    /// Handles the start of a member's leadership of its group.
    pub fn on_leader(&mut self, group: GroupId, epoch: u32, member: ProcessId) {
        let known = *self.leaders.entry((group, epoch)).or_insert(member);
        if known != member {
            self.add_violation(format!("{group:?} has two leaders in epoch {epoch}"));
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
        let membership = &self.membership;
        let client = membership.clients.get(body.id.client as usize).copied();
        let is_concerned = |process: ProcessId| {
            let of = membership.of.get(process.index()).copied().unwrap_or_default();
            of.to_bits() & groups.to_bits() != 0
                || (is_about_message && client == Some(process))
                || (!is_about_message && membership.coordinators.contains(&process))
        };
        if !is_concerned(src) || !is_concerned(dst) {
            self.add_violation(format!("{src:?} sends {dst:?}, which is not concerned, {body:?}"));
        }
    }

    /// Checks uniform agreement: all live replicas have delivered, in every group of a message,
    /// what any replica has delivered, crashed ones included; a crashed replica has delivered a
    /// prefix. Returns the first violation without recording it, because disagreement is allowed
    /// until the run has quiesced.
    pub fn disagreement(&self, is_alive: impl Fn(usize) -> bool) -> Option<String> {
        let mut orders: BTreeMap<GroupId, Vec<Position>> = BTreeMap::new();
        for (id, timestamp) in &self.timestamps {
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
        let first = dead.map(|(_, log)| log).chain(&self.previous).find(gone)?;
        Some(format!("a crashed replica of {:?} had delivered other messages", first.group))
    }

    /// Checks validity at the end of a run: every message of a live client is completed, and every
    /// completed message was delivered by each of its groups that has a live replica. Returns the
    /// first violation.
    pub fn undelivered(
        &self,
        is_client_alive: impl Fn(u32) -> bool,
        is_replica_alive: impl Fn(usize) -> bool,
    ) -> Option<String> {
        for (id, sent) in &self.sent {
            let is_completed = self.completed.contains(id);
            if is_client_alive(id.client) && !is_completed {
                return Some(format!("{id:?} has not completed at its client"));
            }
            let has_replica =
                self.logs.iter().enumerate().any(|(replica, log)| {
                    sent.groups.contains(log.group) && is_replica_alive(replica)
                });
            if is_completed && has_replica && !self.timestamps.contains_key(id) {
                return Some(format!("{id:?} has completed, but no replica delivered it"));
            }
        }
        None
    }
}
