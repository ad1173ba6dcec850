//! `onepipe bench peers`: its options.

use anyhow::Result;
use onepipe_bench_micro::{PeersOptions, Progress, Report, peers};

use super::Arguments;

/// Runs the benchmark.
pub fn run(arguments: &Arguments, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let options = options(arguments);
    peers(&options, progress)
}

fn options(arguments: &Arguments) -> PeersOptions {
    let defaults = PeersOptions::default();
    let processes = arguments.processes.unwrap_or(defaults.processes);
    if !(2..=16).contains(&processes) {
        crate::usage_error("bench peers takes 2 to 16 processes");
    }
    if arguments.transport.is_some() {
        crate::usage_error("bench peers takes no --transport: each rival has its own");
    }
    if arguments.size.len() > 1 {
        crate::usage_error("bench peers takes one --size");
    }
    PeersOptions {
        processes,
        rate: arguments.rate.map_or(defaults.rate, f64::from),
        bytes: arguments.size.first().copied().unwrap_or(defaults.bytes),
        runs: arguments.runs.map_or(defaults.runs, |runs| runs as usize),
        seconds: arguments.seconds.unwrap_or(defaults.seconds),
        ..defaults
    }
}
