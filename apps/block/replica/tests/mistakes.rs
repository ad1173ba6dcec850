//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

mod model;

use model::{copies, crashes, damage, reads, repairs};
use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_testing::Mistakes;

/// Seeds for each mistake.
const SEEDS: u64 = 200;

#[test]
fn detects_every_mistake_and_no_false_positive() {
    let mistakes = Mistakes { all: Mistake::of_blocks(), choose, title: Mistake::title };
    mistakes.detect(SEEDS, |seed| {
        let runs = [crashes::run, damage::run, copies::run, reads::run, repairs::run];
        runs.iter().find_map(|run| run(seed).err())
    });
}
