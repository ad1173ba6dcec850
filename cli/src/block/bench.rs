//! `onepipe block bench`: the replicated device beside primary–backup replication and peers.

use std::fmt::Display;
use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe_bench_micro::{
    BlockOptions, BlockRecoveryOptions, Progress as BenchProgress, block, block_peers,
    block_peers_obstacle, block_recovery,
};
use serde::Serialize;
use serde_json::json;

use crate::progress::Progress;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  onepipe block bench
  onepipe block bench --depth 1 --seconds 10 --runs 5
  onepipe block bench --peers                        beside qemu's quorum and Ceph, by fio
  onepipe block bench --recovery 1GiB
  TMPDIR=/mnt/disk onepipe block bench --json        files on another disk

Random writes of 4 KiB, each durable on three replicas before its reply: of this program, of
primary-backup replication whose replicas write one after the other, and of a local file. Each side
is started, measured and stopped in turn, --runs times; figures are medians. All files are in the
folder for temporary files.

With --recovery a replica is away while these bytes are written, and starts again while clients
write: how long it takes, beside a replica without files, which gets a copy of the whole device.";

/// Measure random writes, beside primary-backup replication: rate, latency, CPU time
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Number of rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Length of each measurement in seconds
    #[arg(long, default_value = "2", value_parser = units::seconds)]
    seconds: f64,
    /// Numbers of writes in flight
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=512))]
    depth: Vec<u16>,
    /// Size of the device
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = units::bytes)]
    size: usize,
    /// Compare with peers that are installed instead: qemu's quorum and Ceph, all driven by fio
    #[arg(long, conflicts_with = "recovery")]
    peers: bool,
    /// Measure how long a replica takes that was away while these bytes were written; the device
    /// has twice as many
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    #[arg(conflicts_with_all = ["runs", "seconds", "depth", "size"])]
    recovery: Option<usize>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the benchmark, and prints its report.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    // Files would outlive this process.
    crate::interrupt::on_interrupt(|| {
        onepipe_bench_micro::cleanup();
        std::process::exit(crate::interrupt::EXIT_STATUS.into());
    })?;
    let mut bar = Progress::new();
    let show =
        |run: BenchProgress<'_>| bar.show(run.done as f64 / run.total.max(1) as f64, run.case);
    if let Some(bytes) = arguments.recovery {
        let options = BlockRecoveryOptions { stale_bytes: bytes as u64 };
        return print(arguments.json, &block_recovery(&options, show)?);
    }
    let options = BlockOptions {
        runs: arguments.runs as usize,
        seconds: arguments.seconds,
        depths: arguments.depth.iter().map(|depth| usize::from(*depth)).collect(),
        size: arguments.size as u64,
    };
    if !arguments.peers {
        return print(arguments.json, &block(&options, show)?);
    }
    if let Some(obstacle) = block_peers_obstacle() {
        bail!("cannot compare with peers: {obstacle}");
    }
    let program = std::env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    print(arguments.json, &block_peers(&options, program, show)?)
}

fn print(is_json: bool, report: &(impl Serialize + Display)) -> Result<ExitCode> {
    let mut out = stdout().lock();
    match is_json {
        true => writeln!(out, "{}", json!({"bench": "block", "reports": [report]}))?,
        false => write!(out, "{report}")?,
    }
    Ok(ExitCode::SUCCESS)
}
