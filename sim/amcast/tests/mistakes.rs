//! The machines of agreed multicast with one mistake each (`--features mistakes`; CI has a step for
//! it): what checks histories must catch each, at a seed at which nothing is wrong without it. How
//! many seeds it takes from 0 on is what `cargo xtask bugs` prints.
//!
//! All in one test, for the mistake is chosen for the whole program.

use onepipe_base::mistake::Mistake;
use onepipe_sim_amcast::{CAUGHT_BY_SEEDS, caught};
use onepipe_sim_check::drill_known;

/// Each mistake, and a seed that shows it.
const FIRST_SEEDS: &[(Mistake, u64)] = &[
    (Mistake::QuorumForgotten, 103),
    (Mistake::GapsIgnored, 1),
    (Mistake::PendingForgotten, 1),
    (Mistake::NewTimestamp, 3),
    (Mistake::StaleEpoch, 49),
    (Mistake::AckTwice, 44),
    (Mistake::ProposedTwice, 0),
];

#[test]
fn every_mistake_is_caught_and_nothing_without_it() {
    assert!(FIRST_SEEDS.iter().map(|(mistake, _)| mistake).eq(CAUGHT_BY_SEEDS));
    assert_eq!(drill_known(FIRST_SEEDS, |_, _| true, caught), Vec::<&str>::new());
}
