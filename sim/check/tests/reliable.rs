//! Handcrafted histories of the reliable service: correct ones, and incorrect ones for I6, I7, I8
//! and E.

use onepipe_base::{ProcessId, Promises, Timestamp};
use onepipe_sim_check::{
    Checker, Delivered, Failed, Fate, Look, Reigns, Rule, Submitted, Tag, digest,
};
use onepipe_wire::Service;

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const C: ProcessId = ProcessId(2);
const D: ProcessId = ProcessId(3);

fn ts(ns: u64) -> Timestamp {
    Timestamp::from_ns((1 << 50) + ns)
}

fn tag(life: u32, scattering: u64) -> Tag {
    Tag { life, scattering }
}

fn says(tag: Tag, index: u16) -> u64 {
    digest(&[tag.life as u8, tag.scattering as u8, index as u8])
}

/// A scripted history of four processes.
struct Tale(Checker);

impl Tale {
    fn submit(&mut self, from: ProcessId, tag: Tag, to: &[ProcessId]) {
        let messages: Vec<_> = (0u16..).zip(to).map(|(at, to)| (*to, says(tag, at))).collect();
        let service = Service::Reliable;
        let submitted = Submitted { service, tag, messages: &messages, submitted_at: 0 };
        self.0.submitted(from, submitted);
    }

    fn deliver(&mut self, to: ProcessId, from: ProcessId, tag: Tag, index: u16, stamp: u64) {
        let (service, digest) = (Service::Reliable, says(tag, index));
        let tag = Some(tag);
        self.0.delivered(to, Delivered { service, stamp: ts(stamp), from, index, tag, digest });
    }

    fn fail(&mut self, from: ProcessId, tag: Tag, index: u16, to: ProcessId, stamp: u64) {
        let (service, stamp, fate) = (Service::Reliable, Some(ts(stamp)), Fate::Lost);
        self.0.failed(from, Failed { service, tag, index, to, stamp, fate });
    }

    /// Notifies every process but `victim` that its first incarnation has failed.
    fn tell(&mut self, victim: ProcessId, at: u64) {
        for process in [A, B, C, D].into_iter().filter(|process| *process != victim) {
            self.0.told_failed(process, (victim, 0), ts(at));
        }
    }
}

/// Runs `rest` after A has scattered message 0 to B, C and D and message 1 to B and C. Returns the
/// violated rules.
fn broken(rest: impl FnOnce(&mut Tale)) -> Vec<Rule> {
    let mut tale = Tale(Checker::new(4, false));
    tale.submit(A, tag(0, 0), &[B, C, D]);
    tale.submit(A, tag(0, 1), &[B, C]);
    tale.0.at_ns(100);
    rest(&mut tale);
    tale.0.at_ns(1_000);
    tale.0.finish();
    let mut rules: Vec<Rule> = tale.0.violations().first().iter().map(|v| v.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

fn everything_arrives(tale: &mut Tale) {
    for (index, to) in [(0, B), (1, C), (2, D)] {
        tale.deliver(to, A, tag(0, 0), index, 10);
    }
    for (index, to) in [(0, B), (1, C)] {
        tale.deliver(to, A, tag(0, 1), index, 20);
    }
}

#[test]
fn right_histories_pass() {
    assert_eq!(broken(everything_arrives), []);
    let a_receiver_fails_and_the_scattering_is_taken_back = |tale: &mut Tale| {
        tale.0.crashed(D);
        tale.tell(D, 5);
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.fail(A, tag(0, 0), index, to, 10));
        tale.deliver(B, A, tag(0, 1), 0, 20);
        tale.deliver(C, A, tag(0, 1), 1, 20);
    };
    assert_eq!(broken(a_receiver_fails_and_the_scattering_is_taken_back), []);
    let a_receiver_fails_after_its_acknowledgement = |tale: &mut Tale| {
        tale.0.crashed(D);
        tale.tell(D, 15);
        everything_but_what_is_for_d(tale);
    };
    assert_eq!(broken(a_receiver_fails_after_its_acknowledgement), []);
    let the_sender_fails_between_its_scatterings = |tale: &mut Tale| {
        tale.0.crashed(A);
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.deliver(to, A, tag(0, 0), index, 10));
        tale.0.stamped(A, Service::Reliable, tag(0, 1), ts(20));
        tale.tell(A, 20);
    };
    assert_eq!(broken(the_sender_fails_between_its_scatterings), []);
    let sender_and_a_receiver_fail_together = |tale: &mut Tale| {
        everything_but_the_second_at_c(tale);
        tale.0.crashed(A);
        tale.0.crashed(B);
        tale.tell(A, 20);
        tale.tell(B, 20);
    };
    assert_eq!(
        broken(sender_and_a_receiver_fail_together),
        [],
        "B delivered more than was retained"
    );
}

