//! A model of the fabric with replicas of a table and its clients, in which messages take any time.
//!
//! In a third of the runs the shard has one replica, and its requests are best effort. Reliable
//! requests are delivered to each replica in the order of their timestamps, others and replies in
//! any order, and some are lost. Each replica's commit barrier rises in steps of its
//! own.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_history::{MapCall, MapOperation, map_linearizability};
use onepipe_memory::{ClientOptions, MemoryOwner, OwnerOptions, Region, RegionId, Reply, Rights};
use onepipe_table::{Layout, OperationId, Outcome, TableClient, TableOptions};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const REPLICAS_MAX: usize = 2;
const CLIENTS: usize = 4;
const KEYS: u64 = 6;
const VALUE_LEN: u32 = 16;
/// Steps of a run with losses, and in which all calls must end without.
const STEPS: usize = 10_000;
const DRAIN_STEPS: usize = 100_000;
/// Longest delay of a read.
const LATE_NS: u64 = 10_000;
const SHARD: RegionId = RegionId(0);

struct Message {
    /// Time before which it does not arrive.
    not_before_ns: u64,
    at: Timestamp,
    from: ProcessId,
    payload: Vec<u8>,
}

struct Fabric {
    random: Xoshiro256PlusPlus,
    now_ns: u64,
    layout: Layout,
    replicas: usize,
    owners: Vec<MemoryOwner>,
    clients: Vec<TableClient>,
    reliable: Vec<VecDeque<Message>>,
    best_effort: Vec<Vec<Message>>,
    replies: Vec<(ProcessId, usize, Vec<u8>)>,
    failures: Vec<(usize, bool, ScatteringId)>,
    scatterings: u64,
    /// Share of scatterings and of replies that are lost.
    loss_percent: u32,
    /// A replica that receives reliable requests late, so that its commit barrier is behind; in
    /// half of the runs there is none.
    slow: usize,
    last_value: u64,
    /// Begins and ends of calls so far.
    events: usize,
    calls: Vec<MapCall>,
    open: Vec<Option<(OperationId, usize)>>,
}

/// Runs a seed. Returns the number of changes that met others, or what is wrong.
pub fn run(seed: u64) -> Result<u64, String> {
    let mut fabric = Fabric::new(seed);
    for _ in 0..STEPS {
        fabric.step(true)?;
    }
    fabric.loss_percent = 0;
    for _ in 0..DRAIN_STEPS {
        if fabric.open.iter().all(Option::is_none) {
            return fabric.verify();
        }
        fabric.step(false)?;
    }
    Err("calls do not end".into())
}

impl Fabric {
    fn new(seed: u64) -> Self {
        let layout = Layout { shards: 1, buckets: 2, nodes: 40, value_len: VALUE_LEN };
        let owner = |_| {
            let mut owner = MemoryOwner::new(OwnerOptions::default());
            let region = Region::new(layout.empty_shard(), Rights::all());
            owner.register(SHARD, region).expect("once");
            owner
        };
        let memory = ClientOptions {
            timeout_ns: 2 * LATE_NS,
            timeout_min_ns: 2 * LATE_NS,
            ..Default::default()
        };
        let options = TableOptions { memory, reserved: 1 };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let replicas = if random.random_range(0..3) == 0 { 1 } else { REPLICAS_MAX };
        let ids: Vec<ProcessId> = (0..replicas as u32).map(ProcessId).collect();
        let client = |_| TableClient::new(1, layout, vec![ids.clone()], options);
        // A lost message stops its client for long, so that half of the runs have no losses.
        let loss_percent = if random.random_range(0..2) == 0 { 10 } else { 0 };
        Self {
            slow: random.random_range(0..2 * REPLICAS_MAX),
            replicas,
            random,
            now_ns: 1_000,
            layout,
            owners: (0..replicas).map(owner).collect(),
            clients: (0..CLIENTS).map(client).collect(),
            reliable: (0..replicas).map(|_| VecDeque::new()).collect(),
            best_effort: (0..replicas).map(|_| Vec::new()).collect(),
            replies: Vec::new(),
            failures: Vec::new(),
            scatterings: 0,
            loss_percent,
            last_value: 0,
            events: 0,
            calls: Vec::new(),
            open: vec![None; CLIENTS],
        }
    }

