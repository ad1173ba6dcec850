//! A store starts with all its replicas, whose logs complete each other, and goes on with those
//! that catch up.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::{
    Exact, LogSummary, OwnLog, Phase, Placement, Record, Replica, ReplicaOptions, Request,
    RequestKind, Role, Start, State,
};
use proptest::prelude::*;

#[derive(Debug, Default)]
struct Nothing;

impl State for Nothing {
    fn execute(&mut self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) {}

    fn read(&self, _: Timestamp, _: &[u8], _: &mut Vec<u8>) -> Exact {
        Exact { from: None, until: None }
    }

    fn digest(&self) -> u64 {
        0
    }

    fn save(&self, _: &mut Vec<u8>) {}

    fn load(&mut self, _: &[u8]) -> bool {
        true
    }
}

/// Two replicas of each of two shards.
const PROCESSES: u32 = 4;
/// Steps after which nothing is lost any more.
const STEPS_WITH_FAULTS: usize = 200;
/// Time of a step.
const STEP_NS: u64 = 1_000;

fn shard_of(process: u32) -> u16 {
    (process / 2) as u16
}

/// Returns the record of a write to some of the shards.
fn record(index: usize, is_of_shard: [bool; 2]) -> Record {
    let (kind, session, attempt, finished, view) = (RequestKind::Write, 1, 0, 0, None);
    let number = index as u64;
    let parts = (0..2).filter(|shard| is_of_shard[usize::from(*shard)]);
    let parts = parts.map(|shard| (shard, &b"part"[..])).collect();
    let mut request = Vec::new();
    Request { kind, session, number, attempt, finished, view, parts }.write(&mut request);
    let at = Timestamp::from_ns(index as u64 + 1);
    Record { number: 0, at, from: ProcessId(9), request, members: None }
}

/// What the disk of a process holds.
type Disk = Vec<Record>;

fn own_log(process: u32, disk: &Disk) -> OwnLog {
    let last = disk.last().map(Record::position);
    let summary = LogSummary { last, ..LogSummary::empty(shard_of(process)) };
    OwnLog { summary, records: disk.clone() }
}

/// An event of the reliable service, which all processes see in one order.
#[derive(Clone, Debug)]
enum Ordered {
    Delivered(ProcessId, Vec<u8>),
    Ended(ProcessId),
}

struct Node {
    /// When the incarnation has started: its first session.
    started: u64,
    start: Start,
    /// What is to be delivered, with its timestamps.
    ordered: VecDeque<(u64, Ordered)>,
    /// The replica, once the store is open, and the replica has the state.
    replica: Option<Replica<Nothing>>,
}

impl Node {
    fn new(process: u32, session: u64, disk: &Disk) -> Self {
        let placement = Placement::consecutive(0, 2, 2).expect("two replicas of each shard");
        let own = own_log(process, disk);
        let start = Start::new(ProcessId(process), session, &placement, own, STEP_NS);
        Self { started: session, start, ordered: VecDeque::new(), replica: None }
    }

    fn poll(&mut self, now: Mono) -> Vec<(ProcessId, bool, Vec<u8>)> {
        let mut messages = Vec::new();
        loop {
            let sent = match &mut self.replica {
                Some(replica) => replica.poll_scattering(now),
                None => self.start.poll_scattering(now),
            };
            let Some(sent) = sent else { return messages };
            let is_reliable = sent.is_reliable;
            messages.extend(sent.messages.into_iter().map(|(to, bytes)| (to, is_reliable, bytes)));
        }
    }

    /// Delivers all ordered events below `until`.
    fn deliver(&mut self, until: u64) {
        while let Some((at, event)) = self.ordered.pop_front_if(|(at, _)| *at < until) {
            let at = Timestamp::from_ns(at);
            match event {
                Ordered::Delivered(from, payload) => self.on_message(true, at, from, &payload),
                Ordered::Ended(process) => self.start.on_process_ended(process, at),
            }
        }
        self.start.on_barrier(Timestamp::from_ns(until));
    }

    fn on_message(&mut self, is_reliable: bool, at: Timestamp, from: ProcessId, payload: &[u8]) {
        match &mut self.replica {
            Some(replica) => replica.on_message(is_reliable, at, from, payload),
            None => assert!(self.start.on_message(is_reliable, at, from, payload)),
        }
    }

    /// Completes the log by at most two records, and begins to serve once the store is open.
    fn advance(&mut self, disk: &mut Disk, has_peer: bool) {
        match self.start.phase() {
            Phase::Founds(Some(Role::Complete { .. })) => {
                for _ in 0..2 {
                    disk.extend(self.start.next_missing());
                }
                if self.start.is_log_complete() {
                    self.start.set_ready();
                }
            }
            Phase::Joins if !has_peer => {}
            Phase::Opened(..) | Phase::Joins if self.replica.is_none() => {
                let mut replica = Replica::new(0, Nothing, ReplicaOptions::default());
                replica.set_founders(self.start.session(), self.start.founders());
                self.replica = Some(replica);
            }
            _ => {}
        }
    }
}

/// A message of best effort: when it arrives, sender, receiver, payload.
type InFlight = (usize, u32, u32, Vec<u8>);

struct Env {
    nodes: BTreeMap<u32, Node>,
    disks: BTreeMap<u32, Disk>,
    in_flight: Vec<InFlight>,
}

