//! A store that lacks what processes know.

use crate::harness;

use harness::{
    CONTROLLER, announce, announce_tip, at, config, drain, frame, instance, link, process, star,
    switch, undeliverable,
};
use onepipe_base::{Cause, Incarnation, Machine, Port, ProcessId, Timestamp};
use onepipe_controller::{
    Config, Controller, Epoch, Event, FailedInstance, Member, MemberLink, Record,
};
use onepipe_wire::{DecisionTip, FloodView, Link, LinkState, Opcode, Side, Undeliverable};

fn failed(number: u32, ns: u64) -> FailedInstance {
    let at = Timestamp::from_ns((1 << 50) + ns);
    let instance = instance(process(number), 1);
    FailedInstance { instance, at, is_exact: true, cause: Cause::TimedOut }
}

/// Lets process 1 announce that it knows `tip`.
fn announce_known(controller: &mut Controller, ns: u64, tip: DecisionTip) {
    let up = [link(0, Side::Upper, instance(switch(0), 1))];
    let mut bytes = announce_tip(instance(process(1), 1), 2, &up, tip);
    controller.handle_frame(at(ns), Port(0), &mut bytes);
}

fn recall(number: u64) -> Undeliverable {
    let timestamp = Timestamp::from_ns((1 << 50) + number);
    Undeliverable { to: ProcessId(7), incarnation: Incarnation(1), timestamp }
}

/// Returns the record of a recall of process 0 to process 7.
fn recalled(number: u64) -> Record {
    Record::Undeliverable { sender: ProcessId(0), entries: vec![recall(number)] }
}

/// Returns the tip in the last AnnounceAck.
fn acked_tip(controller: &mut Controller, ns: u64) -> DecisionTip {
    let up = [link(0, Side::Upper, instance(switch(0), 1))];
    drain(controller, at(ns));
    let mut bytes = announce(instance(process(1), 1), 1, &up);
    controller.handle_frame(at(ns), Port(0), &mut bytes);
    let sent = drain(controller, at(ns));
    let ack = sent.iter().find(|(opcode, ..)| *opcode == Opcode::AnnounceAck);
    DecisionTip::parse(&ack.expect("it is recorded").3).expect("the controller is active")
}

/// Returns the tip in the notice that a controller with this log floods.
fn notified_tip(records: &[Record]) -> DecisionTip {
    let sent = drain(&mut star(records), at(60_000));
    let notice = sent.iter().find(|(opcode, ..)| *opcode == Opcode::Flood);
    let view = FloodView::parse(&notice.expect("a failure is open").3).expect("well-formed");
    view.tip.expect("in a notice")
}

fn refusal(controller: &mut Controller) -> Option<DecisionTip> {
    std::iter::from_fn(|| controller.poll_event()).find_map(|event| match event {
        Event::StoreOutdated { known, .. } => Some(known),
        _ => None,
    })
}

//= spec/failure.md#R60
#[test]
fn ack_carries_the_end_of_the_log() {
    let mut controller = star(&[]);
    let tip = acked_tip(&mut controller, 60_000);
    assert_eq!((tip.epoch, tip.decided), (1, 0));
    assert_eq!((tip.replica, tip.incarnation), (CONTROLLER, Incarnation(1)));
    announce_known(&mut controller, 70_000, tip);
    assert_eq!((refusal(&mut controller), controller.is_active()), (None, true));
}

//= spec/failure.md#R60
#[test]
fn notice_carries_the_end_of_the_log() {
    assert_eq!(notified_tip(&[Record::Failed(vec![failed(7, 1)])]).decided, 1);
}

//= spec/failure.md#R61
#[test]
fn log_without_a_known_decision_is_refused() {
    let longer = [Record::Failed(vec![failed(7, 1), failed(8, 2)])];
    let known = notified_tip(&longer);
    let other = [Record::Failed(vec![failed(7, 1), failed(8, 3)])];
    for (records, is_refused) in [(&longer, false), (&other, true)] {
        let mut controller = star(records);
        drain(&mut controller, at(60_000));
        announce_known(&mut controller, 70_000, known);
        assert_eq!(refusal(&mut controller).is_some(), is_refused);
        assert_eq!(controller.is_active(), !is_refused);
    }
    let mut controller = star(&[]);
    drain(&mut controller, at(60_000));
    announce_known(&mut controller, 70_000, known);
    assert_eq!(refusal(&mut controller), Some(known), "both failures are missing");
    assert_eq!(controller.poll_persist(), None, "it decides nothing any more");

    // What it has learned outlasts the refusal.
    controller.activate(at(80_000), Epoch(2), &other);
    assert_eq!((refusal(&mut controller), controller.is_active()), (Some(known), false));
    controller.activate(at(90_000), Epoch(3), &longer);
    assert!(controller.is_active(), "the latest store");
}