    fn happens(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn now(&self) -> Mono {
        Mono::from_ns(self.now_ns)
    }

    fn step(&mut self, calls: bool) -> Result<(), String> {
        self.now_ns += self.random.random_range(1..50);
        let (owner, client) =
            (self.random.random_range(0..self.replicas), self.random.random_range(0..CLIENTS));
        match self.random.random_range(0..12) {
            0..2 if calls && self.open[client].is_none() => self.call(client),
            2..5 if owner != self.slow || self.happens(5) => {
                if let Some(Message { at, from, payload, .. }) = self.reliable[owner].pop_front() {
                    self.owners[owner].on_message(true, at, from, &payload);
                }
            }
            5..7 => {
                let now_ns = self.now_ns;
                let mut arrived = self.best_effort[owner].iter();
                if let Some(index) = arrived.position(|next| next.not_before_ns <= now_ns) {
                    let Message { at, from, payload, .. } =
                        self.best_effort[owner].swap_remove(index);
                    self.owners[owner].on_message(false, at, from, &payload);
                }
            }
            7..9 => self.raise_barrier(owner),
            9..11 => self.deliver_reply(),
            _ if !self.failures.is_empty() => {
                let (client, is_reliable, id) = self.failures.swap_remove(0);
                let now = self.now();
                self.clients[client].on_send_failed(now, is_reliable, id);
            }
            _ => {
                let now = self.now();
                self.clients[client].handle_timeout(now);
            }
        }
        self.poll()
    }

    fn call(&mut self, client: usize) {
        let key = self.random.random_range(0..KEYS);
        self.last_value += 1;
        let (value, number) = (self.last_value.to_le_bytes().repeat(2), self.last_value as i64);
        let table = &mut self.clients[client];
        let (operation, id) = match self.random.random_range(0..8) {
            0..3 => (MapOperation::LookUp(None), table.look_up(key)),
            3..5 => (MapOperation::Insert(number, None), table.insert(key, &value).expect("16")),
            5 => (MapOperation::Update(number, None), table.update(key, &value).expect("16")),
            _ => (MapOperation::Delete(None), table.delete(key)),
        };
        self.open[client] = Some((id, self.calls.len()));
        self.calls.push(MapCall { key, operation, begins: self.events, ends: None });
        self.events += 1;
    }

    fn poll(&mut self) -> Result<(), String> {
        let now = self.now();
        for client in 0..CLIENTS {
            while let Some(finished) = self.clients[client].poll_finished() {
                let (id, call) = self.open[client].take().expect("a call is in flight");
                assert_eq!(id, finished.operation, "a client has one call in flight");
                self.on_ended(call, finished.outcome.map_err(|error| error.to_string())?)?;
            }
            while let Some(scattering) = self.clients[client].poll_scattering(now) {
                self.scatterings += 1;
                let id = ScatteringId(self.scatterings);
                self.clients[client].on_submitted(&scattering, id);
                self.now_ns += 1;
                let (at, is_reliable) = (Timestamp::from_ns(self.now_ns), scattering.is_reliable);
                if self.happens(self.loss_percent) {
                    self.failures.push((client, is_reliable, id));
                    // Of a reliable scattering with an unknown outcome, all are delivered or none.
                    if !is_reliable || self.happens(50) {
                        continue;
                    }
                }
                let from = ProcessId((REPLICAS_MAX + client) as u32);
                for (to, payload) in scattering.messages {
                    // Some reads take so long that others change the table several times.
                    let is_late = !is_reliable && self.happens(20);
                    let late_ns = if is_late { self.random.random_range(0..LATE_NS) } else { 0 };
                    let not_before_ns = self.now_ns + late_ns;
                    let message = Message { not_before_ns, at, from, payload };
                    match is_reliable {
                        true => self.reliable[to.index()].push_back(message),
                        false => self.best_effort[to.index()].push(message),
                    }
                }
            }
        }
        for (index, owner) in self.owners.iter_mut().enumerate() {
            while let Some(reply) = owner.poll_reply() {
                let client = reply.to.index() - REPLICAS_MAX;
                self.replies.push((ProcessId(index as u32), client, reply.payload));
            }
        }
        Ok(())
    }

    fn on_ended(&mut self, call: usize, outcome: Outcome) -> Result<(), String> {
        let operation = match (self.calls[call].operation, outcome) {
            (MapOperation::LookUp(_), Outcome::Missing) => MapOperation::LookUp(None),
            (MapOperation::LookUp(_), Outcome::Found(value)) => {
                let words: Vec<&[u8]> = value.chunks(8).collect();
                if words[0] != words[1] {
                    return Err(format!("a torn value: {value:?}"));
                }
                let word = value.first_chunk().expect("16 bytes");
                MapOperation::LookUp(Some(i64::from_le_bytes(*word)))
            }
            (MapOperation::Insert(value, _), outcome) => {
                MapOperation::Insert(value, Some(outcome == Outcome::Inserted))
            }
            (MapOperation::Update(value, _), outcome) => {
                MapOperation::Update(value, Some(outcome == Outcome::Updated))
            }
            (MapOperation::Delete(_), outcome) => {
                MapOperation::Delete(Some(outcome == Outcome::Deleted))
            }
            (operation, outcome) => return Err(format!("{operation:?} ended with {outcome:?}")),
        };
        self.calls[call].operation = operation;
        self.calls[call].ends = Some(self.events);
        self.events += 1;
        Ok(())
    }

    fn raise_barrier(&mut self, owner: usize) {
        let next = self.reliable[owner].front().map_or(self.now_ns, |message| message.at.as_ns());
        let low = next.saturating_sub(2_000);
        let barrier = self.random.random_range(low..=next);
        self.owners[owner].on_barrier(Timestamp::from_ns(barrier));
    }

    fn deliver_reply(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.replies.len());
        let (from, client, payload) = self.replies.swap_remove(index);
        if self.happens(self.loss_percent) {
            return;
        }
        let now = self.now();
        debug_assert!(Reply::is_reply(&payload), "owners send replies");
        self.clients[client].on_message(now, from, &payload);
    }