impl Env {
    fn new(writes: &[([bool; 2], [u8; PROCESSES as usize])]) -> Self {
        let all: Vec<Record> =
            writes.iter().enumerate().map(|(index, (shards, _))| record(index, *shards)).collect();
        // A disk lacks a suffix of what its shard has executed.
        let disk = |process: u32| {
            let is_lost = |(_, (_, lost)): &(_, &([bool; 2], [u8; 4]))| lost[process as usize] == 0;
            let records = all.iter().zip(writes).take_while(|one| !is_lost(one));
            let own = records.map(|(record, _)| record);
            (process, own.filter(|one| one.concerns(shard_of(process))).cloned().collect())
        };
        let disks: BTreeMap<u32, Disk> = (0..PROCESSES).map(disk).collect();
        Self { nodes: BTreeMap::new(), disks, in_flight: Vec::new() }
    }

    /// Lets a process start again with a new disk: what only the old one had is lost.
    fn replace_disk(&mut self, process: u32) {
        self.disks.insert(process, Disk::new());
    }

    /// Lets a process start or send. Bits of `faults`: the receivers that get nothing, and the
    /// delay, also of what is delivered to the process in order. Returns the processes that have to
    /// start again.
    fn step(&mut self, time: usize, process: u32, starts_again: bool, faults: u8) -> Vec<u32> {
        let mut lost = Vec::new();
        let now = time as u64 * STEP_NS;
        if starts_again || !self.nodes.contains_key(&process) {
            let ended = self.nodes.insert(process, Node::new(process, now, &self.disks[&process]));
            for (_, node) in self.nodes.iter_mut().filter(|(id, _)| **id != process) {
                if ended.is_some() {
                    node.ordered.push_back((now, Ordered::Ended(ProcessId(process))));
                }
            }
            self.in_flight.retain(|(_, _, to, _)| *to != process);
        }
        let node = self.nodes.get_mut(&process).expect("it was started");
        let delay = usize::from(faults >> 4);
        node.deliver(now.saturating_sub(delay as u64 * STEP_NS));
        for (to, is_reliable, payload) in node.poll(Mono::from_ns(now)) {
            if is_reliable {
                if let Some(receiver) = self.nodes.get_mut(&to.0) {
                    let event = Ordered::Delivered(ProcessId(process), payload);
                    receiver.ordered.push_back((now, event));
                }
            } else if faults >> to.0 & 1 == 0 {
                self.in_flight.push((time + delay, process, to.0, payload));
            }
        }
        for (_, from, to, payload) in self.in_flight.extract_if(.., |(at, ..)| *at <= time) {
            if let Some(node) = self.nodes.get_mut(&to) {
                node.on_message(false, Timestamp::from_ns(now), ProcessId(from), &payload);
            }
        }
        let has_peer = self.nodes.values().any(|node| node.replica.is_some());
        for (process, node) in &mut self.nodes {
            let disk = self.disks.get_mut(process).expect("each has one");
            node.advance(disk, has_peer);
            if node.start.phase() == Phase::Joins && !has_peer {
                // All that had the state have ended.
                lost.push(*process);
            }
        }
        self.check();
        lost
    }

    /// Checks that all nodes that serve do so with the same founders, and that none which has taken
    /// part in the founding has to catch up: others may need its state.
    fn check(&self) {
        for (process, node) in &self.nodes {
            let is_own = |(founder, session): &(ProcessId, u64)| {
                *founder == ProcessId(*process) && *session >= node.started
            };
            let has_founded = node.start.founders().iter().any(is_own);
            assert!(node.start.phase() != Phase::Joins || !has_founded, "{process}");
        }
        let serving = self.nodes.values().filter(|node| node.replica.is_some());
        let founders: Vec<_> = serving.map(|node| node.start.founders()).collect();
        assert!(founders.windows(2).all(|pair| pair[0] == pair[1]), "{founders:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whatever is lost, and whichever process starts again, some with a new disk: all serve with
    /// the same founders, whose logs have all that any of them has.
    #[test]
    fn all_begin_alike(
        writes in proptest::collection::vec((any::<[bool; 2]>(), any::<[u8; 4]>()), 0..20),
        steps in proptest::collection::vec((0..PROCESSES, 0..25_u8, any::<u8>()), 0..200),
    ) {
        let mut env = Env::new(&writes);
        let steps = steps.into_iter().take(STEPS_WITH_FAULTS);
        let lossless = (0..400).map(|step| (step % PROCESSES, 2, 0));
        let mut lost: Vec<u32> = Vec::new();
        for (time, (process, action, faults)) in steps.chain(lossless).enumerate() {
            let process = lost.last().copied().unwrap_or(process);
            let starts_again = action <= 1 && time < STEPS_WITH_FAULTS || lost.pop().is_some();
            if action == 1 && time < STEPS_WITH_FAULTS {
                env.replace_disk(process);
            }
            lost.extend(env.step(time + 1, process, starts_again, faults));
            lost.sort_unstable();
            lost.dedup();
        }
        let completed = |(_, node): &(&u32, &Node)| {
            matches!(node.start.phase(), Phase::Opened(_, Role::Complete { .. }))
        };
        let founders: Vec<u32> = env.nodes.iter().filter(completed).map(|(id, _)| *id).collect();
        let held: BTreeMap<_, &Record> = founders
            .iter()
            .flat_map(|process| &env.disks[process])
            .map(|record| (record.position(), record))
            .collect();
        for (process, node) in &env.nodes {
            prop_assert!(node.replica.is_some(), "{process}: {:?}", node.start);
            if founders.contains(process) {
                let is_own = |record: &&&Record| record.concerns(shard_of(*process));
                let expected = held.values().filter(is_own).copied();
                prop_assert!(expected.eq(&env.disks[process]), "{process}");
            }
        }
    }
}
