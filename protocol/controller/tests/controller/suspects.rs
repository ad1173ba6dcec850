//! Decisions that are put off while an instance is suspected.

use crate::harness;

use harness::{CONTROLLER, announce, at, config, drain, instance, link, process, switch};
use onepipe_base::{Cause, Instance, Machine, Port, Timestamp};
use onepipe_controller::{Controller, Epoch, Member, MemberLink, Record, RecordId, Severed};
use onepipe_wire::{Link, LinkState, Side};

/// Runs timers until `end`. Returns the first decision that is offered to the store, without a
/// result.
fn offered(controller: &mut Controller, end: u64) -> Option<(RecordId, Record)> {
    loop {
        match controller.poll_persist() {
            Some((id, Record::Members(_))) => {
                controller.handle_persisted(at(100_000), id, Ok(()));
                continue;
            }
            None => {}
            decision => return decision,
        }
        let due = controller.poll_timeout().filter(|due| due.as_ns() <= end)?;
        controller.handle_timeout(at(due.as_ns()));
        let mut slot = [0; 1_500];
        while controller.poll_transmit(at(due.as_ns()), &mut slot).is_some() {}
    }
}

/// Leaf 0 with the controller and process 0, a spine, leaf 2 with process 1. The spine dies and
/// comes back; when that is to be recorded, the controller's leaf loses it again, before it has
/// promised anything there. The promises of its previous incarnation are all that is known of what
/// process 1 has committed.
#[test]
fn keeps_a_dead_switch_open_while_dependents_are_suspected() {
    let (leaf, far) = (instance(switch(0), 1), instance(switch(2), 1));
    let (near, other) = (instance(process(0), 1), instance(process(1), 1));
    let spine = |incarnation| instance(switch(1), incarnation);
    let frozen = |number, instance: Instance, commit: u64| Link {
        state: LinkState::Frozen {
            number,
            commit: Timestamp::from_ns((1 << 50) + commit),
            cause: Cause::TimedOut,
        },
        ..link(3, Side::Upper, instance)
    };
    let own = instance(process(CONTROLLER.0), 1);
    let below = [link(0, Side::Lower, near), link(1, Side::Lower, own)];
    let mut controller = Controller::new(config()).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &[]);
    let send_announce = |controller: &mut Controller, ns, from, generation, links: &[Link]| {
        controller.handle_frame(at(ns), Port(0), &mut announce(from, generation, links));
    };
    let up = |leaf| [link(0, Side::Upper, leaf)];
    for (ns, incarnation) in [(1_000, 1), (100_000, 2)] {
        let dead = (incarnation > 1).then(|| frozen(1, spine(1), 9_000));
        let to_spine = [link(3, Side::Upper, spine(incarnation))];
        let links = [&below[..], &to_spine, dead.as_slice()].concat();
        send_announce(&mut controller, ns, leaf, incarnation, &links);
        let both = [link(0, Side::Lower, leaf), link(1, Side::Lower, far)];
        send_announce(&mut controller, ns, spine(incarnation), 1, &both);
        let links = [&to_spine[..], &[link(0, Side::Lower, other)], dead.as_slice()].concat();
        send_announce(&mut controller, ns, far, incarnation, &links);
        send_announce(&mut controller, ns, near, 1, &up(leaf));
        send_announce(&mut controller, ns, other, 1, &up(far));
        if incarnation == 1 {
            controller.handle_timeout(at(50_000));
            drain(&mut controller, at(50_000));
        }
    }
    let quiet_ns = controller.config().quiet_ns;
    let (id, record) = offered(&mut controller, 1_000_000).expect("the spine has failed");
    let Record::Failed(failed) = record else { panic!("{record:?}") };
    assert_eq!(failed.iter().map(|failed| failed.instance).collect::<Vec<_>>(), [spine(1)]);

    let lost = 100_000 + 4 * quiet_ns;
    let links = [&below[..], &[frozen(1, spine(1), 9_000), frozen(2, spine(2), 0)]].concat();
    send_announce(&mut controller, lost, leaf, 3, &links);
    // A frame of the suspect postpones the decision.
    send_announce(&mut controller, lost + quiet_ns / 2, other, 1, &up(far));
    assert_eq!(offered(&mut controller, lost + quiet_ns), None);
    let now = lost + quiet_ns + 1;
    controller.handle_persisted(at(now), id, Ok(()));
    assert_eq!(offered(&mut controller, now), None, "not resolved");
    let (_, record) = offered(&mut controller, now + 3 * quiet_ns).expect("they have failed");
    let Record::Failed(failed) = record else { panic!("{record:?}") };
    let at_ns = |victim| {
        let failed = failed.iter().find(|failed| failed.instance == victim).expect("it has failed");
        failed.at.as_ns() - (1 << 50)
    };
    assert_eq!([other, far].map(at_ns), [9_000; 2]);
}

/// A link that had died alone was severed, and has come back. After a takeover the controller knows
/// from the store that it was severed; no node has announced that it is down now.
#[test]
fn severed_link_is_not_down_after_takeover() {
    let (near, far) = (instance(switch(0), 1), instance(switch(2), 1));
    let spine = instance(switch(1), 1);
    let (one, other) = (instance(process(0), 1), instance(process(1), 1));
    let member = |instance, links: &[(Side, Instance)]| {
        let links =
            links.iter().map(|(side, instance)| MemberLink { side: *side, instance: *instance });
        Member { instance, links: links.collect() }
    };
    let members = vec![
        member(near, &[(Side::Lower, one), (Side::Upper, spine)]),
        member(spine, &[(Side::Lower, near), (Side::Lower, far)]),
        member(far, &[(Side::Lower, other), (Side::Upper, spine)]),
        member(one, &[(Side::Upper, near)]),
        member(other, &[(Side::Upper, far)]),
    ];
    let severed = |owner, peer| Severed { owner, number: 1, peer };
    let links = vec![severed(spine, far), severed(far, spine)];
    let records = [Record::Members(members), Record::Resumed { instances: vec![], links }];
    let mut controller = Controller::new(config()).expect("a valid configuration");
    controller.activate(at(0), Epoch(2), &records);
    let own = instance(process(CONTROLLER.0), 1);
    let links = [link(0, Side::Lower, one), link(1, Side::Lower, own), link(3, Side::Upper, spine)];
    controller.handle_frame(at(1_000), Port(0), &mut announce(near, 1, &links));
    assert_eq!(offered(&mut controller, 1_000_000), None);
    assert_eq!(controller.connected(), 5);
}
