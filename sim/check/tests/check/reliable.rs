//! Handcrafted histories of the reliable service: correct ones, and incorrect ones for I6, I7, I8
//! and E.

use onepipe_base::{Cause, ProcessId, Promises, Timestamp};
use onepipe_sim_check::{
    Checker, ControllerEpochs, Delivered, Failed, Outcome, Rule, Snapshot, Submitted, Tag, digest,
};
use onepipe_wire::Service;

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const C: ProcessId = ProcessId(2);
const D: ProcessId = ProcessId(3);

fn ts(ns: u64) -> Timestamp {
    Timestamp::from_ns((1 << 50) + ns)
}

fn tag(incarnation: u32, scattering: u64) -> Tag {
    Tag { incarnation, scattering }
}

fn payload_digest(tag: Tag, index: u16) -> u64 {
    digest(&[tag.incarnation as u8, tag.scattering as u8, index as u8])
}

/// A scripted history of four processes.
struct Script(Checker);

impl Script {
    fn submit(&mut self, from: ProcessId, tag: Tag, to: &[ProcessId]) {
        let messages: Vec<_> =
            (0u16..).zip(to).map(|(at, to)| (*to, payload_digest(tag, at))).collect();
        let service = Service::Reliable;
        let submitted = Submitted { service, tag, messages: &messages, submitted_at: 0 };
        self.0.submitted(from, submitted);
    }

    fn deliver(&mut self, to: ProcessId, from: ProcessId, tag: Tag, index: u16, stamp: u64) {
        let (service, digest) = (Service::Reliable, payload_digest(tag, index));
        let tag = Some(tag);
        self.0.delivered(to, Delivered { service, stamp: ts(stamp), from, index, tag, digest });
    }

    fn fail(&mut self, from: ProcessId, tag: Tag, index: u16, to: ProcessId, stamp: u64) {
        let (service, stamp, outcome) = (Service::Reliable, Some(ts(stamp)), Outcome::Lost);
        self.0.failed(from, Failed { service, tag, index, to, stamp, outcome });
    }

    /// Notifies every process but `victim` that its first incarnation has failed.
    fn notify_failure(&mut self, victim: ProcessId, at: u64) {
        for process in [A, B, C, D].into_iter().filter(|process| *process != victim) {
            self.0.failure_notified(process, (victim, 0), ts(at));
        }
    }
}

/// Runs `rest` after A has scattered message 0 to B, C and D and message 1 to B and C. Returns the
/// violated rules.
fn broken(rest: impl FnOnce(&mut Script)) -> Vec<Rule> {
    let mut script = Script(Checker::new(4, false));
    script.submit(A, tag(0, 0), &[B, C, D]);
    script.submit(A, tag(0, 1), &[B, C]);
    script.0.at_ns(100);
    rest(&mut script);
    script.0.at_ns(1_000);
    script.0.finish();
    let mut rules: Vec<Rule> = script.0.violations().first().iter().map(|v| v.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

fn everything_arrives(script: &mut Script) {
    for (index, to) in [(0, B), (1, C), (2, D)] {
        script.deliver(to, A, tag(0, 0), index, 10);
    }
    for (index, to) in [(0, B), (1, C)] {
        script.deliver(to, A, tag(0, 1), index, 20);
    }
}

#[test]
fn accepts_correct_histories() {
    assert_eq!(broken(everything_arrives), []);
    let a_receiver_fails_and_the_scattering_is_taken_back = |script: &mut Script| {
        script.0.crashed(D);
        script.notify_failure(D, 5);
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.fail(A, tag(0, 0), index, to, 10));
        script.deliver(B, A, tag(0, 1), 0, 20);
        script.deliver(C, A, tag(0, 1), 1, 20);
    };
    assert_eq!(broken(a_receiver_fails_and_the_scattering_is_taken_back), []);
    let a_receiver_fails_after_its_acknowledgement = |script: &mut Script| {
        script.0.crashed(D);
        script.notify_failure(D, 15);
        everything_but_what_is_for_d(script);
    };
    assert_eq!(broken(a_receiver_fails_after_its_acknowledgement), []);
    let the_sender_fails_between_its_scatterings = |script: &mut Script| {
        script.0.crashed(A);
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.deliver(to, A, tag(0, 0), index, 10));
        script.0.stamped(A, Service::Reliable, tag(0, 1), ts(20));
        script.notify_failure(A, 20);
    };
    assert_eq!(broken(the_sender_fails_between_its_scatterings), []);
    let sender_and_a_receiver_fail_together = |script: &mut Script| {
        everything_but_the_second_at_c(script);
        script.0.crashed(A);
        script.0.crashed(B);
        script.notify_failure(A, 20);
        script.notify_failure(B, 20);
    };
    assert_eq!(
        broken(sender_and_a_receiver_fail_together),
        [],
        "B delivered more than was retained"
    );
}

