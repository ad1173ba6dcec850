//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

mod fabric;

use fabric::leave::leave_beside_return;
use fabric::run::{Faults, crash_while_returning, run};
use fabric::store::JournalStore;
use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_testing::Mistakes;

/// Seeds for each mistake.
const SEEDS: u64 = 200;

fn violation(seed: u64) -> Option<String> {
    let ended = run::<JournalStore>(seed, Faults::of_seed(seed), !seed.is_multiple_of(3));
    let (first, leaver) = (seed as usize % 3, seed as usize / 3 % 3);
    ended
        .and_then(|_| crash_while_returning(seed as usize % 60, seed))
        .and_then(|_| leave_beside_return(seed as usize % 60, first, leaver))
        .err()
}

#[test]
fn detects_every_mistake_and_no_false_positive() {
    let mistakes = Mistakes { all: Mistake::of_logs(), choose, title: Mistake::title };
    mistakes.detect(SEEDS, violation);
}
