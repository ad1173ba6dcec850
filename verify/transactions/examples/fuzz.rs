//! `cargo run --release -p onepipe-verify-transactions --example fuzz [FIRST [COUNT]]`: runs random
//! scenarios, and prints one line of JSON for each that fails, and one for all.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use onepipe_verify_transactions::{Counts, Report, run};

/// Totals over many seeds.
#[derive(Default)]
struct Totals {
    seeds: u64,
    failed: u64,
    without_shard: u64,
    undecided: u64,
    counts: Counts,
    retried: u64,
    inexact: u64,
    asked: u64,
    faults: BTreeMap<&'static str, u64>,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.failed += u64::from(!report.is_ok());
        self.without_shard += u64::from(report.lost_shards > 0);
        self.undecided += report.undecided;
        self.counts.writes += report.counts.writes;
        self.counts.strict_reads += report.counts.strict_reads;
        self.counts.snapshot_reads += report.counts.snapshot_reads;
        self.counts.unavailable += report.counts.unavailable;
        self.counts.repeated += report.counts.repeated;
        self.retried += report.retried;
        self.inexact += report.inexact;
        self.asked += report.asked;
        for (name, count) in &report.faults {
            *self.faults.entry(name).or_default() += count;
        }
    }
}

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (first, count) =
        (numbers.first().copied().unwrap_or(0), numbers.get(1).copied().unwrap_or(100));
    let (started, mut totals) = (Instant::now(), Totals::default());
    for seed in first..first + count {
        let report = run(seed);
        totals.add(&report);
        if !report.is_ok() {
            println!(
                r#"{{"seed":{seed},"violations":{:?},"faults":{:?}}}"#,
                report.violations, report.faults
            );
        }
    }
    let Totals { counts, faults, .. } = &totals;
    println!(
        r#"{{"first":{first},"seeds":{},"failed":{},"without_shard":{},"undecided":{},"writes":{},"strict_reads":{},"snapshot_reads":{},"unavailable":{},"repeated":{},"retried":{},"inexact":{},"asked":{},"faults":{faults:?},"seconds":{:.1}}}"#,
        totals.seeds,
        totals.failed,
        totals.without_shard,
        totals.undecided,
        counts.writes,
        counts.strict_reads,
        counts.snapshot_reads,
        counts.unavailable,
        counts.repeated,
        totals.retried,
        totals.inexact,
        totals.asked,
        started.elapsed().as_secs_f64(),
    );
    if totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
