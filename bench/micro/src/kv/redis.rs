//! `onepipe kv serve` beside Redis, for clients of Redis.

use anyhow::{Context, Result};

use super::KvOptions;
use super::closed_loop::{drive, runtime};
use super::connections::{MultiSets, ask};
use super::redis_benchmark::{self, BenchmarkLoad, CONNECTIONS, Command};
use super::redis_cluster;
use super::report::KvReport;
use super::rounds::{Rounds, Trial};
use super::server::Server;
use super::workload::Workload;
use crate::Progress;

const ABOUT: &str = "onepipe kv serve with 3 shards, beside redis-server and a Redis cluster of 3 \
                     nodes; 50 connections of redis-benchmark (MULTI/EXEC: of a closed loop); CPU \
                     time of all server processes; the compared side stands at the end of a line";

/// Number of keys of a transaction.
const KEYS: usize = 4;

const REDIS: &str = "redis-server";
const REDIS_FSYNC: &str = "redis-server, appendfsync always";
const CLUSTER: &str = "Redis cluster, 3 nodes";

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Onepipe { replicas: u16, is_durable: bool },
    Redis { is_durable: bool },
    Cluster,
}

const SIDES: [Side; 6] = [
    Side::Onepipe { replicas: 1, is_durable: false },
    Side::Cluster,
    Side::Onepipe { replicas: 3, is_durable: false },
    Side::Redis { is_durable: false },
    Side::Onepipe { replicas: 1, is_durable: true },
    Side::Redis { is_durable: true },
];

impl Side {
    fn name(self) -> String {
        match self {
            Self::Onepipe { replicas, is_durable: false } => {
                format!("onepipe, 3 shards x {replicas}")
            }
            Self::Onepipe { replicas, is_durable: true } => {
                format!("onepipe, 3 shards x {replicas}, fsync always")
            }
            Self::Redis { is_durable: false } => REDIS.into(),
            Self::Redis { is_durable: true } => REDIS_FSYNC.into(),
            Self::Cluster => CLUSTER.into(),
        }
    }

    /// Returns the side with which this one is compared: the cluster, which has shards, too, where
    /// it accepts the load, and one server otherwise.
    fn yardstick(self, load: Load) -> Option<&'static str> {
        match self {
            Self::Onepipe { is_durable: true, .. } => Some(REDIS_FSYNC),
            Self::Onepipe { is_durable: false, .. } if load.is_of_one_key() => Some(CLUSTER),
            Self::Onepipe { is_durable: false, .. } => Some(REDIS),
            Self::Redis { .. } | Self::Cluster => None,
        }
    }

    fn start(self, options: &KvOptions) -> Result<Server> {
        match self {
            Self::Onepipe { replicas, is_durable } => {
                Server::onepipe(&options.program, replicas, is_durable)
            }
            Self::Redis { is_durable } => Server::redis(is_durable),
            Self::Cluster => redis_cluster::start(),
        }
    }
}

/// What clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Benchmark { command: Command, pipeline: u64 },
    Multi,
}

const fn benchmark(command: Command, pipeline: u64) -> Load {
    Load::Benchmark { command, pipeline }
}

/// Reads follow writes, so that they find values.
const LOADS: [Load; 7] = [
    benchmark(Command::Set, 1),
    benchmark(Command::Get, 1),
    benchmark(Command::Set, 16),
    benchmark(Command::Get, 16),
    benchmark(Command::Mset(KEYS), 1),
    benchmark(Command::Mset(KEYS), 16),
    Load::Multi,
];

impl Load {
    fn name(self) -> String {
        match self {
            Self::Benchmark { command, pipeline } => {
                let command = match command {
                    Command::Set => "SET".to_owned(),
                    Command::Get => "GET".to_owned(),
                    Command::Mset(keys) => format!("MSET of {keys} keys"),
                };
                format!("{command}, -P {pipeline}")
            }
            Self::Multi => format!("MULTI/EXEC of {KEYS} SETs"),
        }
    }

    fn is_of_one_key(self) -> bool {
        let command = match self {
            Self::Benchmark { command, .. } => command,
            Self::Multi => return false,
        };
        matches!(command, Command::Set | Command::Get)
    }
}

/// Runs the benchmark.
pub(super) fn run(options: &KvOptions, mut progress: impl FnMut(Progress<'_>)) -> Result<KvReport> {
    let mut rounds = Rounds::default();
    let total = options.runs * SIDES.len() * LOADS.len();
    let mut done = 0;
    for _ in 0..options.runs {
        for side in SIDES {
            let name = side.name();
            let server = side.start(options).with_context(|| format!("starting {name}"))?;
            for load in LOADS {
                let case = format!("{name}: {}", load.name());
                progress(Progress { case: &case, done, total });
                done += 1;
                let outcome =
                    measure(options, side, load, &server).with_context(|| case.clone())?;
                rounds.add(&load.name(), (&name, side.yardstick(load)), outcome);
            }
            server.stop().with_context(|| format!("stopping {name}"))?;
        }
    }
    Ok(rounds.report("kv redis", ABOUT, options.runs))
}

/// Measures a load, or returns the reply with which the side refuses the load.
fn measure(
    options: &KvOptions,
    side: Side,
    load: Load,
    server: &Server,
) -> Result<Result<Trial, String>> {
    if side == Side::Cluster && !load.is_of_one_key() {
        return refusal(server).map(Err);
    }
    match load {
        Load::Benchmark { command, pipeline } => {
            let (value_bytes, keys) = (options.value_bytes, options.keys);
            let load = BenchmarkLoad { command, pipeline, value_bytes, keys };
            by_benchmark(&load, server, side == Side::Cluster, options.seconds).map(Ok)
        }
        Load::Multi => runtime()?.block_on(by_closed_loop(options, server)).map(Ok),
    }
}

fn by_benchmark(
    load: &BenchmarkLoad,
    server: &Server,
    is_cluster: bool,
    seconds: f64,
) -> Result<Trial> {
    let run = |count| redis_benchmark::run(load, server.port(), is_cluster, count);
    // A short run finds how many commands fill the time.
    let least = 20 * CONNECTIONS * load.pipeline;
    let rate = run(least)?.rate;
    let count = least.max((rate * seconds) as u64);
    let before = server.cpu_seconds()?;
    let figures = run(count)?;
    let cpu = server.cpu_seconds()? - before;
    let redis_benchmark::Figures { rate, p50_us, p99_us } = figures;
    Ok(Trial { rate, p50_us, p99_us, cpu_us: cpu * 1e6 / count as f64 })
}

async fn by_closed_loop(options: &KvOptions, server: &Server) -> Result<Trial> {
    let mut connections = Vec::new();
    for seed in 0..CONNECTIONS {
        let workload = Workload::new(seed, options.keys, options.value_bytes);
        connections.push(MultiSets::connect(server.port(), workload, KEYS).await?);
    }
    drive(connections, options.seconds, || server.cpu_seconds()).await
}

/// Returns the reply of a cluster to a command over keys of several slots.
fn refusal(server: &Server) -> Result<String> {
    let words: [&[u8]; 9] = [b"MSET", b"a", b"1", b"b", b"2", b"c", b"3", b"d", b"4"];
    let reply = runtime()?.block_on(ask(server.port(), &words))?;
    let error = reply.strip_prefix('-');
    Ok(error.with_context(|| format!("the cluster accepts keys of several slots: {reply}"))?.into())
}