fn everything_but_what_is_for_d(tale: &mut Tale) {
    for (scattering, stamp) in [(0, 10), (1, 20)] {
        (0..2).zip([B, C]).for_each(|(index, to)| {
            tale.deliver(to, A, tag(0, scattering), index, stamp);
        });
    }
}

fn everything_but_the_second_at_c(tale: &mut Tale) {
    (0..3).zip([B, C, D]).for_each(|(index, to)| tale.deliver(to, A, tag(0, 0), index, 10));
    tale.deliver(B, A, tag(0, 1), 0, 20);
}

#[test]
fn i6_catches_a_message_between_correct_processes_that_is_taken_back_or_forgotten() {
    let taken_back = |tale: &mut Tale| {
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.deliver(to, A, tag(0, 0), index, 10));
        tale.fail(A, tag(0, 1), 0, B, 20);
        tale.fail(A, tag(0, 1), 1, C, 20);
    };
    assert_eq!(broken(taken_back), [Rule::I6]);
    let forgotten = |tale: &mut Tale| {
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.deliver(to, A, tag(0, 0), index, 10));
    };
    assert_eq!(broken(forgotten), [Rule::I6, Rule::I12]);
}

#[test]
fn i7_catches_a_torn_scattering() {
    assert_eq!(broken(everything_but_the_second_at_c), [Rule::I7, Rule::I12]);
    let a_sibling_is_not_recalled = |tale: &mut Tale| {
        tale.0.crashed(D);
        tale.tell(D, 5);
        tale.deliver(B, A, tag(0, 0), 0, 10);
        tale.fail(A, tag(0, 0), 1, C, 10);
        tale.fail(A, tag(0, 0), 2, D, 10);
        tale.deliver(B, A, tag(0, 1), 0, 20);
        tale.deliver(C, A, tag(0, 1), 1, 20);
    };
    assert_eq!(broken(a_sibling_is_not_recalled), [Rule::I7]);
    let the_sender_fails_and_one_does_not_discard = |tale: &mut Tale| {
        tale.0.crashed(A);
        everything_but_the_second_at_c(tale);
        tale.tell(A, 30);
    };
    assert_eq!(broken(the_sender_fails_and_one_does_not_discard), [Rule::I7]);
    let who_fails_has_delivered_what_was_never_committed = |tale: &mut Tale| {
        tale.deliver(D, A, tag(0, 0), 2, 10);
        tale.0.crashed(D);
        tale.tell(D, 5);
        (0..2).zip([B, C]).for_each(|(index, to)| tale.fail(A, tag(0, 0), index, to, 10));
        tale.deliver(B, A, tag(0, 1), 0, 20);
        tale.deliver(C, A, tag(0, 1), 1, 20);
    };
    assert_eq!(broken(who_fails_has_delivered_what_was_never_committed), [Rule::I7]);
}

#[test]
fn i7_catches_a_gap_in_what_a_failed_process_had_delivered() {
    let rules = broken(|tale| {
        tale.submit(B, tag(0, 0), &[D]);
        tale.submit(B, tag(0, 1), &[D]);
        tale.deliver(D, B, tag(0, 0), 0, 5);
        tale.deliver(D, B, tag(0, 1), 0, 15);
        tale.0.crashed(D);
        tale.tell(D, 16);
        // D skipped A's first scattering with timestamp 10, although it delivered up to 15.
        everything_but_what_is_for_d(tale);
    });
    assert_eq!(rules, [Rule::I7]);
}

