//! A store starts with all its replicas, and goes on with those that catch up.

use std::collections::BTreeMap;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::{Decision, Exact, Placement, Replica, ReplicaOptions, Start, State};
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

struct Node {
    session: u64,
    start: Start,
    replica: Option<Replica<Nothing>>,
}

impl Node {
    fn new(process: u32, session: u64) -> Self {
        let placement = Placement::consecutive(0, 2, 2).expect("two replicas of each shard");
        let start = Start::new(ProcessId(process), session, &placement, 10);
        Self { session, start, replica: None }
    }

    fn is_open(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::is_open)
    }

    fn poll(&mut self, now: Mono) -> Vec<(ProcessId, bool, Vec<u8>)> {
        let mut messages = Vec::new();
        loop {
            let of_start = self.start.poll_scattering(now);
            let sent = of_start.or_else(|| self.replica.as_mut()?.poll_scattering(now));
            let Some(sent) = sent else { return messages };
            let is_reliable = sent.is_reliable;
            messages.extend(sent.messages.into_iter().map(|(to, bytes)| (to, is_reliable, bytes)));
        }
    }

    /// Creates the replica once it is decided how.
    fn begin(&mut self, process: u32) {
        let Some(decision) = self.start.decision().filter(|_| self.replica.is_none()) else {
            return;
        };
        let own = (ProcessId(process), self.session);
        let founders = match decision {
            Decision::Begin(founders) => {
                assert!(founders.contains(&own), "it is a founder");
                founders
            }
            Decision::CatchUp(founders) => {
                assert!(!founders.contains(&own), "it is no founder");
                founders
            }
        };
        let mut replica = Replica::new(0, Nothing, ReplicaOptions::default());
        replica.set_founders(self.session, founders.clone());
        self.replica = Some(replica);
    }
}

/// A message in flight: when it arrives, sender, receiver, the receiver's session, whether it is of
/// the reliable service.
type InFlight = (usize, u32, u32, u64, bool, Vec<u8>);

#[derive(Default)]
struct Env {
    nodes: BTreeMap<u32, Node>,
    in_flight: Vec<InFlight>,
    /// The founders of the store, once a client may use it.
    opened: Option<Vec<(ProcessId, u64)>>,
}

impl Env {
    /// Lets a process start or send. Bits of `lost`: the receivers that get nothing, and the delay.
    fn step(&mut self, time: usize, process: u32, starts_again: bool, lost: u8) {
        if starts_again || !self.nodes.contains_key(&process) {
            self.nodes.insert(process, Node::new(process, time as u64));
        }
        let node = self.nodes.get_mut(&process).expect("it was started");
        for (to, is_reliable, payload) in node.poll(Mono::from_ns(20 * time as u64)) {
            if let Some(receiver) =
                self.nodes.get(&to.0).filter(|_| is_reliable || lost >> to.0 & 1 == 0)
            {
                let at = time + if is_reliable { 0 } else { usize::from(lost >> 4) };
                self.in_flight.push((at, process, to.0, receiver.session, is_reliable, payload));
            }
        }
        let due = self.in_flight.extract_if(.., |(at, ..)| *at <= time);
        for (_, from, to, session, is_reliable, payload) in due {
            let Some(node) = self.nodes.get_mut(&to).filter(|node| node.session == session) else {
                continue;
            };
            if !node.start.on_message(ProcessId(from), &payload)
                && let Some(replica) = &mut node.replica
            {
                let at = Timestamp::from_ns(time as u64);
                replica.on_message(is_reliable, at, ProcessId(from), &payload);
            }
            node.begin(to);
        }
        self.check();
    }

    /// Checks that no node begins or is open with other founders than the first open one.
    fn check(&mut self) {
        if self.nodes.values().all(|node| node.start.decision().is_none()) {
            // All that had begun have ended: this store is gone.
            self.opened = None;
        }
        for node in self.nodes.values() {
            if let Some(Decision::Begin(founders)) = node.start.decision()
                && node.is_open()
            {
                assert_eq!(self.opened.get_or_insert_with(|| founders.clone()), founders);
            }
        }
        let Some(opened) = &self.opened else { return };
        for node in self.nodes.values() {
            if let Some(Decision::Begin(founders)) = node.start.decision() {
                assert_eq!(opened, founders);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whatever is lost, and whichever process starts again: all begin with the same founders, and
    /// an incarnation that is no founder catches up.
    #[test]
    fn all_begin_alike(
        steps in proptest::collection::vec((0..4_u32, 0..25_u8, any::<u8>()), 0..200),
    ) {
        let mut env = Env::default();
        let lossless = (0..400).map(|step| (step % 4, 1, 0));
        for (time, (process, action, lost)) in steps.into_iter().chain(lossless).enumerate() {
            env.step(time, process, action == 0, lost);
        }
        for (process, node) in &env.nodes {
            prop_assert!(node.replica.is_some(), "{process}: {:?}", node.start);
            let is_founder = matches!(node.start.decision(), Some(Decision::Begin(_)));
            prop_assert!(node.is_open() || !is_founder, "{process}: {:?}", node.start);
        }
    }
}
