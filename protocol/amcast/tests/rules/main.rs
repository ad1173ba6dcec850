//! Model checking of the protocol rules: every history of two groups of three members with three
//! messages, loss, duplication, reordering, crashes, and an election while the old leader is live
//! (stateright). This checks the design (`docs/design/amcast.md`); `../model.rs` checks the
//! machines, to a smaller depth.
//!
//! Facts never become false: a state consists of what members have accepted, promised and reported,
//! not of packets. A member may learn of a fact late, repeatedly or never, so loss, duplication and
//! reordering need no steps of their own, and a crashed member simply takes no more steps. Nor does
//! one that has restarted with an empty memory, because the others refuse it. The following reduces
//! the number of states without excluding any failure:
//!
//! - A member that learns of a decision does nothing visible but send a barrier. So decisions are
//!   derived from accepted positions.
//! - A clock rises when a member learns of a timestamp. That only matters when a timestamp is
//!   proposed, a promise given or a barrier sent, so clocks rise in these steps, to any timestamp
//!   that the member can know.
//! - A member that has promised takes no more steps in the first epoch, so promises are given when
//!   they are used: the candidate's and one more when the candidate starts, with any clock possible
//!   by then, and the third when that member installs the new log. A majority that has sent its
//!   clocks includes one of the first two.
//! - A barrier is wrong by itself: one barrier is sent in each history, at any time, based on any
//!   prefix of the log and all other facts, and only if a position at or below it may still arrive
//!   (`Rules::is_dangerous`).
//! - The second group holds no election: its leader's proposals are agreed on as soon as that
//!   matters, and a majority of its clocks rises with its leader's.
//! - Messages for the same groups are symmetric: they are proposed for the first time in order. The
//!   two followers are symmetric as well.

mod model;

use model::{BOTH, BOTH_LEAD, Bug, DECIDED, FIRST, MESSAGES, OTHER, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// Returns the number of states explored, and the violations.
fn found(checker: impl Checker<Rules>) -> (usize, Vec<&'static str>) {
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    (checker.unique_state_count(), found)
}

/// Checks the number of states, that there are no violations, and that the good ends are reached.
/// Depth-first: visited states take few bytes, and pending ones hardly any.
fn check(candidate: usize, groups: [u8; MESSAGES], states: usize) {
    let rules = Rules { groups, candidate, bug: Bug::None };
    let found = found(rules.checker().threads(1).spawn_dfs().join());
    assert_eq!(found, (states, vec![DECIDED, BOTH_LEAD]));
}

/// The leader is elected again: members that may have lost it follow it again.
#[test]
fn every_history_with_reelected_leader() {
    check(0, [BOTH, FIRST, FIRST], 7_223);
    check(0, [BOTH, BOTH, FIRST], 79_889);
    check(0, [BOTH, BOTH, OTHER], 39_614);
}

#[test]
fn every_history_of_one_group_with_new_leader() {
    check(1, [FIRST; MESSAGES], 97_131);
}

#[test]
#[ignore = "half a minute and more: cargo test -p onepipe-amcast --test rules -- --ignored"]
fn every_history_of_two_groups_with_new_leader() {
    check(0, [BOTH; MESSAGES], 420_987);
    check(1, [BOTH, FIRST, FIRST], 1_884_320);
    check(1, [BOTH, FIRST, OTHER], 157_008);
    check(1, [BOTH, BOTH, OTHER], 1_707_222);
}

/// Two messages for both groups, and one for the electing group.
#[test]
#[ignore = "two minutes of a core, 0.6 GB: cargo test -p onepipe-amcast --test rules -- --ignored"]
fn every_history_of_two_common_messages_and_one_more() {
    check(1, [BOTH, BOTH, FIRST], 31_370_762);
}

//= spec/amcast.md#R35
/// The model must be able to detect bugs, one of them a restarted member that votes.
#[test]
fn model_detects_every_mistake() {
    for (bug, candidate, groups) in [
        (Bug::QuorumForgotten, 1, [BOTH, FIRST, FIRST]),
        (Bug::GapsIgnored, 1, [FIRST; MESSAGES]),
        (Bug::PendingForgotten, 1, [FIRST; MESSAGES]),
        (Bug::NewTimestamp, 1, [FIRST; MESSAGES]),
        (Bug::StaleEpoch, 1, [FIRST; MESSAGES]),
        (Bug::AckTwice, 1, [FIRST; MESSAGES]),
        (Bug::RisenClock, 1, [BOTH, FIRST, FIRST]),
        (Bug::OwnLog, 1, [FIRST; MESSAGES]),
        (Bug::OwnClock, 1, [BOTH, FIRST, FIRST]),
        (Bug::VotesWithoutMemory, 1, [FIRST; MESSAGES]),
    ] {
        let rules = Rules { groups, candidate, bug };
        let checker = rules.checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
        let (states, found) = found(checker.spawn_bfs().join());
        let is_wrong = found.iter().any(|found| ![DECIDED, BOTH_LEAD].contains(found));
        assert!(is_wrong, "{bug:?} is not found in {states} states");
    }
}
