//! Mutation test: each seeded mistake of the store is detected, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

use onepipe_base::mistake::{Mistake, choose};
use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_kv::{Command, Plan, Store, Value, shard_of};
use onepipe_transaction::{
    Client, ClientOptions, Kind, Placement, ReadMode, Replica, ReplicaOptions,
};

const SHARDS: u16 = 2;
const CLIENT: ProcessId = ProcessId(2);
/// Keys of the two shards.
const KEYS: [&str; 2] = ["a", "b"];
const MS: u64 = 1_000_000;

fn at(ns: u64) -> Timestamp {
    Timestamp::from_ns(ns)
}

fn plan(line: &str) -> Plan {
    let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    Plan::new(&[Command::parse(&words).expect("a command")], SHARDS)
}

/// Two replicas, one of each shard, and a client.
struct Fabric {
    replicas: [Replica<Store>; 2],
    client: Client,
    sent: u64,
}

impl Fabric {
    fn new() -> Self {
        assert_ne!(shard_of(KEYS[0].as_bytes(), SHARDS), shard_of(KEYS[1].as_bytes(), SHARDS));
        let replica = |shard| Replica::new(shard, Store::default(), ReplicaOptions::default());
        let placement = Placement::consecutive(0, SHARDS, 1).expect("small numbers");
        let client = Client::new(1, placement, ClientOptions::default());
        Self { replicas: [replica(0), replica(1)], client, sent: 0 }
    }

    /// Executes a transaction that is sent at `now`. The commit barriers of the replicas are those
    /// in each attempt. Returns the reply, unless no attempt was exact.
    fn execute(&mut self, kind: Kind, plan: &Plan, now: u64, barriers: &[[u64; 2]]) -> Vec<Value> {
        self.client.submit(kind, plan.parts().to_vec()).expect("few are open");
        for barriers in barriers {
            let scattering = self.client.poll_scattering(Mono::from_ns(now), Some(at(now)));
            let Some(scattering) = scattering else { break };
            self.sent += 1;
            self.client.on_submitted(&scattering, ScatteringId(self.sent));
            for (to, payload) in &scattering.messages {
                let replica = &mut self.replicas[to.index()];
                let barrier = at(barriers[to.index()]);
                // A read finds the barrier passed; a write passes it.
                if !scattering.is_reliable {
                    replica.on_barrier(barrier);
                }
                replica.on_message(scattering.is_reliable, at(now), CLIENT, payload);
                replica.on_barrier(barrier);
                while let Some(reply) = replica.poll_reply() {
                    self.client.on_message(Mono::from_ns(now), *to, &reply.payload);
                }
            }
        }
        let finished = self.client.poll_finished().expect("the last attempt is exact");
        let committed = finished.outcome.expect("all replicas are up");
        let results: Vec<(u16, &[u8])> =
            committed.results.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
        plan.replies(&results).expect("the results are those of the plan")
    }
}

/// Two keys expire at once. Returns whether a snapshot, which the replicas answer on either side of
/// that time, has one of them.
fn is_fractured() -> bool {
    let mut fabric = Fabric::new();
    for key in KEYS {
        let set = plan(&format!("SET {key} 1 PXAT 5"));
        fabric.execute(Kind::Write, &set, 10, &[[11, 11]]);
    }
    let read = plan("MGET a b");
    let barriers = [[7 * MS, 4 * MS], [7 * MS, 7 * MS]];
    let found = fabric.execute(Kind::Read(ReadMode::Snapshot), &read, 4 * MS, &barriers);
    let Value::Array(values) = &found[0] else { panic!("{found:?}") };
    values[0] != values[1]
}

#[test]
fn detects_every_mistake_and_no_false_positive() {
    assert!(!is_fractured(), "without a mistake");
    for mistake in Mistake::of_stores() {
        choose(Some(*mistake));
        let is_detected = is_fractured();
        choose(None);
        assert!(is_detected, "{} is not detected", mistake.title());
    }
}
