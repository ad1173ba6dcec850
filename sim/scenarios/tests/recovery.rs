//! Stories of failures and of who resolves them.

#[allow(dead_code)]
mod tale;

use onepipe_sim_network::{Fault, NodeId};
use tale::{begin, court_plan, end, switch};

#[test]
fn with_controllers_about_nothing_changes() {
    let fabric = begin(court_plan("leaf-spine:2x2x2", 2, 1, 1));
    let report = end(fabric);
    assert_eq!((report.messages.lost, report.messages.failures, report.court.epochs), (0, 0, 1));
    assert!(report.messages.reliable > 100);
}

#[test]
fn a_host_crashes_and_what_it_sent_is_everywhere_or_nowhere() {
    let mut fabric = begin(court_plan("leaf-spine:2x2x3", 1, 1, 2));
    fabric.inflict(Fault::Crash(NodeId(0)));
    fabric.run_us(400);
    let (before, commit) = (fabric.report(), fabric.commit_barrier(1));
    assert_eq!((before.messages.failures, before.court.inexact), (1, 0));
    fabric.run_us(100);
    assert!(fabric.commit_barrier(1) > commit, "commits wait for the dead");
    end(fabric);
}

#[test]
fn a_rack_switch_crashes_and_takes_its_processes_with_it() {
    let mut fabric = begin(court_plan("leaf-spine:3x2x2", 1, 1, 3));
    let rack = switch(&fabric, 0);
    fabric.inflict(Fault::Crash(rack));
    fabric.run_us(600);
    assert_eq!(fabric.report().messages.failures, 2);
    end(fabric);
}

#[test]
fn a_process_crashes_and_the_others_of_its_host_go_on() {
    let mut fabric = begin(court_plan("star:3", 2, 1, 4));
    fabric.crash_process(1);
    fabric.run_us(400);
    assert_eq!(fabric.report().messages.failures, 1);
    end(fabric);
}

/// The last rack is the controller's alone: its switch has nothing to say upwards but that it is
/// there.
#[test]
fn a_controller_alone_in_its_rack_works_through_a_failure_elsewhere() {
    for (shape, seed) in [("leaf-spine:3x2x1", 5), ("fat-tree:4", 6)] {
        let mut plan = court_plan(shape, 1, 1, seed);
        plan.court.as_mut().expect("a court").replicas = match shape {
            "fat-tree:4" => 2,
            _ => 1,
        };
        let mut fabric = begin(plan);
        fabric.inflict(Fault::Crash(NodeId(0)));
        fabric.run_us(400);
        let (before, commit) = (fabric.report(), fabric.commit_barrier(1));
        assert_eq!((before.messages.failures, before.court.inexact), (1, 0), "{shape}");
        fabric.run_us(100);
        assert!(fabric.commit_barrier(1) > commit, "{shape}: commits wait for the dead");
        end(fabric);
    }
}

/// And the last host its only process.
#[test]
fn a_controller_alone_on_its_host_works_through_a_failure_elsewhere() {
    let mut fabric = begin(court_plan("star:3", 2, 2, 7));
    fabric.crash_process(1);
    fabric.run_us(400);
    assert_eq!(fabric.report().messages.failures, 1);
    end(fabric);
}

/// Who waits for the only process of a rack waits for one link timeout, as for any other.
#[test]
fn the_only_process_of_a_rack_dies_and_nobody_waits_twice() {
    for has_court in [false, true] {
        let mut plan = match has_court {
            true => court_plan("leaf-spine:3x2x1", 1, 1, 8),
            false => tale::steady_plan("leaf-spine:3x2x1", 1, 8),
        };
        plan.reliable_percent = 0;
        let (timeout_ns, interval_ns) =
            (plan.switch.link_timeout_ns, plan.switch.beacon_interval_ns);
        let mut fabric = begin(plan);
        fabric.crash_process(0);
        let fallen = fabric.barrier(1).expect("it is placed");
        fabric.run_us((timeout_ns + 5 * interval_ns) / 1_000);
        let risen_ns = fabric.barrier(1).expect("it is placed").since_ns(fallen);
        assert!(risen_ns > timeout_ns, "{has_court}: it has risen by {risen_ns} ns");
        fabric.run_us(400);
        end(fabric);
    }
}
