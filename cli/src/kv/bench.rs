//! `onepipe kv bench`: the store and TPC-C beside their rivals.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use onepipe_bench_micro::{KvCase, KvOptions, KvReport, Progress as BenchProgress, kv};
use serde_json::json;

use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  onepipe kv bench --list
  onepipe kv bench                         everything that can run here
  onepipe kv bench redis --seconds 5       needs redis-server and redis-tools
  onepipe kv bench etcd --concurrency 1,64
  onepipe kv bench tpcc --warehouses 8 --json | tail -n 1

Each side is started, measured and stopped in turn, --runs times; figures are medians. Files of
durable sides are in the folder for temporary files: TMPDIR=DIR chooses another disk.";

/// Measure the store and TPC-C, each beside its rivals: rate, latency, CPU time
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Benchmarks to run [default: all that can run here]
    #[arg(value_enum)]
    names: Vec<Name>,
    /// List the benchmarks
    #[arg(long)]
    list: bool,
    /// Number of rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Length of each measurement in seconds
    #[arg(long, default_value = "1", value_parser = crate::units::seconds)]
    seconds: f64,
    /// Size of a value
    #[arg(long, default_value = "64", value_parser = crate::units::bytes)]
    size: usize,
    /// Number of different keys
    #[arg(long, default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Numbers of connections (etcd), or of transactions in flight (tpcc)
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: Vec<u16>,
    /// Numbers of operations in a transaction (embedded)
    #[arg(long, value_delimiter = ',', default_value = "2,8,32,128,512")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    operations: Vec<u16>,
    /// Shares of transactions that write, in percent (embedded)
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,5,50,100")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    writes: Vec<u8>,
    /// Number of warehouses, each with three replicas (tpcc)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    warehouses: u16,
    /// Sizes of the tables in percent of the specification's; a replica of a warehouse takes about
    /// 100 MB at 100 (tpcc)
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    scale: u32,
    /// Program `onepipe` whose `kv serve` is measured, for example of another version [default:
    /// this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Print the reports as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Redis clients: SET, GET, MSET, MULTI/EXEC, beside redis-server and a Redis cluster
    Redis,
    /// Transactions of 4 writes on 3 shards, beside those of etcd
    Etcd,
    /// The library without a network, by size and share of writes, beside Redis on a Unix socket
    Embedded,
    /// TPC-C's New-Order and Payment on three replicas, with its consistency conditions
    Tpcc,
}

impl Name {
    const fn case(self) -> KvCase {
        match self {
            Self::Redis => KvCase::Redis,
            Self::Etcd => KvCase::Etcd,
            Self::Embedded => KvCase::Embedded,
            Self::Tpcc => KvCase::Tpcc,
        }
    }
}

/// Runs the benchmarks, and prints their reports.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut out = stdout().lock();
    if arguments.list {
        for name in Name::value_variants() {
            let Some(value) = name.to_possible_value() else { continue };
            let about = value.get_help().map(ToString::to_string).unwrap_or_default();
            writeln!(out, "{:12} {about}", value.get_name())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let options = options(arguments)?;
    // Servers and their files would outlive this process.
    crate::interrupt::on_interrupt(|| {
        onepipe_bench_micro::cleanup();
        std::process::exit(crate::interrupt::EXIT_STATUS.into());
    })?;
    let mut reports = Vec::new();
    for case in cases(&arguments.names)? {
        let report = measure(case, &options)?;
        if !arguments.json {
            write!(out, "{report}")?;
            writeln!(out)?;
        }
        reports.push(report);
    }
    if arguments.json {
        writeln!(out, "{}", json!({"bench": "kv", "reports": reports}))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the benchmarks to run. One that was asked for and cannot run is an error.
fn cases(names: &[Name]) -> Result<Vec<KvCase>> {
    let mut cases: Vec<KvCase> = names.iter().map(|name| name.case()).collect();
    if cases.is_empty() {
        cases = KvCase::ALL.to_vec();
        cases.retain(|case| {
            let obstacle = case.obstacle();
            if let Some(obstacle) = &obstacle {
                eprintln!("onepipe: without kv bench {}: {obstacle}", case.name());
            }
            obstacle.is_none()
        });
    }
    match cases.iter().find_map(|case| Some((case, case.obstacle()?))) {
        Some((case, obstacle)) => bail!("kv bench {} cannot run: {obstacle}", case.name()),
        None => Ok(cases),
    }
}

fn measure(case: KvCase, options: &KvOptions) -> Result<KvReport> {
    let mut bar = Progress::new();
    let show =
        |run: BenchProgress<'_>| bar.show(run.done as f64 / run.total.max(1) as f64, run.case);
    kv(case, options, show).with_context(|| format!("kv bench {}", case.name()))
}

fn options(arguments: &Arguments) -> Result<KvOptions> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("finding this program")?,
    };
    let counts = |counts: &[u16]| counts.iter().map(|count| usize::from(*count)).collect();
    Ok(KvOptions {
        program,
        runs: arguments.runs as usize,
        seconds: arguments.seconds,
        value_bytes: arguments.size,
        keys: arguments.keys,
        concurrency: counts(&arguments.concurrency),
        operations: counts(&arguments.operations),
        write_percents: arguments.writes.clone(),
        warehouses: arguments.warehouses,
        scale_percent: arguments.scale,
    })
}
