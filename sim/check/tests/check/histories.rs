//! Handcrafted histories: correct ones that must pass, and incorrect ones for each invariant.

use onepipe_base::{Cause, ProcessId, Promises, Timestamp};
use onepipe_sim_check::{
    BufferLevels, Checker, Delivered, Failed, Liveness, Outcome, Rule, Snapshot, Submitted, Tag,
    digest,
};
use onepipe_wire::Service::BestEffort;

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const C: ProcessId = ProcessId(2);

fn ts(ns: u64) -> Timestamp {
    Timestamp::from_ns((1 << 50) + ns)
}

fn tag(scattering: u64) -> Tag {
    Tag { incarnation: 0, scattering }
}

/// Returns the digest of message `index` of a scattering.
fn payload_digest(tag: Tag, index: u16) -> u64 {
    digest(&[tag.incarnation as u8, tag.scattering as u8, index as u8])
}

/// Submits a scattering of `from` with one message to each of `to`.
fn submit(checker: &mut Checker, from: ProcessId, tag: Tag, to: &[ProcessId]) {
    let messages: Vec<_> =
        (0u16..).zip(to).map(|(index, to)| (*to, payload_digest(tag, index))).collect();
    let submitted_at = tag.scattering;
    checker
        .submitted(from, Submitted { service: BestEffort, tag, messages: &messages, submitted_at });
}

fn delivery(from: ProcessId, tag: Tag, index: u16, stamp: u64) -> Delivered {
    Delivered {
        service: BestEffort,
        stamp: ts(stamp),
        from,
        index,
        tag: Some(tag),
        digest: payload_digest(tag, index),
    }
}

fn failure(tag: Tag, index: u16, to: ProcessId, outcome: Outcome) -> Failed {
    Failed { service: BestEffort, tag, index, to, stamp: None, outcome }
}

/// Returns the snapshot of a process that has delivered all best-effort messages up to `barrier`.
fn snapshot(barrier: u64, promise: Option<u64>) -> Snapshot {
    let promises = promise.map(|promise| Promises::both(ts(promise)));
    Snapshot { barrier: Some(ts(barrier)), promises, ..Snapshot::default() }
}

/// Returns a checker that has seen scatterings 0 and 1 of A and scattering 0 of B.
fn scattered() -> Checker {
    let mut checker = Checker::new(3, true);
    submit(&mut checker, A, tag(0), &[B, C]);
    submit(&mut checker, A, tag(1), &[B, C]);
    submit(&mut checker, B, tag(0), &[A, C, B]);
    checker
}

/// Returns the rules that `wrong` violates after [`scattered`].
fn broken(wrong: impl FnOnce(&mut Checker)) -> Vec<Rule> {
    let mut checker = scattered();
    wrong(&mut checker);
    let mut rules: Vec<Rule> = checker.violations().first().iter().map(|v| v.rule).collect();
    rules.dedup();
    rules
}

#[test]
fn accepts_a_correct_history() {
    let mut checker = scattered();
    assert_eq!(checker.delivered(B, delivery(A, tag(0), 0, 10)), Some(0));
    checker.delivered(B, delivery(B, tag(0), 2, 11));
    checker.delivered(B, delivery(A, tag(1), 0, 20));
    checker.drained(B, snapshot(21, Some(22)));
    checker.delivered(C, delivery(A, tag(0), 1, 10));
    checker.delivered(C, delivery(B, tag(0), 1, 11));
    checker.failed(A, failure(tag(1), 1, C, Outcome::Lost));
    checker.delivered(A, delivery(B, tag(0), 0, 11));
    checker.drained(C, snapshot(12, Some(12)));
    checker.drained(C, snapshot(30, Some(31)));
    checker.finish();
    assert_eq!(checker.violations().first(), []);
    let counts = checker.counts();
    assert_eq!((counts.submitted, counts.delivered, counts.lost, checker.open()), (7, 6, 1, 0));
}

//= spec/ordering.md#R20
#[test]
fn i1_catches_each_part_of_the_key_out_of_order() {
    for (first, second) in [
        (delivery(A, tag(1), 0, 20), delivery(B, tag(0), 2, 11)),
        (delivery(B, tag(0), 2, 10), delivery(A, tag(0), 0, 10)),
    ] {
        let rules = broken(|checker| {
            checker.delivered(B, first);
            checker.delivered(B, second);
        });
        assert_eq!(rules, [Rule::I1]);
    }
    let rules = broken(|checker| {
        submit(checker, C, tag(0), &[B, B]);
        checker.delivered(B, delivery(C, tag(0), 1, 10));
        checker.delivered(B, delivery(C, tag(0), 0, 10));
    });
    assert_eq!(rules, [Rule::I1]);
}

//= spec/ordering.md#R2
#[test]
fn i2_catches_receivers_that_saw_different_timestamps() {
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        checker.delivered(C, delivery(A, tag(0), 1, 12));
    });
    assert_eq!(rules, [Rule::I2]);
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        checker.failed(A, Failed { stamp: Some(ts(9)), ..failure(tag(0), 1, C, Outcome::Lost) });
    });
    assert_eq!(rules, [Rule::I2]);
}

