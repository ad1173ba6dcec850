//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

mod fabric;

use onepipe_base::mistake::{Mistake, choose};
use onepipe_verify_testing::Mistakes;

/// Seeds for each mistake.
const SEEDS: u64 = 2_000;
/// The mistakes that calls of a table can show. Those of bounds and refusals need requests that no
/// client of a table sends, and a request that completes at the first reply remains linearizable.
const MISTAKES: [Mistake; 8] = [
    Mistake::MemoryReadAtDelivery,
    Mistake::BatchExecutedTwice,
    Mistake::FailedCompareIgnored,
    Mistake::PointerBeforeNode,
    Mistake::VersionIgnored,
    Mistake::ReusedBeforeRemoved,
    Mistake::MissAtFirstNode,
    Mistake::LookUpInOwnerOrder,
];

#[test]
fn detects_every_mistake_and_no_false_positive() {
    let mistakes = Mistakes { all: &MISTAKES, choose, title: Mistake::title };
    mistakes.detect(SEEDS, |seed| fabric::run(seed).err());
}
