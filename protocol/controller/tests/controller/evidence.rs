//! What proves that a process is dead, and how long the controller waits without proof.

use crate::harness;

use harness::{
    CONTROLLER, announce, at, config, drain, instance, link, process, relay_0_to_1, switch,
};
use onepipe_base::{Cause, Instance, Machine, Port, Timestamp};
use onepipe_controller::{Config, Controller, Epoch, Event};
use onepipe_wire::{Link, LinkState, Side};

const SILENT_NS: u64 = 1_000_000;
const SWITCH_WAIT_NS: u64 = 20_000_000;

/// Returns the controller of switch 0 with processes 0 and 1 below it, which have all joined.
fn star() -> Controller {
    star_with(|_| {})
}

/// As [`star`], with other settings.
fn star_with(change: impl FnOnce(&mut Config)) -> Controller {
    let mut config = Config {
        silent_after_ns: SILENT_NS,
        switch_wait_ns: SWITCH_WAIT_NS,
        inexact_after_ns: 5_000_000,
        ..config()
    };
    change(&mut config);
    let mut controller = Controller::new(config).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &[]);
    let tor = instance(switch(0), 1);
    send(&mut controller, 1_000, tor, 1, &below(&[0, 1]));
    for number in [0, 1] {
        let up = [link(0, Side::Upper, tor)];
        send(&mut controller, 1_000, instance(process(number), 1), 1, &up);
    }
    controller.handle_timeout(at(50_000));
    drain(&mut controller, at(50_000));
    controller
}

fn send(controller: &mut Controller, ns: u64, from: Instance, generation: u32, links: &[Link]) {
    controller.handle_frame(at(ns), Port(0), &mut announce(from, generation, links));
}

/// Returns the lower links of a switch to these processes and to the controller.
fn below(processes: &[u32]) -> Vec<Link> {
    let lower = |number: u32| link(number as u16, Side::Lower, instance(process(number), 1));
    let own = link(2, Side::Lower, instance(process(CONTROLLER.0), 1));
    processes.iter().map(|number| lower(*number)).chain([own]).collect()
}

fn frozen(number: u32, cause: Cause) -> Link {
    let commit = Timestamp::from_ns((1 << 50) + 40_000);
    let state = LinkState::Frozen { number: 1, commit, cause };
    Link { state, ..link(number as u16, Side::Lower, instance(process(number), 1)) }
}

/// Runs timers until `end`. Returns the first failure of a process: its number, when it was
/// decided, its cause, and the node that reported the cause.
fn failure(
    controller: &mut Controller,
    end: u64,
) -> Option<(Instance, u64, Cause, Option<Instance>)> {
    loop {
        let due = controller.poll_timeout().filter(|due| due.as_ns() <= end)?;
        controller.handle_timeout(at(due.as_ns()));
        let mut slot = [0; 1_500];
        while controller.poll_transmit(at(due.as_ns()), &mut slot).is_some() {}
        while let Some((id, _)) = controller.poll_persist() {
            controller.handle_persisted(at(due.as_ns()), id, Ok(()));
        }
        while let Some(event) = controller.poll_event() {
            if let Event::Failed { failed, decided, reporter, .. } = event
                && failed.instance.address != switch(0)
            {
                return Some((failed.instance, decided.as_ns(), failed.cause, reporter));
            }
        }
    }
}

//= spec/failure.md#R49
//= spec/failure.md#R50
#[test]
fn proof_of_death_decides_at_once() {
    for cause in [Cause::Refused, Cause::Left, Cause::Superseded, Cause::Fenced] {
        let (mut controller, tor) = (star(), instance(switch(0), 1));
        send(&mut controller, 100_000, tor, 2, &[&below(&[0])[..], &[frozen(1, cause)]].concat());
        let (failed, decided, because, reporter) =
            failure(&mut controller, 100_000 + SILENT_NS / 2).expect("it has failed");
        assert_eq!((failed, because, reporter), (instance(process(1), 1), cause, Some(tor)));
        assert!(decided < 100_000 + 10 * controller.config().quiet_ns, "{decided}");
        assert_eq!(controller.stats().leaves, u64::from(cause == Cause::Left));
        assert_eq!(controller.stats().failures, u64::from(cause != Cause::Left));
    }
}

//= spec/failure.md#R49
/// The switch has been connected, and the process has sent nothing to the controller.
#[test]
fn timeout_counts_from_last_frame() {
    let (mut controller, tor) = (star(), instance(switch(0), 1));
    let links = [&below(&[0])[..], &[frozen(1, Cause::TimedOut)]].concat();
    send(&mut controller, 600_000, tor, 2, &links);
    let (_, decided, cause, reporter) =
        failure(&mut controller, 3 * SILENT_NS).expect("it has failed");
    assert_eq!((cause, reporter), (Cause::TimedOut, Some(tor)));
    assert!((SILENT_NS..SILENT_NS + 600_000).contains(&decided), "{decided}");
}

