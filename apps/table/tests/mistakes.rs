//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

mod fabric;

use std::panic::catch_unwind;

use onepipe_base::mistake::{Mistake, choose};

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

fn first_violation(mistake: Option<Mistake>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        choose(mistake);
        let found = catch_unwind(|| fabric::run(seed).err());
        choose(None);
        Some((seed, found.unwrap_or_else(|_| Some("an assertion failed".into()))?))
    })
}

#[test]
fn detects_every_mistake_and_no_false_positive() {
    std::panic::set_hook(Box::new(|_| {}));
    let correct = first_violation(None);
    let found = MISTAKES.map(|mistake| (mistake.title(), first_violation(Some(mistake))));
    let _ = std::panic::take_hook();
    assert_eq!(correct, None);
    for (title, found) in &found {
        println!("{title}: {found:?}");
    }
    for (title, found) in &found {
        assert!(found.is_some(), "{title} is not detected");
    }
}
