//! Figure 16 of 1Pipe: insertions and look-ups of a table, measured in virtual time.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_memory::{MemoryOwner, RegionId};
use onepipe_sim_engine::Random;
use onepipe_table::{Layout, Outcome, RivalOptions, TableOptions};
use onepipe_topology::ShapeError;
use onepipe_verify_transactions::{
    Costs, Environment, Percentiles, Rates, Sent, Setup as Testbed, Terminal,
};

use crate::cluster::Cluster;
use crate::load::{Command, Done, Load, Next};
use crate::rival::RivalCluster;
use crate::setup::Setup;

/// Shards, each with its own servers, and clients.
const SHARDS: u16 = 16;
const CLIENTS: u32 = 16;
/// Keys of the table at first, and buckets of a shard: a list has one node in the mean.
const KEYS: u64 = 16 * 1_024;
const BUCKETS: u32 = 1_024;
/// Nodes of a shard: no run fills it.
const NODES: u32 = 16 * 1_024;
/// Nodes that a client reserves at a time.
const RESERVED: u32 = 64;
/// Time before the load, in ns: all processes have joined by then.
const JOIN_NS: u64 = 50_000;
/// Time after which a message of a rival counts as lost, in ns.
const RIVAL_TIMEOUT_NS: u64 = 10_000_000;
/// Time in which all calls end after the measurement, in ns.
const END_NS: u64 = 5_000_000;
const CLASS: &str = "calls";

/// How the table is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Ordered operations, and look-ups at all replicas.
    Ordered,
    /// Fenced operations on the only replica.
    Fenced,
    /// A leader that inserts and replicates; look-ups at the leader by reads of its memory.
    Leader,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// All insert new keys.
    Insert,
    /// All look up keys that are in the table.
    LookUp,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct RatesRun {
    /// How the table is accessed.
    pub protocol: Protocol,
    /// What the clients do.
    pub operations: Operations,
    /// Replicas of each shard. Every replica is a process of its own.
    pub replicas: u32,
    /// Length of every value in bytes.
    pub value_len: u32,
    /// Calls that a client has in flight.
    pub in_flight: u32,
    /// Costs of the testbed.
    pub costs: Costs,
    /// Length of the load before the measurement with one call in flight, in us; with several it is
    /// divided by their number, but not below `measure_us`. Meanwhile connections open: a client
    /// has two to each server.
    pub warm_up_us: u64,
    /// Length of the measurement, in us.
    pub measure_us: u64,
    /// Seed of the run.
    pub seed: u64,
}

/// What the processes of one role have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Messages that they send for a call of the table.
    pub messages: f64,
    /// Acknowledgements that they send for a call.
    pub acks: f64,
    /// Mean CPU time of the sending threads, as a share of the measured time.
    pub sending: f64,
    /// Mean CPU time of the polling threads, as a share of the measured time.
    pub polling: f64,
}

/// Results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Calls per second and client.
    pub per_s: f64,
    /// Latency of a call.
    pub latency: Percentiles,
    /// Calls that have failed.
    pub failed: u64,
    /// What the clients have used.
    pub clients: Use,
    /// What the servers have used.
    pub servers: Use,
}

/// The load of a run.
#[derive(Debug)]
struct RatesLoad {
    run: RatesRun,
    random: Random,
    last_key: u64,
    inserted: BTreeMap<u64, ()>,
    is_stopped: bool,
    in_flight: BTreeMap<Terminal, u64>,
    rates: Rates,
    failures: Vec<String>,
}

impl RatesLoad {
    fn new(run: RatesRun) -> Self {
        Self {
            run,
            random: Random::named(run.seed, "table", 0),
            last_key: KEYS,
            inserted: BTreeMap::new(),
            is_stopped: false,
            in_flight: BTreeMap::new(),
            rates: Rates::default(),
            failures: Vec::new(),
        }
    }

    fn value(&self, key: u64) -> Vec<u8> {
        vec![key as u8; self.run.value_len as usize]
    }
}

