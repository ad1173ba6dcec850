//! Mutation test: each seeded mistake of the machines is detected within a few seeds, and none
//! without one.
//!
//! A single test, because the mistake is selected for the whole process.

#[path = "memory/model/mod.rs"]
mod model;

use std::panic::catch_unwind;

use onepipe_base::mistake::{Mistake, choose};

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

fn first_violation(mistake: Option<Mistake>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        choose(mistake);
        let found = catch_unwind(|| model::run(seed).err());
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
        assert!(found.is_some(), "{title} is not detected");
    }
}
