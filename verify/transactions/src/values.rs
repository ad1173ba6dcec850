//! Figure 14 of 1Pipe: values of 64-bit keys; every process is a server and a client.

use std::collections::BTreeMap;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_baselines::{ClientOptions as RivalOptions, Protocol as Rival};
use onepipe_sim_engine::Random;
use onepipe_topology::ShapeError;
use onepipe_transaction::{Exact, Kind, Placement, ReadMode, State};
use serde::{Deserialize, Serialize};

use crate::benchmark::{Figures, Rates, measure};
use crate::cluster::Cluster;
use crate::lengths::Lengths;
use crate::load::{Done, Load, Next, Terminal};
use crate::peak::{Peak, search};
use crate::protocol::Protocol;
use crate::rivals::RivalCluster;
use crate::setup::{Costs, Setup};
use crate::zipf::Zipf;

/// Time before the load, in ns: all processes have joined by then.
const JOIN_NS: u64 = 50_000;
/// Number of shards of a transaction that opens connections.
const CONNECT_SHARDS: u32 = 16;
/// Transactions in flight of a client that has opened its connections, until all clients have.
const CONNECT_IN_FLIGHT: u32 = 1;
/// Longest time in which all processes are connected, in ns.
const CONNECT_NS_MAX: u64 = 50_000_000;

/// The class of transactions that only read.
pub const READ_ONLY: &str = "read-only";
/// The class of transactions that only write.
pub const WRITE_ONLY: &str = "write-only";
/// The class of transactions that read and write.
pub const READ_WRITE: &str = "read-write";

/// Values of 64-bit keys. A part is a list of operations: `0` and a key read it, `1`, a key, the
/// length of a value (32 bits) and the value write it. Every key has a value from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Values {
    initial: Lengths,
    values: BTreeMap<u64, (Timestamp, Box<[u8]>)>,
}

impl Values {
    /// Creates a shard whose keys have zeros as values, of these lengths.
    pub fn new(initial: Lengths) -> Self {
        Self { initial, values: BTreeMap::new() }
    }

    /// Appends the value of a key to the results. Returns when it was written.
    pub(crate) fn append(&self, key: u64, results: &mut Vec<u8>) -> Option<Timestamp> {
        match self.values.get(&key) {
            Some((at, value)) => {
                results.extend_from_slice(value);
                Some(*at)
            }
            None => {
                results.resize(results.len() + self.initial.initial(key), 0);
                None
            }
        }
    }
}

/// Calls `each` with every operation of a part: its key, and its value if it writes.
pub(crate) fn for_each(mut part: &[u8], mut each: impl FnMut(u64, Option<&[u8]>)) {
    while let Some((code, rest)) = part.split_first()
        && let Some((key, rest)) = rest.split_first_chunk()
    {
        let key = u64::from_le_bytes(*key);
        part = rest;
        if *code == 0 {
            each(key, None);
        } else if let Some((value, rest)) = split_value(part) {
            each(key, Some(value));
            part = rest;
        } else {
            return;
        }
    }
}

/// Splits bytes that begin with the length of a value and the value.
fn split_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

/// Appends the length of a value and the value.
fn put_value(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    bytes.extend_from_slice(value);
}

impl State for Values {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        let mut written = Vec::new();
        for_each(part, |key, value| match value {
            Some(value) => written.push((key, value.into())),
            None => drop(self.append(key, results)),
        });
        self.values.extend(written.into_iter().map(|(key, value)| (key, (at, value))));
    }

    fn read(&self, _: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        let mut from = None;
        for_each(part, |key, _| from = from.max(self.append(key, results)));
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
            put_value(bytes, value);
        }
    }

    fn load(&mut self, mut bytes: &[u8]) -> bool {
        let mut values = BTreeMap::new();
        while let Some((key, rest)) = bytes.split_first_chunk()
            && let Some((at, rest)) = rest.split_first_chunk()
            && let Some((value, rest)) = split_value(rest)
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

impl KeyMix {
    /// All keys alike, as many as [`Zipf::ycsb`] has.
    pub const ALL: Self = Self::Uniform(10_000_000_000);
}

/// Which operations of a transaction write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Lengths of the values.
    pub lengths: Lengths,
    /// Transactions that a client has in flight.
    pub terminals: u32,
    /// Longest time before the second attempt of a rival at a transaction with a conflict, in ns:
    /// see [`onepipe_baselines::ClientOptions`].
    pub backoff_ns: u64,
    /// Costs of the testbed.
    pub costs: Costs,
    /// Time after which a receiver acknowledges at the latest, in ns.
    pub ack_delay_ns: u64,
    /// Length of the load between the opening of all connections and the measurement, in us.
    pub warm_up_us: u64,
    /// Length of the measurement, in us.
    pub measure_us: u64,
    /// Seed of the run.
    pub seed: u64,
}

