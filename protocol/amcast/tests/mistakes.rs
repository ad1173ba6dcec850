//! Mutation test: each seeded bug must be detected at a seed that shows no violation without it;
//! one of them in a dedicated scenario.
//!
//! A single test, because the bug is selected for the whole process.

#[path = "refinement/drawn.rs"]
mod drawn;
#[path = "rules/model.rs"]
#[allow(dead_code)]
mod model;
#[path = "refinement/observer.rs"]
mod observer;
mod world;

use std::panic::catch_unwind;

use onepipe_amcast::GroupSet;
use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, choose};
use onepipe_wire::{Frame, Opcode};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use world::{Plan, World};

/// Bugs that random histories miss, as they take an election between two particular packets. See
/// [`a_leader_dies_with_what_only_it_has_heard`].
const MISSED: &[&str] = &["quorum-forgotten"];
/// Number of seeds per bug.
const SEEDS: u64 = 600;
/// Number of histories that are checked against the rules.
const HISTORIES: usize = 3_000;

fn shown(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    let found = catch_unwind(|| World::new(Plan::draw(seed)).run());
    choose(None);
    found.unwrap_or_else(|_| Some("a machine finds itself wrong".into()))
}

/// Group 0 is {0, 1, 2}, group 1 {3, 4, 5}. Only the leader of group 0 receives from group 1, and
/// no member receives the leader's clock.
fn only_the_leader_hears(world: &World, frame: &Frame<'_>) -> bool {
    let (ProcessId(src), ProcessId(dst)) = (frame.header.src(), frame.header.dst());
    let is_follower = dst == 1 || dst == 2;
    let is_deaf = (3..6).contains(&src) || (src == 0 && frame.opcode == Opcode::AmcastAck);
    world.now < 1_000_000 && is_follower && is_deaf
}

/// The final timestamp of a message comes from the other group and is far above the clocks here. If
/// a leader lets its replicas deliver there before a majority knows that clock, and crashes, the
/// next leader proposes below.
fn a_leader_dies_with_what_only_it_has_heard(mistake: Option<Mistake>) -> Option<String> {
    choose(mistake);
    let mut world = World::new(Plan { members: vec![3, 3], clients: 2, ..Plan::calm() });
    world.cuts = only_the_leader_hears;
    // The clock of group 1 runs ahead.
    for _ in 0..6 {
        assert!(world.send_one(0, GroupSet::from_bits(0b10)));
    }
    world.run_until(200_000);
    assert!(world.send_one(1, GroupSet::from_bits(0b11)));
    // The client sends the message on its next timeout.
    world.run_until(300_000);
    world.members[0] = None;
    world.elect(1);
    assert!(world.send_one(1, GroupSet::from_bits(0b01)));
    let wrong = world.run();
    choose(None);
    wrong
}

/// Returns the number of histories until members violate the rules.
fn refuted(mistake: Mistake) -> Option<usize> {
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(33), ..ProptestConfig::default() };
    let (mut runner, histories) = (TestRunner::new(config), drawn::histories());
    choose(Some(mistake));
    let found = (1..=HISTORIES).find(|_| {
        let history = histories.new_tree(&mut runner).expect("nothing is rejected").current();
        !catch_unwind(|| history.live()).is_ok_and(|lived| lived.is_ok())
    });
    choose(None);
    found
}

#[test]
fn every_mistake_is_caught_and_nothing_without_it() {
    // Panics are caught and counted.
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mistake in Mistake::of_amcast() {
        let is_caught =
            |seed: &u64| shown(Some(*mistake), *seed).is_some() && shown(None, *seed).is_none();
        if !(0..SEEDS).any(|seed| is_caught(&seed)) {
            missed.push(mistake.title());
        }
    }
    for mistake in Mistake::of_amcast() {
        assert!(refuted(*mistake).is_some(), "{}: as the rules say", mistake.title());
    }
    let _ = std::panic::take_hook();
    assert_eq!(missed, MISSED, "by {SEEDS} seeds");
    assert_eq!(a_leader_dies_with_what_only_it_has_heard(None), None);
    let shown = a_leader_dies_with_what_only_it_has_heard(Some(Mistake::QuorumForgotten));
    let told = "is over and was not delivered";
    assert!(shown.is_some_and(|wrong| wrong.contains(told)), "a replica had passed it");
}