//= spec/ordering.md#R2
#[test]
fn i2_catches_two_scatterings_of_a_sender_with_one_timestamp() {
    // Each receiver's order is ascending, but B delivers scattering 0 first and C delivers 1 first.
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        checker.delivered(C, delivery(A, tag(1), 1, 10));
    });
    assert_eq!(rules, [Rule::I2]);
}

//= spec/ordering.md#R4
#[test]
fn i3_catches_a_promise_and_a_stamp_below_what_was_delivered() {
    let rules = broken(|checker| {
        checker.delivered(C, delivery(A, tag(0), 1, 10));
        checker.drained(C, snapshot(11, Some(10)));
    });
    assert_eq!(rules, [Rule::I3]);
    let rules = broken(|checker| {
        checker.delivered(C, delivery(A, tag(0), 1, 10));
        checker.drained(C, Snapshot { is_sending: true, ..snapshot(11, Some(10)) });
    });
    assert_eq!(rules, [], "messages stamped before the delivery are still leaving");
    let rules = broken(|checker| {
        checker.delivered(C, delivery(A, tag(0), 1, 10));
        submit(checker, C, tag(0), &[B]);
        checker.delivered(B, delivery(C, tag(0), 0, 9));
    });
    assert_eq!(rules, [Rule::I3]);
}

#[test]
fn i4_catches_messages_never_sent_to_the_receiver() {
    let at_b = |delivered| {
        broken(|checker| {
            checker.delivered(B, delivered);
        })
    };
    assert_eq!(at_b(delivery(C, tag(0), 0, 10)), [Rule::I4], "C sent nothing");
    assert_eq!(at_b(delivery(A, tag(0), 1, 10)), [Rule::I4], "that message was for C");
    assert_eq!(at_b(delivery(A, tag(0), 7, 10)), [Rule::I4], "no such message");
    assert_eq!(at_b(delivery(ProcessId(9), tag(0), 0, 10)), [Rule::I4], "no such process");
    assert_eq!(
        at_b(delivery(A, Tag { incarnation: 1, scattering: 0 }, 0, 10)),
        [Rule::I4],
        "no such incarnation"
    );
    assert_eq!(at_b(Delivered { tag: None, ..delivery(A, tag(0), 0, 10) }), [Rule::I4]);
    assert_eq!(
        at_b(Delivered { digest: 5, ..delivery(A, tag(0), 0, 10) }),
        [Rule::I4],
        "another payload"
    );
}

//= spec/ordering.md#R21
#[test]
fn i4_catches_duplicates_before_and_after_retirement() {
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        checker.delivered(B, delivery(A, tag(0), 0, 10));
    });
    assert_eq!(rules, [Rule::I1, Rule::I4]);
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        checker.delivered(C, delivery(A, tag(0), 1, 10));
        // With another timestamp, so that the total order alone does not detect it.
        checker.delivered(B, delivery(A, tag(0), 0, 11));
    });
    assert_eq!(rules, [Rule::I4]);
}

#[test]
fn i5_catches_a_pair_out_of_submission_order() {
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(1), 0, 10));
        checker.delivered(B, delivery(A, tag(0), 0, 20));
    });
    assert_eq!(rules, [Rule::I5]);
}

//= spec/ordering.md#R6
//= spec/ordering.md#R19
#[test]
fn i9_and_b_catch_regressing_or_violated_barriers() {
    let rules = broken(|checker| {
        checker.drained(B, snapshot(20, Some(20)));
        checker.drained(B, snapshot(19, Some(20)));
    });
    assert_eq!(rules, [Rule::I9]);
    let rules = broken(|checker| {
        checker.drained(B, snapshot(20, Some(20)));
        checker.drained(B, snapshot(20, Some(19)));
    });
    assert_eq!(rules, [Rule::I9], "promises must not regress either");
    let rules = broken(|checker| {
        checker.drained(B, snapshot(20, None));
        checker.delivered(B, delivery(A, tag(0), 0, 19));
    });
    assert_eq!(rules, [Rule::B], "late");
    let rules = broken(|checker| {
        checker.delivered(B, delivery(A, tag(0), 0, 19));
        checker.drained(B, snapshot(19, None));
    });
    assert_eq!(rules, [Rule::B], "early: the barrier is exclusive");
}