impl Load for RatesLoad {
    fn content(&mut self, shard: u16) -> Vec<(u64, Vec<u8>)> {
        let layout = self.run.layout();
        let keys = (0..KEYS).filter(|key| layout.location(*key).shard == shard);
        keys.map(|key| (key, self.value(key))).collect()
    }

    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next {
        if self.is_stopped {
            return Next::Stop;
        }
        if at_ns < JOIN_NS {
            return Next::Wait(JOIN_NS - at_ns);
        }
        let (key, command) = match self.run.operations {
            Operations::Insert => {
                self.last_key += 1;
                (self.last_key, Command::Insert(self.value(self.last_key)))
            }
            Operations::LookUp => (self.random.below(KEYS), Command::LookUp),
        };
        self.in_flight.insert(terminal, key);
        Next::Call(key, command)
    }

    fn done(&mut self, done: Done) {
        let Some(key) = self.in_flight.remove(&done.terminal) else { return };
        let is_right = match &done.outcome {
            Ok(Outcome::Inserted) => self.inserted.insert(key, ()).is_none(),
            Ok(Outcome::Found(value)) => *value == self.value(key),
            _ => false,
        };
        if !is_right {
            self.failures.push(format!("key {key}: {:?}", done.outcome));
        }
        let attempts = is_right.then_some(1);
        self.rates.ended(CLASS, done.at_ns - done.started_ns, attempts);
    }
}

/// What a measurement needs of a cluster.
trait Measured {
    fn run_ns(&mut self, ns: u64);
    fn load(&mut self) -> &mut RatesLoad;
    fn sent(&self, process: ProcessId) -> Sent;
    fn calls(&self) -> usize;
    fn memory(&self, process: ProcessId) -> Option<&MemoryOwner>;
}

impl Measured for Cluster<RatesLoad> {
    fn run_ns(&mut self, ns: u64) {
        Environment::run_ns(self, ns);
    }

    fn load(&mut self) -> &mut RatesLoad {
        self.load_mut()
    }

    fn sent(&self, process: ProcessId) -> Sent {
        Environment::sent(self, process)
    }

    fn calls(&self) -> usize {
        self.in_flight()
    }

    fn memory(&self, process: ProcessId) -> Option<&MemoryOwner> {
        self.owner(process)
    }
}

impl Measured for RivalCluster<RatesLoad> {
    fn run_ns(&mut self, ns: u64) {
        RivalCluster::run_ns(self, ns);
    }

    fn load(&mut self) -> &mut RatesLoad {
        self.load_mut()
    }

    fn sent(&self, process: ProcessId) -> Sent {
        RivalCluster::sent(self, process)
    }

    fn calls(&self) -> usize {
        self.in_flight()
    }

    fn memory(&self, process: ProcessId) -> Option<&MemoryOwner> {
        self.owner(process)
    }
}

impl RatesRun {
    /// Creates a run with one call in flight of each client, and values of 64 bytes.
    pub fn new(protocol: Protocol, operations: Operations, replicas: u32) -> Self {
        Self {
            protocol,
            operations,
            replicas,
            value_len: 64,
            in_flight: 1,
            costs: Costs::PAPER,
            warm_up_us: 20_000,
            measure_us: 500,
            seed: 1,
        }
    }

    fn layout(&self) -> Layout {
        Layout { shards: SHARDS, buckets: BUCKETS, nodes: NODES, value_len: self.value_len }
    }

    fn servers(&self) -> u32 {
        self.replicas * u32::from(SHARDS)
    }