/// What a controller floods with an older log cannot be taken back.
//= spec/failure.md#R61
#[test]
fn nothing_is_flooded_before_the_log_was_compared() {
    let mut controller = Controller::new(config()).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &[Record::Failed(vec![failed(7, 1)])]);
    let tor = instance(switch(0), 1);
    let below = |port: u16| link(port, Side::Lower, instance(process(port.into()), 1));
    let own = link(2, Side::Lower, instance(process(CONTROLLER.0), 1));
    let of_process =
        |number| announce(instance(process(number), 1), 1, &[link(0, Side::Upper, tor)]);
    let announcements =
        [announce(tor, 1, &[below(0), below(1), own]), of_process(0), of_process(1)];
    let mut floods = Vec::new();
    for (nth, mut bytes) in (1..).zip(announcements) {
        controller.handle_frame(at(nth * 1_000_000), Port(0), &mut bytes);
        let mut sent = Vec::new();
        for tick in 1..10 {
            let now = at(nth * 1_000_000 + tick * 100_000);
            controller.handle_timeout(now);
            sent.extend(drain(&mut controller, now));
        }
        floods.push(sent.iter().any(|(opcode, ..)| *opcode == Opcode::Flood));
    }
    assert_eq!(floods, [false, false, true], "each process may know more");
}

/// Found by a soak: the first process that announced itself to a controller on an older copy of
/// the store had been started after all others, and knew nothing of their decisions.
//= spec/failure.md#R61
#[test]
fn members_of_the_log_are_awaited() {
    let tor = instance(switch(0), 1);
    let below = |number: u32, incarnation| {
        link(number as u16, Side::Lower, instance(process(number), incarnation))
    };
    let frozen = |cause| {
        let state = LinkState::Frozen { number: 1, commit: at(0).sync, cause };
        Link { state, ..below(1, 1) }
    };
    let member = |number| {
        let links = vec![MemberLink { side: Side::Upper, instance: tor }];
        Member { instance: instance(process(number), 1), links }
    };
    let log = [Record::Members(vec![member(0), member(1)]), Record::Failed(vec![failed(7, 1)])];
    let config = || Config { silent_after_ns: 1_000_000, ..config() };
    let grace_ns = config().grace_ns;
    for (process_1, first_flood_ns) in [
        (None, grace_ns),
        (Some(frozen(Cause::TimedOut)), grace_ns),
        (Some(frozen(Cause::Refused)), 2_000_000),
        (Some(below(1, 1)), 4_000_000),
        (Some(below(1, 2)), 4_000_000),
    ] {
        let mut controller = Controller::new(config()).expect("a valid configuration");
        controller.activate(at(0), Epoch(1), &log);
        let own = link(2, Side::Lower, instance(process(CONTROLLER.0), 1));
        let links = [Some(own), Some(below(0, 1)), process_1].into_iter().flatten();
        let mut announcements = vec![
            (2_000_000, announce(tor, 1, &links.collect::<Vec<_>>())),
            (2_000_000, announce(instance(process(0), 1), 1, &[link(0, Side::Upper, tor)])),
        ];
        if let Some(Link { state: LinkState::Up, instance: Some(instance), .. }) = process_1 {
            announcements.push((4_000_000, announce(instance, 1, &[link(0, Side::Upper, tor)])));
        }
        let floods_at = |ns: &u64| {
            let ns = *ns;
            announcements.iter_mut().filter(|(at, _)| *at == ns).for_each(|(_, bytes)| {
                controller.handle_frame(at(ns), Port(0), bytes);
            });
            controller.handle_timeout(at(ns));
            drain(&mut controller, at(ns)).iter().any(|(opcode, ..)| *opcode == Opcode::Flood)
        };
        let first = (1_000_000..=2 * grace_ns).step_by(500_000).find(floods_at);
        let first = first.expect("the failure is sent to all");
        let expected = first_flood_ns..first_flood_ns + 2_000_000;
        assert!(expected.contains(&first), "{process_1:?}: {first} ns");
    }
}