//= spec/failure.md#R35
//= spec/ordering.md#R27
#[test]
fn i12_catches_two_outcomes_and_none() {
    let lost = failure(tag(0), 1, C, Outcome::Lost);
    let delivered = delivery(A, tag(0), 1, 10);
    let rules = broken(|checker| {
        checker.delivered(C, delivered);
        checker.failed(A, lost);
    });
    assert_eq!(rules, [Rule::I12], "delivered, then lost");
    let rules = broken(|checker| {
        checker.failed(A, lost);
        checker.delivered(C, delivered);
    });
    assert_eq!(rules, [Rule::I12], "lost, then delivered");
    let rules = broken(|checker| {
        checker.failed(A, lost);
        checker.failed(A, lost);
    });
    assert_eq!(rules, [Rule::I12], "lost twice");
    assert_eq!(broken(Checker::finish), [Rule::I12], "no outcome at all");
    let rules = broken(|checker| {
        checker.failed(A, lost);
        checker.expect_no_loss_since(1);
    });
    assert_eq!(rules, [], "lost before the fabric became fault-free");
    let rules = broken(|checker| {
        checker.failed(A, lost);
        checker.expect_no_loss_since(0);
    });
    assert_eq!(rules, [Rule::I12], "lost in a fault-free fabric");
}

//= spec/ordering.md#R27
#[test]
fn i12_allows_unknown_only_for_unreachable_receivers() {
    let unknown = failure(tag(0), 1, C, Outcome::Unknown);
    assert_eq!(broken(|checker| checker.failed(A, unknown)), [Rule::I12]);
    let rules = broken(|checker| {
        // The sender reports its messages before it is notified of the failure.
        checker.decided(C, 0, true, Cause::TimedOut);
        checker.failed(A, unknown);
        checker.delivered(B, delivery(A, tag(0), 0, 10));
    });
    assert_eq!(rules, [], "the receiver was declared failed");
    let rules = broken(|checker| {
        checker.allow_unknown(C);
        checker.failed(A, unknown);
        checker.delivered(C, delivery(A, tag(0), 1, 10));
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        submit(checker, A, tag(2), &[C]);
        checker.delivered(C, delivery(A, tag(2), 0, 30));
        checker.failed(A, failure(tag(2), 0, C, Outcome::Unknown));
    });
    assert_eq!(rules, [], "delivered and unknown, in either order");
    let rules = broken(|checker| {
        checker.allow_unknown(C);
        checker.failed(A, unknown);
        checker.failed(A, failure(tag(0), 0, B, Outcome::Lost));
        // The scattering is retired by now, but the message in doubt is not.
        checker.delivered(C, delivery(A, tag(0), 1, 10));
        checker.delivered(C, delivery(A, tag(0), 1, 11));
    });
    assert_eq!(rules, [Rule::I12], "delivered twice");
}

#[test]
fn crash_closes_open_messages() {
    let rules = broken(|checker| {
        checker.delivered(A, delivery(B, tag(0), 0, 50));
        checker.drained(A, snapshot(60, Some(60)));
        checker.crashed(A);
        checker.restarted(A);
        let soft_restarted = Tag { incarnation: 1, scattering: 0 };
        submit(checker, A, soft_restarted, &[B]);
        // A message of the previous incarnation in flight, then one of the new incarnation with a
        // lower clock.
        checker.delivered(B, delivery(A, tag(0), 0, 10));
        checker.delivered(B, delivery(A, soft_restarted, 0, 12));
        checker.drained(A, snapshot(15, Some(15)));
        checker.delivered(B, delivery(B, tag(0), 2, 50));
        checker.failed(B, failure(tag(0), 1, C, Outcome::Lost));
        checker.finish();
    });
    assert_eq!(rules, []);
    let crash = |wrong: fn(&mut Checker)| {
        broken(|checker| {
            checker.failed(A, failure(tag(0), 0, B, Outcome::Lost));
            checker.failed(A, failure(tag(1), 0, B, Outcome::Lost));
            checker.at_ns(5);
            checker.crashed(B);
            checker.crashed(C);
            checker.restarted(C);
            checker.at_ns(6);
            wrong(checker);
            checker.finish();
        })
    };
    assert_eq!(crash(|_| ()), [], "C lost what it had received");
    let rules = crash(|checker| submit(checker, A, tag(2), &[C]));
    assert_eq!(rules, [Rule::I12], "messages submitted after the restart must get an outcome");
}

//= spec/ordering.md#R37
#[test]
fn i10_catches_a_stuck_barrier() {
    let mut liveness = Liveness::new();
    liveness.expect_above(A, ts(100));
    liveness.expect_above(B, ts(120));
    assert!(!liveness.observe(A, Some(ts(101))));
    assert!(!liveness.observe(B, Some(ts(120))), "reached, but not passed");
    let mut passed = liveness.clone();
    assert!(passed.observe(B, Some(ts(121))));
    passed.finish(9, |_| None);
    assert_eq!(passed.violations().count(), 0);
    liveness.finish(9, |_| Some(ts(120)));
    assert!(liveness.violations().has(Rule::I10));
}

//= spec/ordering.md#R32
#[test]
fn i11_catches_a_buffer_above_its_limit() {
    let mut buffer_levels = BufferLevels::new("receive buffer", 10);
    buffer_levels.observe(A, 10, 0);
    assert_eq!(buffer_levels.violations().count(), 0);
    buffer_levels.observe(B, 11, 0);
    assert!(buffer_levels.violations().has(Rule::I11));
    assert_eq!(buffer_levels.peak(), 11);
}
