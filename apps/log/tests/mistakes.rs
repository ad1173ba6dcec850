//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

mod fabric;

use std::panic::catch_unwind;

use fabric::leave::leave_beside_return;
use fabric::run::{Faults, crash_while_returning, run};
use fabric::store::JournalStore;
use onepipe_base::mistake::{Mistake, choose};

/// Seeds for each mistake.
const SEEDS: u64 = 200;

fn first_violation(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let found = catch_unwind(|| {
        let ended = run::<JournalStore>(seed, Faults::of_seed(seed), !seed.is_multiple_of(3));
        let (first, leaver) = (seed as usize % 3, seed as usize / 3 % 3);
        ended
            .and_then(|_| crash_while_returning(seed as usize % 60, seed))
            .and_then(|_| leave_beside_return(seed as usize % 60, first, leaver))
            .err()
    });
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
    let found: Vec<_> = Mistake::of_logs().iter().map(first).collect();
    let _ = std::panic::take_hook();
    assert_eq!(correct, None);
    for (title, found) in &found {
        println!("{title}: {found:?}");
    }
    for (title, found) in &found {
        assert!(found.is_some(), "{title} is not detected");
    }
}