//= spec/failure.md#R60
#[test]
fn ack_of_recalls_carries_the_end_of_the_log() {
    let records = [Record::Failed(vec![failed(7, 1)])];
    let mut controller = star(&records);
    drain(&mut controller, at(60_000));
    let sender = instance(process(0), 1);
    let mut tips = Vec::new();
    // The second batch repeats the first recall, and counts one.
    for (psn, number) in [(1, 1), (1, 1), (2, 1), (3, 2)] {
        let mut bytes = undeliverable(sender, psn, recall(number));
        controller.handle_frame(at(61_000), Port(0), &mut bytes);
        let sent = drain(&mut controller, at(61_000));
        let ack = sent.iter().find(|(opcode, ..)| *opcode == Opcode::UndeliverableAck);
        tips.push(DecisionTip::parse(&ack.expect("it is recorded").3).expect("it is active"));
    }
    assert_eq!(tips.iter().map(|tip| tip.decided).collect::<Vec<_>>(), [2, 2, 2, 3]);
    let log = [&records[0], &recalled(1), &recalled(2)].map(Record::clone);
    assert_eq!(notified_tip(&log).digest, tips[3].digest, "it is that of the store");
}

//= spec/failure.md#R61
#[test]
fn log_without_a_known_recall_is_refused() {
    let failure = Record::Failed(vec![failed(7, 1)]);
    let latest = [failure.clone(), recalled(1), recalled(2)];
    let known = notified_tip(&latest);
    let other = [failure.clone(), recalled(1), recalled(3)];
    for (records, is_refused) in [(&latest[..], false), (&latest[..2], true), (&other[..], true)] {
        let mut controller = star(records);
        drain(&mut controller, at(60_000));
        announce_known(&mut controller, 70_000, known);
        assert_eq!(refusal(&mut controller).is_some(), is_refused, "{records:?}");
    }
}

//= spec/failure.md#R61
#[test]
fn nothing_is_recovered_before_the_log_is_compared() {
    let mut lost = failed(7, 1);
    lost.at = Timestamp::from_ns(1);
    let resolved = Record::Resumed { instances: vec![lost.instance], links: vec![] };
    let records = [Record::Failed(vec![lost]), resolved];
    let mut recover = frame(Opcode::Recover, lost.instance, 0, |_| 0);
    let mut replies = |controller: &mut Controller, ns| {
        controller.handle_frame(at(ns), Port(0), &mut recover);
        drain(controller, at(ns)).iter().any(|(opcode, ..)| *opcode == Opcode::Recovery)
    };
    let mut controller = Controller::new(config()).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &records);
    assert!(!replies(&mut controller, 1_000), "others may know of recalls that it lacks");
    let mut controller = star(&records);
    drain(&mut controller, at(60_000));
    assert!(replies(&mut controller, 61_000));
}

//= spec/failure.md#R61
#[test]
fn replica_refuses_an_epoch_that_it_had_before() {
    let mut controller = Controller::new(config()).expect("a valid configuration");
    controller.activate(at(0), Epoch(4), &[]);
    controller.depose(at(10));
    controller.activate(at(20), Epoch(4), &[]);
    assert!(refusal(&mut controller).is_some() && !controller.is_active());
    controller.activate(at(30), Epoch(5), &[]);
    assert!(controller.is_active());
}

//= spec/failure.md#R62
#[test]
fn later_replica_of_one_epoch_is_refused() {
    let tip = |incarnation, epoch, replica| DecisionTip {
        epoch,
        decided: 0,
        digest: 0,
        replica: ProcessId(replica),
        incarnation: Incarnation(incarnation),
    };
    let own = CONTROLLER.0;
    // The one under test has incarnation 1 and epoch 1.
    for (known, is_refused) in [
        (tip(0, 1, own), true),
        (tip(2, 1, own), false),
        (tip(2, 9, own), false),
        (tip(2, 1, own + 1), true),
        (tip(0, 2, own), true),
        (tip(1, 1, own), false),
    ] {
        let mut controller = star(&[]);
        drain(&mut controller, at(60_000));
        announce_known(&mut controller, 70_000, known);
        assert_eq!(refusal(&mut controller).is_some(), is_refused, "{known:?}");
    }
}