fn everything_but_what_is_for_d(script: &mut Script) {
    for (scattering, stamp) in [(0, 10), (1, 20)] {
        (0..2).zip([B, C]).for_each(|(index, to)| {
            script.deliver(to, A, tag(0, scattering), index, stamp);
        });
    }
}

fn everything_but_the_second_at_c(script: &mut Script) {
    (0..3).zip([B, C, D]).for_each(|(index, to)| script.deliver(to, A, tag(0, 0), index, 10));
    script.deliver(B, A, tag(0, 1), 0, 20);
}

//= spec/failure.md#R10
#[test]
fn i6_catches_a_recalled_or_missing_message() {
    let taken_back = |script: &mut Script| {
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.deliver(to, A, tag(0, 0), index, 10));
        script.fail(A, tag(0, 1), 0, B, 20);
        script.fail(A, tag(0, 1), 1, C, 20);
    };
    assert_eq!(broken(taken_back), [Rule::I6]);
    let forgotten = |script: &mut Script| {
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.deliver(to, A, tag(0, 0), index, 10));
    };
    assert_eq!(broken(forgotten), [Rule::I6, Rule::I12]);
}

//= spec/failure.md#R10
#[test]
fn i7_catches_a_torn_scattering() {
    assert_eq!(broken(everything_but_the_second_at_c), [Rule::I7, Rule::I12]);
    let a_sibling_is_not_recalled = |script: &mut Script| {
        script.0.crashed(D);
        script.notify_failure(D, 5);
        script.deliver(B, A, tag(0, 0), 0, 10);
        script.fail(A, tag(0, 0), 1, C, 10);
        script.fail(A, tag(0, 0), 2, D, 10);
        script.deliver(B, A, tag(0, 1), 0, 20);
        script.deliver(C, A, tag(0, 1), 1, 20);
    };
    assert_eq!(broken(a_sibling_is_not_recalled), [Rule::I7]);
    let the_sender_fails_and_one_does_not_discard = |script: &mut Script| {
        script.0.crashed(A);
        everything_but_the_second_at_c(script);
        script.notify_failure(A, 30);
    };
    assert_eq!(broken(the_sender_fails_and_one_does_not_discard), [Rule::I7]);
    let who_fails_has_delivered_what_was_never_committed = |script: &mut Script| {
        script.deliver(D, A, tag(0, 0), 2, 10);
        script.0.crashed(D);
        script.notify_failure(D, 5);
        (0..2).zip([B, C]).for_each(|(index, to)| script.fail(A, tag(0, 0), index, to, 10));
        script.deliver(B, A, tag(0, 1), 0, 20);
        script.deliver(C, A, tag(0, 1), 1, 20);
    };
    assert_eq!(broken(who_fails_has_delivered_what_was_never_committed), [Rule::I7]);
}

#[test]
fn i7_catches_a_gap_before_a_failure() {
    let rules = broken(|script| {
        script.submit(B, tag(0, 0), &[D]);
        script.submit(B, tag(0, 1), &[D]);
        script.deliver(D, B, tag(0, 0), 0, 5);
        script.deliver(D, B, tag(0, 1), 0, 15);
        script.0.crashed(D);
        script.notify_failure(D, 16);
        // D skipped A's first scattering with timestamp 10, although it delivered up to 15.
        everything_but_what_is_for_d(script);
    });
    assert_eq!(rules, [Rule::I7]);
}