//= spec/failure.md#R49
/// Switches that wait longer for their neighbours than the controller would wait.
#[test]
fn waits_as_long_as_the_links_of_the_fabric() {
    const FABRIC_NS: u64 = 5 * SILENT_NS;
    let mut controller = star_with(|config| config.adopt_link_timeout(FABRIC_NS));
    let links = [&below(&[0])[..], &[frozen(1, Cause::TimedOut)]].concat();
    send(&mut controller, 600_000, instance(switch(0), 1), 2, &links);
    let (_, decided, ..) = failure(&mut controller, 3 * FABRIC_NS).expect("it has failed");
    assert!((FABRIC_NS..FABRIC_NS + 600_000).contains(&decided), "{decided}");
    let config = controller.config();
    assert_eq!((config.link_timeout_ns, config.ping_timeout_ns), (FABRIC_NS, FABRIC_NS));
    assert_eq!(config.inexact_after_ns, 3 * FABRIC_NS);
}

//= spec/failure.md#R49
/// The other end of a one-way link was received when the link was frozen.
#[test]
fn one_way_link_counts_as_frame() {
    let (mut controller, tor) = (star(), instance(switch(0), 1));
    let links = [&below(&[0])[..], &[frozen(1, Cause::OneWay)]].concat();
    send(&mut controller, 900_000, tor, 2, &links);
    let (_, decided, ..) = failure(&mut controller, 3 * SILENT_NS).expect("it has failed");
    assert!(decided >= 900_000 + SILENT_NS, "{decided}");
}

//= spec/failure.md#R49
/// A new instance of the switch has not met process 1 yet.
#[test]
fn restarted_switch_protects_its_processes() {
    let mut controller = star();
    let (tor, late) = (instance(switch(0), 2), instance(process(1), 1));
    let up = [link(0, Side::Upper, tor)];
    send(&mut controller, 5_000_000, tor, 1, &below(&[0]));
    send(&mut controller, 5_000_000, instance(process(0), 1), 2, &up);
    // A frame of the process postpones its failure.
    let old_up = [link(0, Side::Upper, instance(switch(0), 1))];
    assert_eq!(failure(&mut controller, 5_000_000 + SILENT_NS / 2), None);
    send(&mut controller, 5_000_000 + SILENT_NS / 2, late, 2, &old_up);
    assert_eq!(failure(&mut controller, 5_000_000 + SILENT_NS + SILENT_NS / 4), None);
    let (failed, _, cause, _) =
        failure(&mut controller, 5_000_000 + 2 * SILENT_NS).expect("it has failed");
    assert_eq!((failed, cause), (late, Cause::TimedOut));
}

//= spec/failure.md#R49
/// The controller was off its core: frames of the process may still have to be read.
#[test]
fn pause_of_the_controller_protects_all_processes() {
    let (mut controller, tor) = (star(), instance(switch(0), 1));
    let links = [&below(&[0])[..], &[frozen(1, Cause::TimedOut)]].concat();
    send(&mut controller, 5_000_000, tor, 2, &links);
    let (_, decided, ..) =
        failure(&mut controller, 5_000_000 + 3 * SILENT_NS).expect("it has failed");
    assert!(decided >= 5_000_000 + SILENT_NS, "{decided}");
}

//= spec/failure.md#R49
/// The switch of process 3 restarts and has not met the process yet. The controller receives other
/// frames all the time, so only the restart of that switch protects the process.
#[test]
fn restarted_leaf_protects_its_processes() {
    let mut controller = star();
    let (tor, far) = (instance(switch(0), 1), instance(process(3), 1));
    let attach = |controller: &mut Controller, ns, incarnation: u32, links: &[Link]| {
        let leaf = instance(switch(1), incarnation);
        let down = Link { port: Port(3), ..link(3, Side::Lower, leaf) };
        send(controller, ns, tor, 1 + incarnation, &[&below(&[0, 1])[..], &[down]].concat());
        send(controller, ns, leaf, 1, &[links, &[link(1, Side::Upper, tor)]].concat());
    };
    attach(&mut controller, 100_000, 1, &[link(0, Side::Lower, far)]);
    send(&mut controller, 100_000, far, 1, &[link(0, Side::Upper, instance(switch(1), 1))]);
    let receive = |controller: &mut Controller, ns| {
        assert_eq!(failure(controller, ns), None, "at {ns} ns");
        send(controller, ns, instance(process(0), 1), 1, &[link(0, Side::Upper, tor)]);
    };
    let restarted_ns = 5_000_000;
    for ns in (200_000..restarted_ns).step_by(200_000) {
        receive(&mut controller, ns);
    }
    attach(&mut controller, restarted_ns, 2, &[]);
    for ns in (restarted_ns + 200_000..restarted_ns + SILENT_NS).step_by(200_000) {
        receive(&mut controller, ns);
    }
    let end = restarted_ns + 2 * SILENT_NS;
    let (failed, decided, ..) = failure(&mut controller, end).expect("it has failed");
    assert!(failed == far && decided >= restarted_ns + SILENT_NS, "{failed:?} at {decided}");
}

