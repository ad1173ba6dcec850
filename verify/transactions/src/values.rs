//! Figure 14 of 1Pipe: 64-bit keys with short values; every process is a server and a client.

use std::collections::BTreeMap;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_sim_engine::Random;
use onepipe_topology::ShapeError;
use onepipe_transaction::{Exact, Kind, Placement, ReadMode, State};

use crate::benchmark::{Figures, Rates, measure};
use crate::cluster::Cluster;
use crate::load::{Done, Load, Next, Terminal};
use crate::protocol::Protocol;
use crate::setup::{Costs, Setup};
use crate::zipf::Zipf;

/// Time before the load, in ns: all processes have joined by then.
const JOIN_NS: u64 = 50_000;
/// Number of shards of a transaction that connects processes.
const CONNECTS: u32 = 16;
/// Longest time in which all processes are connected, in ns.
const CONNECT_NS_MAX: u64 = 50_000_000;

/// The class of transactions that only read.
pub const READ_ONLY: &str = "read-only";
/// The class of transactions that only write.
pub const WRITE_ONLY: &str = "write-only";
/// The class of transactions that read and write.
pub const READ_WRITE: &str = "read-write";

/// Values of 64-bit keys. A part is a list of operations: `0` and a key read it, `1`, a key and a
/// value of the length of all values write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Values {
    len: usize,
    values: BTreeMap<u64, (Timestamp, Box<[u8]>)>,
}

impl Values {
    /// Creates an empty shard whose values have `len` bytes.
    pub fn new(len: usize) -> Self {
        Self { len, values: BTreeMap::new() }
    }

    /// Calls `each` with every operation of a part: its key, and its value if it writes.
    fn for_each(&self, mut part: &[u8], mut each: impl FnMut(u64, Option<&[u8]>)) {
        while let Some((code, rest)) = part.split_first()
            && let Some((key, rest)) = rest.split_first_chunk()
        {
            let key = u64::from_le_bytes(*key);
            part = rest;
            if *code == 0 {
                each(key, None);
            } else if let Some((value, rest)) = part.split_at_checked(self.len) {
                each(key, Some(value));
                part = rest;
            }
        }
    }

    fn append(&self, key: u64, results: &mut Vec<u8>) -> Option<Timestamp> {
        match self.values.get(&key) {
            Some((at, value)) => {
                results.extend_from_slice(value);
                Some(*at)
            }
            None => {
                results.push(0);
                None
            }
        }
    }
}

impl State for Values {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        let mut written = Vec::new();
        self.for_each(part, |key, value| match value {
            Some(value) => written.push((key, value.into())),
            None => drop(self.append(key, results)),
        });
        self.values.extend(written.into_iter().map(|(key, value)| (key, (at, value))));
    }

    fn read(&self, _: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        let mut from = None;
        self.for_each(part, |key, _| from = from.max(self.append(key, results)));
        Exact { from, until: None }
    }

    fn digest(&self) -> u64 {
        self.values.iter().fold(0, |digest: u64, (key, (at, value))| {
            let bytes = value.iter().fold(at.as_ns() ^ *key, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
            });
            digest.rotate_left(1) ^ bytes
        })
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        for (key, (at, value)) in &self.values {
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&at.as_ns().to_le_bytes());
            bytes.extend_from_slice(value);
        }
    }

    fn load(&mut self, mut bytes: &[u8]) -> bool {
        let mut values = BTreeMap::new();
        while let Some((key, rest)) = bytes.split_first_chunk()
            && let Some((at, rest)) = rest.split_first_chunk()
            && let Some((value, rest)) = rest.split_at_checked(self.len)
        {
            let at = Timestamp::from_ns(u64::from_le_bytes(*at));
            values.insert(u64::from_le_bytes(*key), (at, value.into()));
            bytes = rest;
        }
        let is_whole = bytes.is_empty();
        if is_whole {
            self.values = values;
        }
        is_whole
    }
}

/// How keys are drawn.
#[derive(Clone, Copy, Debug)]
pub enum KeyMix {
    /// All keys of a store of this size alike.
    Uniform(u64),
    /// By YCSB's distribution.
    Zipf(Zipf),
}