/// A message to a crashed incarnation is due to none of the later ones, even if they have
/// delivered lower timestamps because the clocks of their senders were behind.
#[test]
fn previous_incarnation_leaves_no_gap_in_the_next() {
    let rules = |skips: bool| {
        broken(|script| {
            script.0.crashed(D);
            script.notify_failure(D, 4);
            script.0.restarted(D);
            script.0.at_ns(200);
            script.submit(B, tag(0, 0), &[D]);
            script.submit(B, tag(0, 1), &[A, D]);
            script.submit(B, tag(0, 2), &[D]);
            script.deliver(D, B, tag(0, 0), 0, 5);
            script.deliver(A, B, tag(0, 1), 0, 12);
            if !skips {
                script.deliver(D, B, tag(0, 1), 1, 12);
            }
            script.deliver(D, B, tag(0, 2), 0, 15);
            script.0.crashed(D);
            [A, B, C]
                .into_iter()
                .for_each(|process| script.0.failure_notified(process, (D, 1), ts(16)));
            everything_but_what_is_for_d(script);
        })
    };
    assert_eq!(rules(false), [], "A's first scattering was for the previous incarnation");
    assert_eq!(rules(true), [Rule::I7], "B's second scattering was for this incarnation");
}

//= spec/failure.md#R9
#[test]
fn i8_catches_both_sides_of_the_failure_timestamp() {
    let above = |script: &mut Script| {
        script.0.crashed(A);
        everything_arrives(script);
        script.notify_failure(A, 20);
    };
    assert_eq!(broken(above), [Rule::I8]);
    let below = |script: &mut Script| {
        script.0.crashed(A);
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.deliver(to, A, tag(0, 0), index, 10));
        script.0.stamped(A, Service::Reliable, tag(0, 1), ts(20));
        script.notify_failure(A, 21);
    };
    assert_eq!(broken(below), [Rule::I8], "committed, but not delivered");
}

#[test]
fn inexact_failure_is_counted_but_allowed() {
    let mut script = Script(Checker::new(4, false));
    script.submit(A, tag(0, 0), &[B, C]);
    script.0.crashed(A);
    script.deliver(B, A, tag(0, 0), 0, 10);
    // The controller decides before any process is notified.
    script.0.decided(A, 0, false, Cause::TimedOut);
    script.notify_failure(A, 20);
    script.0.finish();
    assert_eq!((script.0.violations().count(), script.0.counts().inexact), (0, 1));
}

//= spec/failure.md#R25
#[test]
fn e_catches_conflicting_and_missing_notifications() {
    let two = |script: &mut Script| {
        everything_arrives(script);
        script.0.crashed(D);
        script.notify_failure(D, 15);
        script.0.failure_notified(C, (D, 0), ts(16));
    };
    assert_eq!(broken(two), [Rule::E]);
    let himself = |script: &mut Script| {
        everything_arrives(script);
        script.notify_failure(D, 15);
        script.0.excluded(D, ts(16));
    };
    assert_eq!(broken(himself), [Rule::E]);
    let not_notified = |script: &mut Script| {
        everything_arrives(script);
        script.0.crashed(D);
        script.0.failure_notified(A, (D, 0), ts(15));
        script.0.failure_notified(B, (D, 0), ts(15));
    };
    assert_eq!(broken(not_notified), [Rule::E], "C was not notified");
    let never_started = |script: &mut Script| {
        everything_arrives(script);
        script.0.failure_notified(A, (D, 3), ts(15));
    };
    assert_eq!(broken(never_started), [Rule::E], "no such incarnation");
}

#[test]
fn e_catches_two_controllers_in_one_epoch() {
    let mut epochs = ControllerEpochs::new();
    epochs.observe(1, C, 5);
    epochs.observe(2, D, 6);
    epochs.observe(1, C, 7);
    assert_eq!((epochs.violations().count(), epochs.epochs()), (0, 2));
    epochs.observe(2, C, 8);
    assert!(epochs.violations().has(Rule::E));
}

#[test]
fn e_catches_a_controller_active_after_its_epoch() {
    let mut epochs = ControllerEpochs::new();
    epochs.epoch_ended(1, C, false, 5);
    assert_eq!(epochs.violations().count(), 0);
    epochs.epoch_ended(1, C, true, 6);
    assert!(epochs.violations().has(Rule::E));
}

#[test]
fn an_outcome_is_final() {
    let rules = broken(|script| {
        script.0.crashed(D);
        script.notify_failure(D, 5);
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.fail(A, tag(0, 0), index, to, 10));
        script.deliver(B, A, tag(0, 0), 0, 10);
        script.deliver(B, A, tag(0, 1), 0, 20);
        script.deliver(C, A, tag(0, 1), 1, 20);
    });
    assert_eq!(rules, [Rule::I12], "recalled, then delivered");
}

