//! The machines with one mistake each: what checks histories must catch each of them but one, at a
//! seed at which nothing is wrong without it.
//!
//! All in one test, for the mistake is chosen for the whole program.

mod world;

use std::panic::catch_unwind;

use onepipe_base::mistake::{Mistake, choose};
use world::{Plan, World};

/// What histories drawn so do not show: it takes an election between two particular packets.
const MISSED: &[&str] = &["quorum-forgotten"];
/// How many seeds each gets.
const SEEDS: u64 = 600;

fn shown(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let found = catch_unwind(|| World::new(Plan::draw(seed)).run());
    choose(None);
    found.unwrap_or_else(|_| Some("a machine finds itself wrong".into()))
}

#[test]
fn every_mistake_is_caught_and_nothing_without_it() {
    // What panics is caught, and counts.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mistake in Mistake::of_amcast() {
        let is_caught =
            |seed: &u64| shown(Some(*mistake), *seed).is_some() && shown(None, *seed).is_none();
        if !(0..SEEDS).any(|seed| is_caught(&seed)) {
            missed.push(mistake.title());
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(missed, MISSED, "by {SEEDS} seeds");
}
