//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

#[path = "transaction/fabric/mod.rs"]
mod fabric;

use fabric::Faults;
use fabric::check::run;
use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_testing::Mistakes;

/// Seeds for each mistake.
const SEEDS: u64 = 400;

fn violation(seed: u64) -> Option<String> {
    // Replicas that fail, and do not return, start again with all others.
    let restarts = if seed % 4 == 2 { 2 } else { 0 };
    let faults = Faults {
        lost: 8,
        reply_lost: 8,
        unknown: 8,
        fails: seed.is_multiple_of(2),
        returns: seed.is_multiple_of(4),
        is_durable: seed.is_multiple_of(3) || restarts > 0,
        restarts,
    };
    run(seed, faults).err()
}

#[test]
fn detects_every_mistake_and_no_false_positive() {
    let mistakes = Mistakes { all: Mistake::of_transactions(), choose, title: Mistake::title };
    mistakes.detect(SEEDS, violation);
}
