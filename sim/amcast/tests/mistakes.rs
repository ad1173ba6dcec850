//! Mutation test of agreed multicast (`--features mistakes`; a step of CI): each seeded bug must be
//! detected at a seed that shows no violation without it. `cargo xtask bugs` prints how many seeds
//! it takes from 0 on.
//!
//! A single test, because the bug is selected for the whole process.

use onepipe_base::mistake::Mistake;
use onepipe_sim_amcast::{CAUGHT_BY_SEEDS, caught};
use onepipe_sim_check::run_known_mutations;

/// Bugs with a seed that detects each.
const FIRST_SEEDS: &[(Mistake, u64)] = &[
    (Mistake::QuorumForgotten, 1),
    (Mistake::GapsIgnored, 1),
    (Mistake::PendingForgotten, 0),
    (Mistake::NewTimestamp, 3),
    (Mistake::StaleEpoch, 0),
    (Mistake::AckTwice, 0),
    (Mistake::ProposedTwice, 0),
    (Mistake::VotesWithoutMemory, 15),
];

#[test]
fn detects_every_mistake_and_no_false_positive() {
    assert!(FIRST_SEEDS.iter().map(|(mistake, _)| mistake).eq(CAUGHT_BY_SEEDS));
    assert_eq!(run_known_mutations(FIRST_SEEDS, |_, _| true, caught), Vec::<&str>::new());
}