    fn verify(mut self) -> Result<u64, String> {
        for (owner, reliable) in self.owners.iter_mut().zip(&mut self.reliable) {
            while let Some(Message { at, from, payload, .. }) = reliable.pop_front() {
                owner.on_message(true, at, from, &payload);
            }
        }
        let bytes: Vec<&[u8]> = self
            .owners
            .iter()
            .map(|owner| owner.region(SHARD).expect("registered").bytes())
            .collect();
        if bytes.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err("replicas differ".into());
        }
        let content = self.layout.content(bytes[0]).ok_or("a list is damaged")?;
        let verdict = map_linearizability(&self.calls);
        if !verdict.is_valid() {
            return Err(format!("linearizability: {verdict}"));
        }
        // What the table has in the end is what one more look-up of each key would find.
        let mut calls = std::mem::take(&mut self.calls);
        for key in 0..KEYS {
            let value = content.get(&key).and_then(|value| value.first_chunk());
            let operation = MapOperation::LookUp(value.map(|word| i64::from_le_bytes(*word)));
            let (begins, ends) = (self.events, Some(self.events + 1));
            self.events += 2;
            calls.push(MapCall { key, operation, begins, ends });
        }
        let verdict = map_linearizability(&calls);
        if !verdict.is_valid() {
            return Err(format!("the content in the end: {verdict}"));
        }
        let mut met: BTreeMap<usize, u64> = BTreeMap::new();
        for (index, client) in self.clients.iter().enumerate() {
            let stats = client.stats();
            if stats.disagreements > 0 {
                return Err(format!("replicas have replied differently: {stats:?}"));
            }
            met.insert(index, stats.conflicts + stats.restarted);
        }
        Ok(met.values().sum())
    }
}
