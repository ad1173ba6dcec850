//! `cargo run --release -p onepipe-verify-memory --example fuzz -- FROM TO`: runs the random
//! scenarios of these seeds, and prints what is wrong, and what they contained.

use std::collections::BTreeMap;
use std::process::ExitCode;

use onepipe_verify_memory::run;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let (Some(from), Some(to)) = (numbers.next(), numbers.next()) else {
        eprintln!("usage: fuzz FROM TO");
        return ExitCode::from(2);
    };
    let (mut wrong, mut undecided) = (0_u64, 0);
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in from..to {
        let report = run(seed);
        let counts = [
            ("calls", report.calls),
            ("changes", report.changes),
            ("in doubt", report.in_doubt),
            ("walks begun again", report.restarted),
            ("changes tried again", report.conflicts),
            ("repeated batches", report.repeated),
            ("questions for replies", report.asked),
        ];
        for (name, count) in counts.into_iter().chain(report.faults.iter().map(|(n, c)| (*n, *c))) {
            *sums.entry(name).or_default() += count;
        }
        undecided += report.undecided;
        if !report.is_ok() {
            wrong += 1;
            println!("seed {seed}: {report:#?}");
        }
    }
    sums.iter().for_each(|(name, count)| println!("{name}: {count}"));
    println!("{} seeds, {wrong} with violations, {undecided} undecided", to.saturating_sub(from));
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
