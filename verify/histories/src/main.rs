//! Prints one digest for each of several hundred deterministic runs: `case digest`, sorted.
//!
//! `cargo xtask same` compares the output with `testdata/histories.txt`. Equal digests mean that a
//! change left the behaviour of every machine as it was: the same frames at the same instants, the
//! same deliveries, grants, paths and block schedules. A digest never depends on a name in the
//! source.

#![forbid(unsafe_code)]

mod digest;
mod overlay;
mod simulated;
mod tables;

use std::sync::atomic::AtomicBool;

use onepipe_sim_engine::Seeds;

/// A run: its name, and the function that returns its digest.
pub struct Case {
    name: String,
    run: Box<dyn Fn() -> u64 + Sync>,
}

impl Case {
    fn new(name: String, run: impl Fn() -> u64 + Sync + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }
}

fn main() {
    let cases: Vec<Case> =
        [simulated::cases(), overlay::cases(), tables::cases()].into_iter().flatten().collect();
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let seeds = Seeds { first: 0, count: cases.len() as u64, jobs };
    let mut lines = Vec::new();
    seeds.for_each(
        &AtomicBool::new(false),
        |index| (cases[index as usize].run)(),
        |index, digest| lines.push(format!("{} {digest:016x}", cases[index as usize].name)),
    );
    lines.sort_unstable();
    for line in lines {
        println!("{line}");
    }
}
