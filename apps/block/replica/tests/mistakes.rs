//! Mutation test: each seeded mistake is detected within a few seeds, and none without one.
//!
//! A single test, because the mistake is selected for the whole process.

mod model;

use std::panic::catch_unwind;

use model::{copies, crashes, damage, reads, repairs};
use onepipe_base::mistake::{Mistake, choose};

/// Seeds for each mistake.
const SEEDS: u64 = 200;

fn first_violation(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let runs = [crashes::run, damage::run, copies::run, reads::run, repairs::run];
    let found = catch_unwind(|| runs.iter().find_map(|run| run(seed).err()));
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
    let found: Vec<_> = Mistake::of_blocks().iter().map(first).collect();
    let _ = std::panic::take_hook();
    assert_eq!(correct, None);
    for (title, found) in &found {
        println!("{title}: {found:?}");
    }
    for (title, found) in &found {
        assert!(found.is_some(), "{title} is not detected");
    }
}
