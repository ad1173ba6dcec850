//! Mutation test: each seeded mistake of the machines is detected within a few seeds, and none
//! without one.
//!
//! A single test, because the mistake is selected for the whole process.

#[path = "memory/model/mod.rs"]
mod model;

use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_testing::Mistakes;

/// Seeds for each mistake.
const SEEDS: u64 = 100;
/// The mistakes of owners and their clients; tables make the others.
const MISTAKES: [Mistake; 6] = [
    Mistake::MemoryReadAtDelivery,
    Mistake::BatchExecutedTwice,
    Mistake::BoundOfFirstByte,
    Mistake::FailedCompareIgnored,
    Mistake::RefusedInPart,
    Mistake::OneOwnerOfAll,
];

#[test]
fn detects_every_mistake_and_no_false_positive() {
    let mistakes = Mistakes { all: &MISTAKES, choose, title: Mistake::title };
    mistakes.detect(SEEDS, |seed| model::run(seed).err());
}