/// A message to a crashed incarnation is owed to none of the later ones, even if they have
/// delivered lower timestamps because the clocks of their senders were behind.
#[test]
fn what_was_meant_for_a_former_life_is_no_gap_of_a_later_one() {
    let rules = |skips: bool| {
        broken(|tale| {
            tale.0.crashed(D);
            tale.tell(D, 4);
            tale.0.restarted(D);
            tale.0.at_ns(200);
            tale.submit(B, tag(0, 0), &[D]);
            tale.submit(B, tag(0, 1), &[A, D]);
            tale.submit(B, tag(0, 2), &[D]);
            tale.deliver(D, B, tag(0, 0), 0, 5);
            tale.deliver(A, B, tag(0, 1), 0, 12);
            if !skips {
                tale.deliver(D, B, tag(0, 1), 1, 12);
            }
            tale.deliver(D, B, tag(0, 2), 0, 15);
            tale.0.crashed(D);
            [A, B, C].into_iter().for_each(|process| tale.0.told_failed(process, (D, 1), ts(16)));
            everything_but_what_is_for_d(tale);
        })
    };
    assert_eq!(rules(false), [], "A's first scattering was for the previous incarnation");
    assert_eq!(rules(true), [Rule::I7], "B's second scattering was for this incarnation");
}

#[test]
fn i8_catches_what_lies_on_the_wrong_side_of_the_failure_timestamp() {
    let above = |tale: &mut Tale| {
        tale.0.crashed(A);
        everything_arrives(tale);
        tale.tell(A, 20);
    };
    assert_eq!(broken(above), [Rule::I8]);
    let below = |tale: &mut Tale| {
        tale.0.crashed(A);
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.deliver(to, A, tag(0, 0), index, 10));
        tale.0.stamped(A, Service::Reliable, tag(0, 1), ts(20));
        tale.tell(A, 21);
    };
    assert_eq!(broken(below), [Rule::I8], "committed, but not delivered");
}

#[test]
fn an_inexact_failure_is_counted_and_excused() {
    let mut tale = Tale(Checker::new(4, false));
    tale.submit(A, tag(0, 0), &[B, C]);
    tale.0.crashed(A);
    tale.deliver(B, A, tag(0, 0), 0, 10);
    // The controller decides before any process is notified.
    tale.0.decided(A, 0, false);
    tale.tell(A, 20);
    tale.0.finish();
    assert_eq!((tale.0.violations().count(), tale.0.counts().inexact), (0, 1));
}

#[test]
fn e_catches_two_failure_timestamps_and_those_who_were_not_told() {
    let two = |tale: &mut Tale| {
        everything_arrives(tale);
        tale.0.crashed(D);
        tale.tell(D, 15);
        tale.0.told_failed(C, (D, 0), ts(16));
    };
    assert_eq!(broken(two), [Rule::E]);
    let himself = |tale: &mut Tale| {
        everything_arrives(tale);
        tale.tell(D, 15);
        tale.0.excluded(D, ts(16));
    };
    assert_eq!(broken(himself), [Rule::E]);
    let untold = |tale: &mut Tale| {
        everything_arrives(tale);
        tale.0.crashed(D);
        tale.0.told_failed(A, (D, 0), ts(15));
        tale.0.told_failed(B, (D, 0), ts(15));
    };
    assert_eq!(broken(untold), [Rule::E], "C was not notified");
    let unborn = |tale: &mut Tale| {
        everything_arrives(tale);
        tale.0.told_failed(A, (D, 3), ts(15));
    };
    assert_eq!(broken(unborn), [Rule::E], "no such incarnation");
}

