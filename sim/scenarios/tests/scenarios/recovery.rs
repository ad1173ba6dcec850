//! Scenarios of failures and of the controllers that resolve them.

use crate::fixture;

use fixture::{HOUR_NS, begin, controller_plan, end, switch};
use onepipe_sim_network::{Fault, NodeId};

#[test]
fn idle_controllers_change_nothing() {
    let fabric = begin(controller_plan("leaf-spine:2x2x2", 2, 1, 1));
    let report = end(fabric);
    assert_eq!(
        (report.messages.lost, report.messages.failures, report.control_plane.epochs),
        (0, 0, 1)
    );
    assert!(report.messages.reliable > 100);
}

#[test]
fn host_crash_is_atomic() {
    let mut fabric = begin(controller_plan("leaf-spine:2x2x3", 1, 1, 2));
    fabric.inject(Fault::Crash(NodeId(0)));
    fabric.run_us(400);
    let (before, commit) = (fabric.report(), fabric.commit_barrier(1));
    assert_eq!((before.messages.failures, before.control_plane.inexact), (1, 0));
    fabric.run_us(100);
    assert!(fabric.commit_barrier(1) > commit, "commits wait for the crashed host");
    end(fabric);
}

#[test]
fn rack_switch_crash_fails_its_processes() {
    let mut fabric = begin(controller_plan("leaf-spine:3x2x2", 1, 1, 3));
    let rack = switch(&fabric, 0);
    fabric.inject(Fault::Crash(rack));
    fabric.run_us(600);
    assert_eq!(fabric.report().messages.failures, 2);
    end(fabric);
}

#[test]
fn process_crash_spares_its_host() {
    let mut fabric = begin(controller_plan("star:3", 2, 1, 4));
    fabric.crash_process(1);
    fabric.run_us(400);
    assert_eq!(fabric.report().messages.failures, 1);
    end(fabric);
}

/// The controller is alone in the last rack: its switch has no promise to send upwards.
#[test]
fn controller_alone_in_its_rack_recovers_a_failure() {
    for (shape, seed) in [("leaf-spine:3x2x1", 5), ("fat-tree:4", 6)] {
        let mut plan = controller_plan(shape, 1, 1, seed);
        plan.control_plane.as_mut().expect("the plan has controllers").replicas = match shape {
            "fat-tree:4" => 2,
            _ => 1,
        };
        let mut fabric = begin(plan);
        fabric.inject(Fault::Crash(NodeId(0)));
        fabric.run_us(400);
        let (before, commit) = (fabric.report(), fabric.commit_barrier(1));
        assert_eq!((before.messages.failures, before.control_plane.inexact), (1, 0), "{shape}");
        fabric.run_us(100);
        assert!(fabric.commit_barrier(1) > commit, "{shape}: commits wait for the crashed host");
        end(fabric);
    }
}

/// The controller is the only process of the last host.
#[test]
fn controller_alone_on_its_host_recovers_a_failure() {
    let mut fabric = begin(controller_plan("star:3", 2, 2, 7));
    fabric.crash_process(1);
    fabric.run_us(400);
    assert_eq!(fabric.report().messages.failures, 1);
    end(fabric);
}

/// The only process of a rack costs others one link timeout, like any other process.
#[test]
fn sole_process_of_a_rack_costs_one_link_timeout() {
    for has_controllers in [false, true] {
        let mut plan = match has_controllers {
            true => controller_plan("leaf-spine:3x2x1", 1, 1, 8),
            false => fixture::steady_plan("leaf-spine:3x2x1", 1, 8),
        };
        plan.reliable_percent = 0;
        let (timeout_ns, interval_ns) =
            (plan.switch.link_timeout_ns, plan.switch.beacon_interval_ns);
        let mut fabric = begin(plan);
        fabric.crash_process(0);
        let fallen = fabric.barrier(1).expect("the process has joined");
        fabric.run_us((timeout_ns + 5 * interval_ns) / 1_000);
        let risen_ns = fabric.barrier(1).expect("the process has joined").since_ns(fallen);
        assert!(
            risen_ns > timeout_ns,
            "with controllers: {has_controllers}: the barrier rose by {risen_ns} ns"
        );
        fabric.run_us(400);
        end(fabric);
    }
}

#[test]
fn process_restarts_before_detection() {
    let mut fabric = begin(controller_plan("star:4", 2, 1, 5));
    fabric.crash_process(1);
    fabric.run_us(1);
    fabric.restart_process(1);
    fabric.run_us(800);
    assert!(fabric.report().messages.failures > 0, "the restart was not detected");
    end(fabric);
}

#[test]
fn process_leaves_during_a_failure() {
    let mut fabric = begin(controller_plan("star:4", 2, 1, 7));
    fabric.crash_process(0);
    fabric.leave(2);
    fabric.run_us(800);
    assert!(fabric.process(2).is_none_or(|left| left.endpoint.has_left()));
    // A process that has left is treated like one that has failed.
    assert_eq!(fabric.report().messages.failures, 2);
    end(fabric);
}

#[test]
fn paused_host_is_excluded_and_rejoins() {
    let mut fabric = begin(controller_plan("star:4", 1, 1, 8));
    fabric.inject(Fault::Pause(NodeId(1), 400_000));
    fabric.run_us(2_000);
    let report = fabric.report();
    assert!(report.messages.failures > 0 && report.control_plane.recoveries > 0, "{report:#?}");
    assert!(fabric.process(1).is_some_and(|back| back.endpoint.config().incarnation.0 > 1));
    end(fabric);
}

