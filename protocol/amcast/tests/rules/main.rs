//! The rules of agreed multicast, every history of them: two groups of three members, three
//! messages, loss, copies, disorder, crashes, and an election beside a leader that lives on
//! (stateright). It is the design that is looked at here (docs/design/amcast.md), not the machines:
//! those are in `../model.rs`, not as far.
//!
//! What has been said is never unsaid: a state holds what members have taken, promised and told,
//! not packets. Whoever hears of it may do so late, twice or never; so loss, copies and disorder
//! need no steps of their own, and who has crashed is who takes no more steps. What makes the
//! states few, without leaving out anything that could go wrong:
//!
//! - Who learns that a message is decided does nothing that others see but tell a barrier. So what
//!   is decided is read off what has been taken.
//! - A clock rises when somebody hears of a timestamp. A higher clock matters when a timestamp is
//!   proposed, a promise given or a barrier told, so it rises in these steps, to any timestamp
//!   there is that can have been heard of.
//! - Who has promised is as one that takes no more steps in the first epoch, so promises are given
//!   when they are used: that of the candidate and one more when it begins, with clocks as high as
//!   its own then, and that of the third when it takes the new log. A majority that has told its
//!   clocks has one of the two in it.
//! - A barrier that is wrong is wrong by itself: one is told in each history, any one at any time,
//!   by somebody who knows any beginning of the log and all else that there is; only one at or
//!   below which anything may still come (`Rules::is_dangerous`).
//! - The second group elects nobody: what its leader has proposed is agreed on as soon as it
//!   matters, and a majority of its clocks rises as its leader's does.
//! - Messages for the same groups are alike: they are proposed for the first time in their order.
//!   So are the two followers.

mod model;

use model::{BOTH, BOTH_LEAD, DECIDED, FIRST, MESSAGES, OTHER, Rules, Wrong};
use stateright::{Checker, HasDiscoveries, Model};

/// How many states a search has seen, and what it has found.
fn found(checker: impl Checker<Rules>) -> (usize, Vec<&'static str>) {
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    (checker.unique_state_count(), found)
}

/// In all states, which are so many, nothing is wrong, and the good ends are reached. In depth:
/// what has been seen takes few bytes, what is still to be looked at next to none.
fn check(candidate: usize, groups: [u8; MESSAGES], states: usize) {
    let rules = Rules { groups, candidate, wrong: Wrong::Nothing };
    let found = found(rules.checker().threads(1).spawn_dfs().join());
    assert_eq!(found, (states, vec![DECIDED, BOTH_LEAD]));
}

/// The leader is elected once more: whoever may have lost it follows it again.
#[test]
fn every_history_in_which_the_leader_is_elected_again() {
    check(0, [BOTH, FIRST, FIRST], 7_223);
    check(0, [BOTH, BOTH, FIRST], 79_889);
    check(0, [BOTH, BOTH, OTHER], 39_614);
}

#[test]
fn every_history_of_one_group_in_which_another_one_leads() {
    check(1, [FIRST; MESSAGES], 97_131);
}

#[test]
#[ignore = "half a minute and more: cargo test -p onepipe-amcast --test rules -- --ignored"]
fn every_history_of_two_groups_in_which_another_one_leads() {
    check(0, [BOTH; MESSAGES], 420_987);
    check(1, [BOTH, FIRST, FIRST], 1_884_320);
    check(1, [BOTH, FIRST, OTHER], 157_008);
    check(1, [BOTH, BOTH, OTHER], 1_707_222);
}

/// Two messages for both groups, and one for the one that elects.
#[test]
#[ignore = "two minutes of a core, 0.6 GB: cargo test -p onepipe-amcast --test rules -- --ignored"]
fn every_history_of_two_messages_for_both_groups_and_one_more() {
    check(1, [BOTH, BOTH, FIRST], 31_370_762);
}

/// A model that finds nothing wrong proves nothing.
#[test]
fn every_mistake_is_found() {
    for (wrong, candidate, groups) in [
        (Wrong::QuorumForgotten, 1, [BOTH, FIRST, FIRST]),
        (Wrong::GapsIgnored, 1, [FIRST; MESSAGES]),
        (Wrong::PendingForgotten, 1, [FIRST; MESSAGES]),
        (Wrong::NewTimestamp, 1, [FIRST; MESSAGES]),
        (Wrong::StaleEpoch, 1, [FIRST; MESSAGES]),
        (Wrong::AckTwice, 1, [FIRST; MESSAGES]),
        (Wrong::RisenClock, 1, [BOTH, FIRST, FIRST]),
        (Wrong::OwnLog, 1, [FIRST; MESSAGES]),
        (Wrong::OwnClock, 1, [BOTH, FIRST, FIRST]),
    ] {
        let rules = Rules { groups, candidate, wrong };
        let checker = rules.checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
        let (states, found) = found(checker.spawn_bfs().join());
        let is_wrong = found.iter().any(|found| ![DECIDED, BOTH_LEAD].contains(found));
        assert!(is_wrong, "{wrong:?} is not found in {states} states");
    }
}
