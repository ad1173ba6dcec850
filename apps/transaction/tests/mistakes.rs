//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

#[path = "transaction/fabric/mod.rs"]
mod fabric;

use std::panic::catch_unwind;

use fabric::Faults;
use fabric::check::run;
use onepipe_base::mistake::{Mistake, choose};

/// Seeds for each mistake.
const SEEDS: u64 = 400;

fn first_violation(mistake: Option<Mistake>, seed: u64) -> Option<String> {
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
    choose(mistake);
    let found = catch_unwind(|| run(seed, faults).err());
    choose(None);
    found.unwrap_or_else(|_| Some("an assertion failed".into()))
}

#[test]
fn detects_every_mistake_and_no_false_positive() {
    std::panic::set_hook(Box::new(|_| {}));
    let correct = (0..SEEDS).find_map(|seed| first_violation(None, seed));
    let first = |mistake: &Mistake| {
        let found =
            (0..SEEDS).find_map(|seed| Some((seed, first_violation(Some(*mistake), seed)?)));
        (mistake.title(), found)
    };
    let found: Vec<_> = Mistake::of_transactions().iter().map(first).collect();
    let _ = std::panic::take_hook();
    assert_eq!(correct, None);
    for (title, found) in &found {
        assert!(found.is_some(), "{title} is not detected");
    }
}