#[test]
fn partition_without_controllers_is_excluded_and_rejoins() {
    let mut fabric = begin(controller_plan("leaf-spine:3x1x2", 1, 1, 9));
    let (rack, spine) = (switch(&fabric, 0), switch(&fabric, 3));
    let links = fabric.between(rack, spine);
    links.iter().for_each(|link| fabric.inject(Fault::Cut(*link)));
    fabric.run_us(800);
    assert_eq!(fabric.report().messages.failures, 2);
    links.iter().for_each(|link| fabric.inject(Fault::Repair(*link)));
    fabric.run_us(2_000);
    assert!(fabric.report().control_plane.recoveries > 0);
    end(fabric);
}

//= spec/failure.md#R30
#[test]
fn minority_controller_declares_no_failures() {
    let mut fabric = begin(controller_plan("leaf-spine:3x1x3", 1, 1, 10));
    let (rack, spine) = (switch(&fabric, 2), switch(&fabric, 3));
    let links = fabric.between(rack, spine);
    links.iter().for_each(|link| fabric.inject(Fault::Cut(*link)));
    fabric.run_us(200);
    links.iter().for_each(|link| fabric.inject(Fault::Repair(*link)));
    fabric.run_us(2_000);
    assert!(fabric.report().messages.failures <= 2, "the majority was declared failed");
    end(fabric);
}

//= spec/failure.md#R31
#[test]
fn next_controller_finishes_a_recovery() {
    for wait_us in [0, 35, 60, 100] {
        let mut fabric = begin(controller_plan("leaf-spine:2x2x4", 1, 2, 11));
        let (active, _) = fabric.active().expect("a controller is active");
        fabric.inject(Fault::Crash(NodeId(0)));
        fabric.run_us(wait_us);
        fabric.crash_process(active);
        fabric.run_us(1_500);
        let report = fabric.report();
        assert_eq!((report.messages.failures, report.control_plane.inexact), (1, 0), "{wait_us}");
        assert_eq!(report.control_plane.epochs, 2);
        end(fabric);
    }
}

//= spec/failure.md#R24
#[test]
fn store_fences_the_deposed_controller() {
    let mut fabric = begin(controller_plan("leaf-spine:2x2x4", 1, 2, 12));
    for victim in 0..3 {
        // Of every 50 us, the first replica renews its lease after 6 and the second asks after 12.
        fabric.run_us(8);
        fabric.expire_lease();
        fabric.run_us(2);
        fabric.inject(Fault::Crash(NodeId(victim)));
        fabric.run_us(840);
    }
    let report = fabric.report();
    assert_eq!(report.messages.failures, 3);
    assert!(report.control_plane.epochs > 1, "no replica has taken over");
    end(fabric);
}

#[test]
fn recovery_waits_without_controllers() {
    let mut fabric = begin(controller_plan("leaf-spine:2x2x4", 1, 2, 13));
    let controllers = fabric.members()..fabric.topology().processes();
    controllers.clone().for_each(|id| fabric.crash_process(id));
    fabric.run_us(300);
    let commit = fabric.commit_barrier(0);
    fabric.run_us(100);
    assert!(fabric.commit_barrier(0) > commit, "commits wait for controllers");
    fabric.inject(Fault::Crash(NodeId(1)));
    fabric.run_us(300);
    let commit = fabric.commit_barrier(0);
    fabric.run_us(300);
    assert_eq!(fabric.commit_barrier(0), commit, "commits advanced without a decision");
    controllers.for_each(|id| fabric.restart_process(id));
    fabric.run_us(1_500);
    assert!(fabric.commit_barrier(0) > commit);
    end(fabric);
}

#[test]
fn recovery_waits_for_the_store() {
    let mut fabric = begin(controller_plan("star:4", 2, 1, 14));
    fabric.fail_store(500);
    fabric.crash_process(0);
    fabric.run_us(400);
    assert_eq!(fabric.report().messages.failures, 0, "notified before the record was written");
    fabric.run_us(800);
    assert_eq!(fabric.report().messages.failures, 1);
    end(fabric);
}

#[test]
fn clock_step_during_recovery() {
    for ns in [HOUR_NS, -HOUR_NS] {
        let mut fabric = begin(controller_plan("star:4", 2, 1, 15));
        fabric.crash_process(0);
        fabric.inject(Fault::StepClock(NodeId(1), ns));
        fabric.run_us(20);
        fabric.inject(Fault::StepClock(NodeId(2), -ns));
        fabric.run_us(800);
        let report = fabric.report();
        assert_eq!((report.messages.failures, report.control_plane.inexact), (1, 0));
        end(fabric);
    }
}

#[test]
fn spine_restart_during_recovery() {
    let mut fabric = begin(controller_plan("leaf-spine:2x2x3", 1, 1, 16));
    let spine = switch(&fabric, 2);
    fabric.inject(Fault::Crash(spine));
    fabric.crash_process(0);
    fabric.run_us(5);
    fabric.inject(Fault::Restart(spine));
    fabric.run_us(1_000);
    let report = fabric.report();
    assert_eq!((report.messages.failures, report.control_plane.inexact), (1, 0));
    end(fabric);
}