#[test]
fn e_catches_two_controllers_in_one_epoch() {
    let mut reigns = Reigns::new();
    reigns.seen(1, C, 5);
    reigns.seen(2, D, 6);
    reigns.seen(1, C, 7);
    assert_eq!((reigns.violations().count(), reigns.epochs()), (0, 2));
    reigns.seen(2, C, 8);
    assert!(reigns.violations().has(Rule::E));
}

#[test]
fn e_catches_a_controller_that_does_not_step_down() {
    let mut reigns = Reigns::new();
    reigns.told_over(1, C, false, 5);
    assert_eq!(reigns.violations().count(), 0);
    reigns.told_over(1, C, true, 6);
    assert!(reigns.violations().has(Rule::E));
}

#[test]
fn a_verdict_is_final() {
    let rules = broken(|tale| {
        tale.0.crashed(D);
        tale.tell(D, 5);
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.fail(A, tag(0, 0), index, to, 10));
        tale.deliver(B, A, tag(0, 0), 0, 10);
        tale.deliver(B, A, tag(0, 1), 0, 20);
        tale.deliver(C, A, tag(0, 1), 1, 20);
    });
    assert_eq!(rules, [Rule::I12], "recalled, then delivered");
}

#[test]
fn a_process_that_comes_back_is_another_one() {
    let rules = broken(|tale| {
        tale.0.crashed(D);
        tale.0.restarted(D);
        tale.0.at_ns(200);
        // Before A knows of the failure: the message to the new incarnation may still be lost.
        tale.submit(A, tag(0, 2), &[D]);
        tale.tell(D, 5);
        (0..3).zip([B, C, D]).for_each(|(index, to)| tale.fail(A, tag(0, 0), index, to, 10));
        tale.fail(A, tag(0, 2), 0, D, 30);
        tale.deliver(B, A, tag(0, 1), 0, 20);
        tale.deliver(C, A, tag(0, 1), 1, 20);
    });
    assert_eq!(rules, []);
    let rules = broken(|tale| {
        everything_arrives(tale);
        tale.0.crashed(D);
        tale.0.restarted(D);
        tale.tell(D, 15);
        tale.submit(D, tag(1, 0), &[A]);
        tale.deliver(A, D, tag(1, 0), 0, 25);
        tale.0.at_ns(300);
        tale.submit(A, tag(0, 2), &[D]);
        tale.fail(A, tag(0, 2), 0, D, 30);
    });
    assert_eq!(rules, [Rule::I6], "a known incarnation must get its messages");
}

#[test]
fn two_services_are_two_streams_or_one() {
    let history = |is_merged: bool, barriers: Option<(u64, u64)>| {
        let mut tale = Tale(Checker::new(4, false).merged(is_merged));
        tale.submit(A, tag(0, 0), &[B]);
        tale.submit(A, tag(0, 1), &[B]);
        let messages = [(B, says(tag(0, 0), 0))];
        let service = Service::BestEffort;
        let first = Submitted { service, tag: tag(0, 0), messages: &messages, submitted_at: 0 };
        tale.0.submitted(A, first);
        tale.deliver(B, A, tag(0, 0), 0, 20);
        let said = (Some(tag(0, 0)), says(tag(0, 0), 0));
        let (tag, digest) = said;
        tale.0.delivered(B, Delivered { service, stamp: ts(15), from: A, index: 0, tag, digest });
        if let Some((barrier, commit)) = barriers {
            let promises = Some(Promises::both(ts(90)));
            let (barrier, commit_barrier) = (Some(ts(barrier)), Some(ts(commit)));
            tale.0.drained(B, Look { barrier, commit_barrier, promises, is_sending: false });
            tale.deliver(B, A, self::tag(0, 1), 0, 30);
        }
        tale.0.violations().by_rule().keys().copied().collect::<Vec<Rule>>()
    };
    assert_eq!(history(false, None), []);
    assert_eq!(history(true, None), [Rule::I1]);
    assert_eq!(history(false, Some((25, 29))), []);
    assert_eq!(history(false, Some((25, 19))), [Rule::B], "before its commit");
    assert_eq!(history(false, Some((25, 31))), [Rule::B], "after its commit");
}