impl ValuesRun {
    /// Creates a run of our protocol with `processes` processes: 2 operations on values as those of
    /// ETC; half of the transactions only read, by `read_mode`.
    pub fn new(processes: u32, read_mode: ReadMode) -> Self {
        Self {
            protocol: Protocol::Onepipe,
            processes,
            keys: KeyMix::ALL,
            operations: 2,
            mix: OperationMix::Mixed(50),
            read_mode,
            lengths: Lengths::Etc,
            terminals: 32,
            backoff_ns: RivalOptions::default().backoff_ns,
            costs: Costs::PAPER,
            ack_delay_ns: 20_000,
            warm_up_us: 100,
            measure_us: 300,
            seed: 1,
        }
    }

    /// Runs the load, and measures it.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    ///
    /// # Panics
    /// The processes leave a host partly filled, or are more than a placement has shards.
    pub fn run(&self) -> Result<Figures, ShapeError> {
        if let Some(rival) = self.protocol.rival() {
            return self.run_rival(rival);
        }
        Ok(ValuesCluster::new(self)?.measure(self.terminals))
    }

    /// Runs a rival, which has no connections to open.
    fn run_rival(&self, rival: Rival) -> Result<Figures, ShapeError> {
        let plan = Setup::testbed(&self.costs, self.processes, self.seed)?;
        let placement =
            Placement::consecutive(0, self.processes as u16, 1).expect("a shard for each process");
        let setup = Setup {
            terminals: self.terminals,
            rival: RivalOptions { backoff_ns: self.backoff_ns, ..RivalOptions::default() },
            cpu: self.costs.cpu,
            ..Setup::new(plan, self.processes, placement)
        };
        let load = ValuesLoad { in_flight: self.terminals, ..ValuesLoad::new(*self) };
        let mut cluster = RivalCluster::new(setup, rival, load);
        let warm_up_ns = JOIN_NS + self.warm_up_ns(self.terminals);
        let times_ns = (warm_up_ns, self.measure_us * 1_000);
        Ok(measure(&mut cluster, times_ns, |load: &mut ValuesLoad| &mut load.rates))
    }

    /// Returns the length of the load before a measurement with this number of transactions in
    /// flight of each client, in ns. With hot keys almost all of them come to wait for one process,
    /// so that the load lasts as long as that process needs to send a message for each.
    fn warm_up_ns(&self, in_flight: u32) -> u64 {
        let waiting = match self.keys {
            KeyMix::Uniform(_) => 0,
            KeyMix::Zipf(_) => u64::from(in_flight) * u64::from(self.processes),
        };
        self.warm_up_us * 1_000 + waiting * self.costs.cpu.send_ns
    }

    /// Searches for the smallest number of transactions in flight of each client, at most
    /// [`ValuesRun::terminals`], with this share of the peak rate, in percent. 8, 16, 32 and so on
    /// are tried until a doubling raises the rate by less than 5 %: the highest of these rates is
    /// the peak.
    ///
    /// # Errors
    /// As [`ValuesRun::run`].
    ///
    /// # Panics
    /// As [`ValuesRun::run`].
    pub fn peak(&self, share_percent: u32) -> Result<Peak, ShapeError> {
        if self.protocol != Protocol::Onepipe {
            return search(self.terminals, share_percent, |terminals| {
                Self { terminals, ..*self }.run()
            });
        }
        // One cluster for all, as its connections take longer to open than the rates to measure.
        let mut cluster = ValuesCluster::new(self)?;
        search(self.terminals, share_percent, |in_flight| Ok(cluster.measure(in_flight)))
    }
}

/// A cluster whose processes are connected.
struct ValuesCluster(Cluster<Values, ValuesLoad>);