/// Which operations of a transaction write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationMix {
    /// Transactions either only read, with this share in percent, or only write.
    Pure(u64),
    /// Transactions only read, with this share in percent; each operation of the others reads or
    /// writes with equal probability, and at least one writes.
    Mixed(u64),
    /// Each operation writes with this probability, in tenths of a percent.
    Independent(u64),
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct ValuesRun {
    /// The protocol.
    pub protocol: Protocol,
    /// Number of processes: see [`Setup::testbed`].
    pub processes: u32,
    /// How keys are drawn.
    pub keys: KeyMix,
    /// Number of operations of a transaction.
    pub operations: usize,
    /// Which of them write.
    pub mix: OperationMix,
    /// What transactions of [`Protocol::Onepipe`] that only read guarantee.
    pub read_mode: ReadMode,
    /// Length of a value in bytes.
    pub value_len: usize,
    /// Transactions that a client has in flight.
    pub terminals: u32,
    /// Costs of the testbed.
    pub costs: Costs,
    /// Length of the load between the opening of all connections and the measurement, in us.
    pub warm_up_us: u64,
    /// Length of the measurement, in us.
    pub measure_us: u64,
    /// Seed of the run.
    pub seed: u64,
}

impl ValuesRun {
    /// Creates a run of our protocol with `processes` processes: 2 operations of 64 bytes on a
    /// million keys; half of the transactions only read, by `read_mode`, and the others only write.
    pub fn new(processes: u32, read_mode: ReadMode) -> Self {
        Self {
            protocol: Protocol::Onepipe,
            processes,
            keys: KeyMix::Uniform(1_000_000),
            operations: 2,
            mix: OperationMix::Pure(50),
            read_mode,
            value_len: 64,
            terminals: 32,
            costs: Costs::PAPER,
            warm_up_us: 100,
            measure_us: 300,
            seed: 1,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    ///
    /// # Panics
    /// They do not fill its hosts, or there are more than shards of a placement. Rivals do not run
    /// yet.
    pub fn run(&self) -> Result<Figures, ShapeError> {
        assert_eq!(self.protocol, Protocol::Onepipe, "the rivals do not run yet");
        let plan = Setup::testbed(&self.costs, self.processes, self.seed)?;
        let placement =
            Placement::consecutive(0, self.processes as u16, 1).expect("a shard for each process");
        let setup = Setup {
            terminals: self.terminals,
            message_ns: self.costs.message_ns,
            ..Setup::new(plan, self.processes, placement)
        };
        let mut cluster = Cluster::new(setup, ValuesLoad::new(*self));
        // Connections open before the measurement, as those of a store that has run for a while.
        while !cluster.load().is_connected() && cluster.now_ns() < CONNECT_NS_MAX {
            cluster.run_ns(JOIN_NS);
        }
        let times_ns = (self.warm_up_us * 1_000, self.measure_us * 1_000);
        Ok(measure(&mut cluster, times_ns, |load: &mut ValuesLoad| &mut load.rates))
    }
}

/// The load of a [`ValuesRun`].
#[derive(Debug)]
pub struct ValuesLoad {
    run: ValuesRun,
    random: Random,
    /// Class of the transaction in flight of each terminal, unless it only connects processes.
    classes: BTreeMap<(ProcessId, u32), &'static str>,
    /// Transactions of each process that connect it with all others, and how many have ended.
    connecting: Vec<(u32, u32)>,
    rates: Rates,
}

impl ValuesLoad {
    fn new(run: ValuesRun) -> Self {
        let random = Random::named(run.seed, "values", 0);
        let connecting = vec![(0, 0); run.processes as usize];
        Self { run, random, classes: BTreeMap::new(), connecting, rates: Rates::default() }
    }

    /// Returns the number of transactions that connect a process with all others: first by reads,
    /// then by writes, as each service has its own connections.
    fn rounds(&self) -> u32 {
        2 * self.run.processes.div_ceil(CONNECTS)
    }

    /// Whether all processes are connected.
    fn is_connected(&self) -> bool {
        self.connecting.iter().all(|(_, ended)| *ended >= self.rounds())
    }

    /// Returns a transaction with the next shards, if the process is not connected with all yet.
    fn connect(&mut self, process: ProcessId) -> Option<Next> {
        let rounds = self.rounds();
        let (begun, _) = &mut self.connecting[process.index()];
        if *begun == rounds {
            return None;
        }
        let (round, reads) = (*begun % (rounds / 2), *begun < rounds / 2);
        *begun += 1;
        let processes = self.run.processes;
        let from = round * CONNECTS;
        let shards =
            (from..processes.min(from + CONNECTS)).map(|next| (process.0 + next) % processes);
        let mut parts: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for shard in shards {
            let part = parts.entry(shard as u16).or_default();
            put(part, u64::from(shard), (!reads).then_some((self.run.value_len, 0)));
        }
        let kind = if reads { Kind::Read(self.run.read_mode) } else { Kind::Write };
        Some(Next::Submit(kind, parts.into_iter().collect()))
    }

    /// Returns for each operation of the next transaction whether it writes.
    fn writes(&mut self) -> Vec<bool> {
        let (count, random) = (self.run.operations, &mut self.random);
        match self.run.mix {
            OperationMix::Pure(reads) => vec![random.below(100) >= reads; count],
            OperationMix::Mixed(reads) if random.below(100) < reads => vec![false; count],
            OperationMix::Mixed(_) => {
                let mut writes: Vec<bool> = (0..count).map(|_| random.below(2) == 0).collect();
                if !writes.contains(&true) {
                    writes[random.below(count as u64) as usize] = true;
                }
                writes
            }
            OperationMix::Independent(per_mille) => {
                (0..count).map(|_| random.below(1_000) < per_mille).collect()
            }
        }
    }

    fn key(&mut self) -> u64 {
        let number = match self.run.keys {
            KeyMix::Uniform(count) => self.random.below(count),
            KeyMix::Zipf(zipf) => zipf.draw(&mut self.random),
        };
        // Neighbours are on different shards.
        (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
}

/// Appends an operation to a part: a write of a value of this length and content, or a read.
fn put(part: &mut Vec<u8>, key: u64, value: Option<(usize, u8)>) {
    part.push(u8::from(value.is_some()));
    part.extend_from_slice(&key.to_le_bytes());
    if let Some((len, byte)) = value {
        part.resize(part.len() + len, byte);
    }
}

impl Load<Values> for ValuesLoad {
    fn state(&mut self, _: u16) -> Values {
        Values::new(self.run.value_len)
    }

    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next {
        if at_ns < JOIN_NS {
            // Not all at once.
            return Next::Wait(JOIN_NS - at_ns + self.random.below(5_000));
        }
        if let Some(next) = self.connect(terminal.process) {
            return next;
        }
        let writes = self.writes();
        let mut parts: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for is_write in &writes {
            let key = self.key();
            let shard = (((key >> 32) * u64::from(self.run.processes)) >> 32) as u16;
            let part = parts.entry(shard).or_default();
            put(part, key, is_write.then_some((self.run.value_len, at_ns as u8)));
        }
        let (kind, class) = match (writes.contains(&false), writes.contains(&true)) {
            (_, false) => (Kind::Read(self.run.read_mode), READ_ONLY),
            (false, true) => (Kind::Write, WRITE_ONLY),
            (true, true) => (Kind::Write, READ_WRITE),
        };
        self.classes.insert((terminal.process, terminal.index), class);
        Next::Submit(kind, parts.into_iter().collect())
    }

    fn done(&mut self, done: Done) {
        let class = self.classes.remove(&(done.terminal.process, done.terminal.index));
        let Some(class) = class else {
            self.connecting[done.terminal.process.index()].1 += 1;
            return;
        };
        let attempts = done.outcome.ok().map(|committed| committed.attempts);
        let latency_ns = done.at_ns - done.started_ns;
        self.rates.ended(class, latency_ns, attempts);
    }
}
