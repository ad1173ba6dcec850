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