impl ValuesCluster {
    fn new(run: &ValuesRun) -> Result<Self, ShapeError> {
        let mut plan = Setup::testbed(&run.costs, run.processes, run.seed)?;
        plan.endpoint.ack_delay_ns = run.ack_delay_ns;
        let placement =
            Placement::consecutive(0, run.processes as u16, 1).expect("a shard for each process");
        let setup = Setup {
            terminals: run.terminals,
            cpu: run.costs.cpu,
            ..Setup::new(plan, run.processes, placement)
        };
        let mut cluster = Cluster::new(setup, ValuesLoad::new(*run));
        // Connections open before the measurement, as those of a store that has run for a while.
        while !cluster.load().is_connected() && cluster.now_ns() < CONNECT_NS_MAX {
            cluster.run_ns(JOIN_NS);
        }
        Ok(Self(cluster))
    }

    /// Measures with this number of transactions in flight of each client.
    fn measure(&mut self, in_flight: u32) -> Figures {
        let Self(cluster) = self;
        let load = cluster.load_mut();
        (load.in_flight, load.rates) = (in_flight, Rates::default());
        let times_ns = (load.run.warm_up_ns(in_flight), load.run.measure_us * 1_000);
        cluster.wake();
        measure(cluster, times_ns, |load: &mut ValuesLoad| &mut load.rates)
    }
}

/// The load of a [`ValuesRun`].
#[derive(Debug)]
pub struct ValuesLoad {
    run: ValuesRun,
    random: Random,
    /// Class of the transaction in flight of each terminal, unless it only connects processes.
    classes: BTreeMap<(ProcessId, u32), &'static str>,
    /// For each process, how many transactions that open its connections have begun and ended.
    connecting: Vec<(u32, u32)>,
    /// Transactions that a connected client has in flight.
    in_flight: u32,
    rates: Rates,
}

impl ValuesLoad {
    fn new(run: ValuesRun) -> Self {
        let random = Random::named(run.seed, "values", 0);
        let (classes, rates) = (BTreeMap::new(), Rates::default());
        let connecting = vec![(0, 0); run.processes as usize];
        Self { run, random, classes, connecting, in_flight: CONNECT_IN_FLIGHT, rates }
    }

    /// Returns the number of transactions that connect a process with all others: first by reads,
    /// then by writes, as each service has its own connections. Rivals have no connections.
    fn rounds(&self) -> u32 {
        match self.run.protocol {
            Protocol::Onepipe => 2 * self.run.processes.div_ceil(CONNECT_SHARDS),
            _ => 0,
        }
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
        let from = round * CONNECT_SHARDS;
        let shards =
            (from..processes.min(from + CONNECT_SHARDS)).map(|next| (process.0 + next) % processes);
        let mut parts: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for shard in shards {
            let part = parts.entry(shard as u16).or_default();
            put(part, u64::from(shard), (!reads).then_some(0));
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

/// Appends an operation to a part: a read, or a write of a value of this length.
fn put(part: &mut Vec<u8>, key: u64, written_len: Option<usize>) {
    part.push(u8::from(written_len.is_some()));
    part.extend_from_slice(&key.to_le_bytes());
    if let Some(len) = written_len {
        put_value(part, &vec![1; len]);
    }
}

impl Load<Values> for ValuesLoad {
    fn state(&mut self, _: u16) -> Values {
        Values::new(self.run.lengths)
    }

    fn next(&mut self, at_ns: u64, terminal: Terminal) -> Next {
        if at_ns < JOIN_NS {
            // The terminals begin at different times.
            return Next::Wait(JOIN_NS - at_ns + self.random.below(5_000));
        }
        if let Some(next) = self.connect(terminal.process) {
            return next;
        }
        if terminal.index >= self.in_flight {
            return Next::Stop;
        }
        let writes = self.writes();
        let mut parts: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for is_write in &writes {
            let key = self.key();
            let shard = (((key >> 32) * u64::from(self.run.processes)) >> 32) as u16;
            let len = is_write.then(|| self.run.lengths.draw(&mut self.random));
            put(parts.entry(shard).or_default(), key, len);
        }
        let (kind, class) = match (writes.contains(&true), writes.contains(&false)) {
            (false, _) => (Kind::Read(self.run.read_mode), READ_ONLY),
            (true, false) => (Kind::Write, WRITE_ONLY),
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