    /// Runs it.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    ///
    /// # Panics
    /// A call has a wrong result, or the replicas of a shard differ in the end.
    pub fn run(&self) -> Result<Figures, ShapeError> {
        let plan = Testbed::testbed(&self.costs, self.servers() + CLIENTS, self.seed)?;
        let processes = (self.servers() + CLIENTS).next_multiple_of(plan.processes_per_host.into());
        let of_shard = |shard: u16| {
            let id = |replica| ProcessId(replica * u32::from(SHARDS) + u32::from(shard));
            (0..self.replicas).map(id).collect()
        };
        let setup = Setup {
            plan,
            processes,
            layout: self.layout(),
            replicas: (0..SHARDS).map(of_shard).collect(),
            clients: (self.servers()..self.servers() + CLIENTS).collect(),
            terminals: self.in_flight,
            table: TableOptions { reserved: RESERVED, ..TableOptions::default() },
            cpu: self.costs.cpu,
        };
        let load = RatesLoad::new(*self);
        let options = |asks_leader| RivalOptions {
            asks_leader,
            timeout_ns: RIVAL_TIMEOUT_NS,
            reserved: RESERVED,
        };
        Ok(match self.protocol {
            Protocol::Ordered => self.measure(&mut Cluster::new(setup, load)),
            Protocol::Fenced => {
                assert_eq!(self.replicas, 1, "fenced operations have one replica");
                self.measure(&mut RivalCluster::new(setup, options(false), load))
            }
            Protocol::Leader => self.measure(&mut RivalCluster::new(setup, options(true), load)),
        })
    }

    fn measure(&self, cluster: &mut impl Measured) -> Figures {
        let servers = 0..self.servers();
        let clients = self.servers()..self.servers() + CLIENTS;
        let warm_up_us = (self.warm_up_us / u64::from(self.in_flight)).max(self.measure_us);
        cluster.run_ns(JOIN_NS + warm_up_us * 1_000);
        cluster.load().rates.begin();
        let sent = |cluster: &dyn Fn(ProcessId) -> Sent, ids: std::ops::Range<u32>| {
            ids.map(|id| cluster(ProcessId(id))).collect::<Vec<Sent>>()
        };
        let before = [
            sent(&|process| cluster.sent(process), servers.clone()),
            sent(&|process| cluster.sent(process), clients.clone()),
        ];
        let ns = self.measure_us * 1_000;
        cluster.run_ns(ns);
        let after = [
            sent(&|process| cluster.sent(process), servers),
            sent(&|process| cluster.sent(process), clients),
        ];
        let rates = cluster.load().rates.figures(ns, CLIENTS, 0);
        let latency = rates.latency.get(CLASS).copied().unwrap_or_default();
        let calls = latency.count.max(1) as f64;
        let [servers, clients] = [0, 1].map(|role| {
            let pairs = after[role].iter().zip(&before[role]);
            let used: Vec<Sent> = pairs.map(|(after, before)| after.since(*before)).collect();
            let messages = |sent: &Sent| sent.requests + sent.replies + sent.others + sent.local;
            let share = |spent_ns: u64| spent_ns as f64 / ns as f64 / used.len() as f64;
            Use {
                messages: used.iter().map(messages).sum::<u64>() as f64 / calls,
                acks: used.iter().map(|sent| sent.acks).sum::<u64>() as f64 / calls,
                sending: share(used.iter().map(|sent| sent.cpu.sending_ns).sum()),
                polling: share(used.iter().map(|sent| sent.cpu.polling_ns).sum()),
            }
        });
        self.verify(cluster);
        Figures { per_s: rates.per_s_and_process, latency, failed: rates.failed, clients, servers }
    }

    /// Lets all calls end, and verifies the table.
    fn verify(&self, cluster: &mut impl Measured) {
        cluster.load().is_stopped = true;
        cluster.run_ns(END_NS);
        assert_eq!(cluster.calls(), 0, "calls have not ended");
        let failures = std::mem::take(&mut cluster.load().failures);
        assert!(failures.is_empty(), "calls have failed: {failures:?}");
        let mut keys = 0;
        for shard in 0..SHARDS {
            let owners = (0..self.replicas).filter_map(|replica| {
                cluster.memory(ProcessId(replica * u32::from(SHARDS) + u32::from(shard)))
            });
            let contents = owners.map(|owner| {
                let region = owner.region(RegionId(shard.into())).expect("the shard's region");
                self.layout().content(region.bytes()).expect("sound lists")
            });
            let contents: Vec<_> = contents.collect();
            assert_eq!(contents.len(), self.replicas as usize, "all replicas run");
            assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "replicas differ");
            keys += contents[0].len();
        }
        let inserted = cluster.load().inserted.len();
        assert_eq!(keys, KEYS as usize + inserted, "each inserted key is in the table");
    }
}
