//! Clients of rivals in a network that loses and reorders datagrams: calls are linearizable, and
//! followers end with the bytes of their leader.

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_history::{MapCall, MapOperation, map_linearizability};
use onepipe_memory::{MemoryOwner, OwnerOptions, Region, RegionId, Request, Rights};
use onepipe_table::{Layout, Leader, Outcome, RivalClient, RivalOptions};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const CLIENTS: usize = 3;
const KEYS: u64 = 20;
const SHARD: RegionId = RegionId(0);
const STEPS: usize = 3_000;
const DRAIN_STEPS: usize = 50_000;

struct Replica {
    owner: MemoryOwner,
    arrivals: u64,
    program: Leader,
}

struct Rivals {
    random: Xoshiro256PlusPlus,
    now_ns: u64,
    replicas: Vec<Replica>,
    clients: Vec<RivalClient>,
    open: Vec<Option<usize>>,
    calls: Vec<MapCall>,
    events: usize,
    /// Sender, receiver and payload.
    datagrams: Vec<(ProcessId, ProcessId, Vec<u8>)>,
    loss_percent: u32,
}

fn run(seed: u64, replicas: usize) {
    let layout = Layout { shards: 1, buckets: 2, nodes: 60, value_len: 8 };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let asks_leader = replicas > 1 || random.random_range(0..2) == 0;
    let options = RivalOptions { asks_leader, timeout_ns: 2_000, reserved: 2 };
    let ids: Vec<ProcessId> = (0..replicas as u32).map(ProcessId).collect();
    let replica = |me: &ProcessId| {
        let mut owner = MemoryOwner::new(OwnerOptions::default());
        let region = Region::new(layout.empty_shard(), Rights::all());
        owner.register(SHARD, region).expect("once");
        Replica { owner, arrivals: 0, program: Leader::new(layout, (0, 0), *me, &ids, 2_000) }
    };
    let mut rivals = Rivals {
        random,
        now_ns: 1_000,
        replicas: ids.iter().map(replica).collect(),
        clients: (0..CLIENTS).map(|_| RivalClient::new(1, layout, vec![ids[0]], options)).collect(),
        open: vec![None; CLIENTS],
        calls: Vec::new(),
        events: 0,
        datagrams: Vec::new(),
        loss_percent: 10,
    };
    for _ in 0..STEPS {
        rivals.step(true);
    }
    rivals.loss_percent = 0;
    for _ in 0..DRAIN_STEPS {
        if rivals.open.iter().all(Option::is_none) && rivals.datagrams.is_empty() {
            break;
        }
        rivals.step(false);
    }
    assert!(rivals.open.iter().all(Option::is_none), "seed {seed}: calls do not end");
    assert!(rivals.calls.len() > 20, "seed {seed} has {} calls", rivals.calls.len());
    let regions: Vec<&[u8]> = rivals
        .replicas
        .iter()
        .map(|replica| replica.owner.region(SHARD).expect("registered").bytes())
        .collect();
    assert!(regions.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: replicas differ");
    assert!(layout.content(regions[0]).is_some(), "seed {seed}: a list is damaged");
    let verdict = map_linearizability(&rivals.calls);
    assert!(verdict.is_valid(), "seed {seed}, {replicas} replicas: {verdict}");
}

impl Rivals {
    fn step(&mut self, calls: bool) {
        self.now_ns += self.random.random_range(1..50);
        let now = Mono::from_ns(self.now_ns);
        let client = self.random.random_range(0..CLIENTS);
        match self.random.random_range(0..8) {
            0 if calls && self.open[client].is_none() => self.call(now, client),
            0..2 => {
                self.clients[client].handle_timeout(now);
                self.replicas.iter_mut().for_each(|replica| replica.program.handle_timeout(now));
            }
            _ => self.deliver(now),
        }
        self.poll(now);
    }

    fn call(&mut self, now: Mono, client: usize) {
        let key = self.random.random_range(0..KEYS);
        let value = self.calls.len() as i64;
        let operation = match self.random.random_range(0..2) {
            0 => {
                self.clients[client].look_up(key);
                MapOperation::LookUp(None)
            }
            _ => {
                self.clients[client].insert(now, key, &value.to_le_bytes());
                MapOperation::Insert(value, None)
            }
        };
        self.open[client] = Some(self.calls.len());
        self.calls.push(MapCall { key, operation, begins: self.events, ends: None });
        self.events += 1;
    }

    fn deliver(&mut self, now: Mono) {
        if self.datagrams.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.datagrams.len());
        let (from, to, payload) = self.datagrams.swap_remove(index);
        if self.random.random_range(0..100) < self.loss_percent {
            return;
        }
        let Some(replica) = self.replicas.get_mut(to.index()) else {
            let client = to.index() - self.replicas.len();
            return self.clients[client].on_message(now, from, &payload);
        };
        if Request::is_request(&payload) {
            replica.arrivals += 1;
            let at = Timestamp::from_ns(replica.arrivals);
            replica.owner.on_message(true, at, from, &payload);
        } else {
            let region = replica.owner.region_mut(SHARD).expect("registered");
            replica.program.on_message(now, from, &payload, region.bytes_mut());
        }
    }

    fn poll(&mut self, now: Mono) {
        let replicas = self.replicas.len();
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let me = ProcessId(index as u32);
            while let Some(reply) = replica.owner.poll_reply() {
                self.datagrams.push((me, reply.to, reply.payload));
            }
            while let Some((to, payload)) = replica.program.poll_message() {
                self.datagrams.push((me, to, payload));
            }
        }
        for client in 0..CLIENTS {
            while let Some((to, payload)) = self.clients[client].poll_message(now) {
                self.datagrams.push((ProcessId((replicas + client) as u32), to, payload));
            }
            while let Some(finished) = self.clients[client].poll_finished() {
                let call = self.open[client].take().expect("a call is in flight");
                let outcome = finished.outcome.expect("no call fails");
                let operation = match (self.calls[call].operation, outcome) {
                    (MapOperation::LookUp(_), Outcome::Found(value)) => {
                        let word = value.first_chunk().expect("8 bytes");
                        MapOperation::LookUp(Some(i64::from_le_bytes(*word)))
                    }
                    (MapOperation::Insert(value, _), outcome) => {
                        MapOperation::Insert(value, Some(outcome == Outcome::Inserted))
                    }
                    (operation, _) => operation,
                };
                self.calls[call].operation = operation;
                self.calls[call].ends = Some(self.events);
                self.events += 1;
            }
        }
    }
}

#[test]
fn calls_of_rivals_are_linearizable() {
    for seed in 0..120 {
        run(seed, 1 + seed as usize % 3);
    }
}