//= spec/failure.md#R49
/// The switch of process 2 has lost its path: nothing is known of the process.
#[test]
fn process_waits_for_its_lost_switch() {
    let mut controller = star();
    let (tor, leaf) = (instance(switch(0), 1), instance(switch(1), 1));
    let far = instance(process(3), 1);
    let down = Link { port: Port(3), ..link(3, Side::Lower, leaf) };
    send(&mut controller, 100_000, tor, 2, &[&below(&[0, 1])[..], &[down]].concat());
    let links = [link(0, Side::Lower, far), link(1, Side::Upper, tor)];
    send(&mut controller, 100_000, leaf, 1, &links);
    send(&mut controller, 100_000, far, 1, &[link(0, Side::Upper, leaf)]);
    assert_eq!(failure(&mut controller, 200_000), None);
    let commit = Timestamp::from_ns((1 << 50) + 90_000);
    let state = LinkState::Frozen { number: 1, commit, cause: Cause::TimedOut };
    let lost = [&below(&[0, 1])[..], &[Link { state, ..down }]].concat();
    send(&mut controller, 5_000_000, tor, 3, &lost);
    // Other frames are received all the time.
    let other = instance(process(0), 1);
    for step in 1..20 {
        let ns = 5_000_000 + step * SILENT_NS;
        assert_eq!(failure(&mut controller, ns), None, "{step}");
        send(&mut controller, ns, other, 1, &[link(0, Side::Upper, tor)]);
    }
    let (_, decided, ..) =
        failure(&mut controller, 8_000_000 + SWITCH_WAIT_NS).expect("it has failed");
    assert!(decided >= 5_000_000 + SWITCH_WAIT_NS, "{decided}");
}

//= spec/failure.md#R64
/// Process 0 announces itself later than at rest, so process 1 may be slow as well.
#[test]
fn late_frames_lengthen_the_wait_within_a_bound() {
    const HEARTBEAT_NS: u64 = 100_000;
    let rest_ns = 2 * HEARTBEAT_NS;
    for (late_ns, wait_ns) in [(0, SILENT_NS), (400_000, 4 * 400_000)] {
        let mut controller = star_with(|config| config.heartbeat_interval_ns = HEARTBEAT_NS);
        let tor = instance(switch(0), 1);
        let up = [link(0, Side::Upper, tor)];
        let at_ns = 1_000 + rest_ns + late_ns;
        send(&mut controller, at_ns, instance(process(0), 1), 1, &up);
        let links = [&below(&[0])[..], &[frozen(1, Cause::TimedOut)]].concat();
        send(&mut controller, at_ns + 10_000, tor, 2, &links);
        let (_, decided, ..) = failure(&mut controller, 5 * SILENT_NS).expect("it has failed");
        assert!((wait_ns..wait_ns + 200_000).contains(&decided), "{late_ns}: {decided}");
    }
}

/// The switch pauses for less than its neighbours give it: the path to process 1 stays up. Found by
/// a soak, in which the neighbours had just learned to wait for longer.
//= spec/failure.md#R49
#[test]
fn silent_switch_protects_its_processes_from_pings() {
    const HEARTBEAT_NS: u64 = 100_000;
    const STEP_NS: usize = 200_000;
    let timeout_ns = config().ping_timeout_ns;
    for idle_ns in [None, Some(2_000_000..12_000_000), Some(2_000_000..14_900_000)] {
        let mut controller = star_with(|config| config.heartbeat_interval_ns = HEARTBEAT_NS);
        let tor = instance(switch(0), 1);
        let up = [link(0, Side::Upper, tor)];
        controller.handle_frame(at(60_000), Port(0), &mut relay_0_to_1());
        let mut failed = None;
        for ns in (100_000..30_000_000).step_by(STEP_NS) {
            failed = failed.or(failure(&mut controller, ns));
            send(&mut controller, ns, instance(process(0), 1), 1, &up);
            if idle_ns.as_ref().is_none_or(|idle| !idle.contains(&ns)) {
                // Its neighbours freeze the links of a process that was declared dead.
                let is_alive = controller.stats().pings_unanswered == 0;
                let frozen = [&below(&[0])[..], &[frozen(1, Cause::Fenced)]].concat();
                let (generation, links) = if is_alive { (1, below(&[0, 1])) } else { (2, frozen) };
                send(&mut controller, ns, tor, generation, &links);
            }
        }
        let (_, decided, ..) = failed.expect("it never answers");
        let end_ns = idle_ns.map_or(0, |idle| idle.end + SILENT_NS).max(timeout_ns);
        assert!((end_ns..end_ns + timeout_ns + SILENT_NS).contains(&decided), "{decided} ns");
    }
}
