//! Correct histories of agreed multicast, and incorrect ones that must be rejected.

use onepipe_base::ProcessId;
use onepipe_sim_check::{AgreedChecker, Membership};
use onepipe_wire::{Amcast, GroupId, GroupSet, LogicalTime, MessageId};

const ONE: GroupSet = GroupSet::from_bits(0b01);
const BOTH: GroupSet = GroupSet::from_bits(0b11);

fn id(sequence: u32) -> MessageId {
    MessageId { client: 0, sequence }
}

fn position(timestamp: u64, sequence: u32) -> (LogicalTime, MessageId) {
    (LogicalTime(timestamp), id(sequence))
}

/// Process 0 orders for group 0 and process 1 for group 1; 2 is the client, 3 the coordinator.
/// Replicas 0 and 1 belong to group 0, replica 2 to group 1. Two messages were sent.
fn checker() -> AgreedChecker {
    let membership = Membership {
        of: vec![ONE, GroupSet::from_bits(0b10), GroupSet::EMPTY, GroupSet::EMPTY],
        clients: vec![ProcessId(2)],
        coordinators: vec![ProcessId(3)],
    };
    let mut checker = AgreedChecker::new(membership, [0, 0, 1].map(GroupId));
    checker.on_sent(id(0), ONE, 7);
    checker.on_sent(id(1), BOTH, 8);
    checker
}

fn delivered(what: &[(usize, u64, u32)]) -> AgreedChecker {
    let mut checker = checker();
    for (replica, timestamp, sequence) in what {
        let (groups, digest) = if *sequence == 0 { (ONE, 7) } else { (BOTH, 8) };
        checker.on_delivered(*replica, position(*timestamp, *sequence), groups, digest);
    }
    checker
}

const RIGHT: &[(usize, u64, u32)] = &[(0, 1, 0), (0, 2, 1), (1, 1, 0), (1, 2, 1), (2, 2, 1)];

#[test]
fn accepts_one_order_at_all_replicas() {
    let mut checker = delivered(RIGHT);
    assert_eq!((checker.violations(), checker.disagreement(|_| true)), (0, None));
    assert!(checker.undelivered(|_| true, |_| true).is_some(), "no message has completed");
    assert_eq!(checker.undelivered(|_| false, |_| true), None, "the client has crashed");
    checker.on_completed(id(0), None);
    checker.on_completed(id(1), Some(LogicalTime(2)));
    assert_eq!((checker.violations(), checker.undelivered(|_| true, |_| true)), (0, None));
}

#[test]
fn detects_disagreement_with_a_crashed_replica() {
    let checker = delivered(&[(0, 1, 0), (0, 2, 1), (1, 1, 0), (2, 2, 1)]);
    assert!(checker.disagreement(|_| true).is_some());
    assert!(checker.disagreement(|replica| replica != 0).is_some(), "replica 0 had delivered it");
    assert_eq!(checker.disagreement(|replica| replica != 1), None, "a prefix is enough");
    // Not a prefix: a message was skipped.
    let checker = delivered(&[(0, 1, 0), (0, 2, 1), (1, 2, 1), (2, 2, 1)]);
    assert!(checker.disagreement(|replica| replica != 1).is_some());
}

#[test]
fn rejoin_inherits_the_state_it_was_given() {
    let mut checker = delivered(&[(0, 1, 0), (0, 2, 1), (2, 2, 1)]);
    checker.on_joined(1, Some(0));
    assert_eq!(checker.disagreement(|_| true), None);
    let mut checker = delivered(&[(0, 1, 0), (0, 2, 1), (1, 2, 1), (2, 2, 1)]);
    checker.on_joined(1, Some(0));
    assert!(checker.disagreement(|_| true).is_some(), "the previous incarnation had skipped one");
}

#[test]
fn counts_local_violations_immediately() {
    assert_eq!(delivered(&[(0, 2, 1), (0, 1, 0)]).violations(), 1, "descending");
    assert_eq!(delivered(&[(0, 1, 0), (0, 1, 0)]).violations(), 1, "twice");
    assert_eq!(delivered(&[(0, 2, 1), (2, 3, 1)]).violations(), 1, "two positions");
    assert_eq!(delivered(&[(2, 1, 0)]).violations(), 1, "another group");
    let mut checker = checker();
    checker.on_delivered(0, position(1, 5), ONE, 7);
    checker.on_delivered(0, position(2, 0), ONE, 9);
    checker.on_delivered(0, position(3, 1), ONE, 8);
    assert_eq!(
        checker.violations(),
        3,
        "never sent, another payload, other groups: {:?}",
        checker.descriptions()
    );
    checker.on_leader(GroupId(0), 2, ProcessId(0));
    checker.on_leader(GroupId(0), 2, ProcessId(0));
    checker.on_leader(GroupId(1), 2, ProcessId(1));
    assert_eq!(checker.violations(), 3);
    checker.on_leader(GroupId(0), 2, ProcessId(1));
    assert_eq!(checker.violations(), 4, "two leaders");
}

#[test]
fn detects_frames_to_uninvolved_processes() {
    let about = |sequence, groups| Amcast::new(GroupId(0), 1).with_message(id(sequence), groups);
    let clock = Amcast::new(GroupId(0), 1);
    for (src, dst, body, is_right) in [
        (2, 0, about(0, ONE), true),
        (2, 1, about(0, ONE), false),
        (0, 1, about(1, BOTH), true),
        (0, 1, clock, false),
        (3, 0, clock, true),
        (3, 0, about(0, ONE), false),
        (0, 2, clock, false),
    ] {
        let mut checker = checker();
        checker.on_frame(ProcessId(src), ProcessId(dst), &body);
        assert_eq!(checker.violations() == 0, is_right, "{src} to {dst}: {body:?}");
    }
}
