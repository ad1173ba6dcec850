//! The key-value store and TPC-C, each beside its rivals in the same run.
//!
//! Sides take turns: in each round every side is started, measured under all loads and stopped, so
//! that all see the same state of the machine and none takes CPU time from another. Reports give
//! medians over the rounds. The CPU time of the servers counts most on a machine whose cores the
//! load generator shares: it depends least on what else the machine does.

mod closed_loop;
mod connections;
mod cpu_time;
mod embedded;
#[cfg(feature = "etcd")]
mod etcd;
pub(crate) mod in_process;
mod redis;
mod redis_benchmark;
mod redis_cluster;
mod redis_socket;
mod report;
pub(crate) mod rounds;
pub(crate) mod server;
mod tpcc;
mod workload;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::Progress;

pub use report::{KvLoad, KvReport, KvSide};
pub use server::cleanup_kv;

/// A benchmark of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvCase {
    /// Redis clients: beside a Redis server and a Redis cluster.
    Redis,
    /// Transactions of four writes: beside those of etcd.
    Etcd,
    /// The library in this process: beside Redis over a Unix socket.
    Embedded,
    /// TPC-C's New-Order and Payment.
    Tpcc,
}

impl KvCase {
    /// All benchmarks, in the order in which they run.
    pub const ALL: [Self; 4] = [Self::Redis, Self::Etcd, Self::Embedded, Self::Tpcc];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Etcd => "etcd",
            Self::Embedded => "embedded",
            Self::Tpcc => "tpcc",
        }
    }

    /// Returns why the benchmark cannot run here, and what to do about it; `None` if it can.
    pub fn obstacle(self) -> Option<String> {
        let missing = |program: &'static str, package| {
            let is_there = server::is_installed(program);
            let how = || format!("{program} is not installed: apt-get install --yes {package}");
            (!is_there).then(how)
        };
        match self {
            Self::Redis => missing("redis-server", "redis-server")
                .or_else(|| missing("redis-benchmark", "redis-tools"))
                .or_else(|| missing("redis-cli", "redis-tools")),
            Self::Etcd if !cfg!(feature = "etcd") => Some(
                "this program was built without the feature etcd: cargo install --locked --path \
                 cli --features etcd"
                    .into(),
            ),
            Self::Etcd => missing("etcd", "etcd-server"),
            Self::Embedded => missing("redis-server", "redis-server"),
            Self::Tpcc => None,
        }
    }
}

/// Options of [`kv`].
#[derive(Clone, Debug, PartialEq)]
pub struct KvOptions {
    /// The program `onepipe`, whose `kv serve` is measured.
    pub program: PathBuf,
    /// Number of rounds, from 1. Default 3.
    pub runs: usize,
    /// Length of each measurement, in s. Default 1.
    pub seconds: f64,
    /// Size of values in bytes, 1 to 65,536. Default 64.
    pub value_bytes: usize,
    /// Number of different keys. Default 100,000.
    pub keys: u64,
    /// Numbers of connections of the load generator (etcd), and of transactions in flight (tpcc).
    /// Default 1, 16 and 64.
    pub concurrency: Vec<usize>,
    /// Numbers of operations in a transaction (embedded). Default 2 to 512.
    pub operations: Vec<usize>,
    /// Shares of transactions that write, in percent (embedded). Default 0 to 100.
    pub write_percents: Vec<u8>,
    /// Number of warehouses (tpcc). Default 4, as in 1Pipe section 7.3.2.
    pub warehouses: u16,
    /// Sizes of the tables in percent of the specification's, 1 to 100 (tpcc). Default 100: a
    /// replica of a warehouse takes about 100 MB.
    pub scale_percent: u32,
}

impl KvOptions {
    /// Returns the defaults, with this program as the store.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            runs: 3,
            seconds: 1.0,
            value_bytes: 64,
            keys: 100_000,
            concurrency: vec![1, 16, 64],
            operations: vec![2, 8, 32, 128, 512],
            write_percents: vec![0, 5, 50, 100],
            warehouses: 4,
            scale_percent: 100,
        }
    }

    fn check(&self) -> Result<()> {
        ensure!((1..=100).contains(&self.runs), "1 to 100 runs, not {}", self.runs);
        ensure!((1..=1 << 16).contains(&self.value_bytes), "values have 1 to 65536 bytes");
        ensure!(self.keys > 0, "at least one key");
        let counts = self.concurrency.iter().chain(&self.operations);
        ensure!(
            counts.into_iter().all(|count| (1..=1_024).contains(count)),
            "counts are 1 to 1024"
        );
        ensure!(self.write_percents.iter().all(|share| *share <= 100), "shares are at most 100 %");
        ensure!((1..=64).contains(&self.warehouses), "1 to 64 warehouses");
        ensure!((1..=100).contains(&self.scale_percent), "the scale is 1 to 100 percent");
        Ok(())
    }
}

/// Runs a benchmark.
///
/// # Errors
/// An option is out of range, [`KvCase::obstacle`] is in the way, a server does not start or does
/// not answer as it must, or a condition on the data is violated.
pub fn kv(
    case: KvCase,
    options: &KvOptions,
    progress: impl FnMut(Progress<'_>),
) -> Result<KvReport> {
    options.check()?;
    match case {
        KvCase::Redis => redis::run(options, progress),
        #[cfg(feature = "etcd")]
        KvCase::Etcd => etcd::run(options, progress),
        #[cfg(not(feature = "etcd"))]
        KvCase::Etcd => anyhow::bail!("{}", case.obstacle().unwrap_or_default()),
        KvCase::Embedded => embedded::run(options, progress),
        KvCase::Tpcc => tpcc::run(options, progress),
    }
}