#[test]
fn restarted_process_is_a_new_receiver() {
    let rules = broken(|script| {
        script.0.crashed(D);
        script.0.restarted(D);
        script.0.at_ns(200);
        // Before A knows of the failure: the message to the new incarnation may still be lost.
        script.submit(A, tag(0, 2), &[D]);
        script.notify_failure(D, 5);
        (0..3).zip([B, C, D]).for_each(|(index, to)| script.fail(A, tag(0, 0), index, to, 10));
        script.fail(A, tag(0, 2), 0, D, 30);
        script.deliver(B, A, tag(0, 1), 0, 20);
        script.deliver(C, A, tag(0, 1), 1, 20);
    });
    assert_eq!(rules, []);
    let rules = broken(|script| {
        everything_arrives(script);
        script.0.crashed(D);
        script.0.restarted(D);
        script.notify_failure(D, 15);
        script.submit(D, tag(1, 0), &[A]);
        script.deliver(A, D, tag(1, 0), 0, 25);
        script.0.at_ns(300);
        script.submit(A, tag(0, 2), &[D]);
        script.fail(A, tag(0, 2), 0, D, 30);
    });
    assert_eq!(rules, [Rule::I6], "a known incarnation must get its messages");
}

//= spec/ordering.md#R24
#[test]
fn services_are_separate_or_merged_streams() {
    let history = |is_merged: bool, barriers: Option<(u64, u64)>| {
        let mut script = Script(Checker::new(4, false).merged(is_merged));
        script.submit(A, tag(0, 0), &[B]);
        script.submit(A, tag(0, 1), &[B]);
        let messages = [(B, payload_digest(tag(0, 0), 0))];
        let service = Service::BestEffort;
        let first = Submitted { service, tag: tag(0, 0), messages: &messages, submitted_at: 0 };
        script.0.submitted(A, first);
        script.deliver(B, A, tag(0, 0), 0, 20);
        let tagged = (Some(tag(0, 0)), payload_digest(tag(0, 0), 0));
        let (tag, digest) = tagged;
        script.0.delivered(B, Delivered { service, stamp: ts(15), from: A, index: 0, tag, digest });
        if let Some((barrier, commit)) = barriers {
            let promises = Some(Promises::both(ts(90)));
            let (barrier, commit_barrier) = (Some(ts(barrier)), Some(ts(commit)));
            let snapshot = Snapshot { barrier, commit_barrier, promises, ..Snapshot::default() };
            script.0.drained(B, snapshot);
            script.deliver(B, A, self::tag(0, 1), 0, 30);
        }
        script.0.violations().by_rule().keys().copied().collect::<Vec<Rule>>()
    };
    assert_eq!(history(false, None), []);
    assert_eq!(history(true, None), [Rule::I1]);
    assert_eq!(history(false, Some((25, 29))), []);
    assert_eq!(history(false, Some((25, 19))), [Rule::B], "before its commit");
    assert_eq!(history(false, Some((25, 31))), [Rule::B], "after its commit");
}

/// B was declared failed, and reads: its time, if a read may begin, and its commit barrier.
fn reads_of_failed(turns: &[(Option<u64>, u64)]) -> Vec<Rule> {
    broken(|script| {
        script.notify_failure(B, 30);
        for (now, commit) in turns {
            let (now, commit_barrier) = (now.map(ts), Some(ts(*commit)));
            script.0.drained(B, Snapshot { now, commit_barrier, ..Snapshot::default() });
        }
    })
}

#[test]
fn read_ends_at_a_failed_process() {
    let is_stale = |turns: &[_]| reads_of_failed(turns).contains(&Rule::B);
    assert!(!is_stale(&[(Some(40), 50), (Some(40), 50)]), "the barrier has arrived before");
    assert!(is_stale(&[(Some(40), 50), (Some(40), 51)]));
    assert!(is_stale(&[(Some(40), 50), (None, 51)]), "it ends whatever waits");
    assert!(!is_stale(&[(None, 50), (Some(40), 51)]), "none had begun");
    assert!(is_stale(&[(None, 50), (Some(40), 51), (Some(41), 52)]));
}
