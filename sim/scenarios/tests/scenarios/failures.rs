//! Scenarios of failing nodes and links.

use crate::fixture;

use fixture::{begin, end, steady_plan, switch};
use onepipe_sim_network::{Fault, NodeId};

#[test]
fn host_crash_does_not_stall_others() {
    let mut fabric = begin(steady_plan("leaf-spine:2x2x2", 2, 1));
    fabric.inject(Fault::Crash(NodeId(0)));
    fabric.run_us(100);
    let before = (fabric.report().messages, fabric.barrier(7));
    fabric.run_us(100);
    assert!(fabric.barrier(7) > before.1, "barriers wait for the crashed host");
    assert!(fabric.report().messages.delivered > before.0.delivered + 100);
    end(fabric);
}

#[test]
fn rack_switch_crash_and_restart() {
    let mut fabric = begin(steady_plan("testbed", 1, 2));
    let rack = switch(&fabric, 0);
    fabric.inject(Fault::Crash(rack));
    fabric.run_us(100);
    let before = (fabric.barrier(31), fabric.report().messages.delivered);
    fabric.run_us(100);
    assert!(fabric.barrier(31) > before.0, "barriers wait for the rack");
    assert!(fabric.report().messages.delivered > before.1 + 100);
    end(fabric);
}

#[test]
fn core_failures_keep_everyone_connected() {
    let mut fabric = begin(steady_plan("testbed", 1, 3));
    let (spine, core) = (switch(&fabric, 4), switch(&fabric, 9));
    let link = fabric.between(spine, core)[0];
    fabric.inject(Fault::Cut(link));
    fabric.inject(Fault::Crash(switch(&fabric, 8)));
    fabric.run_us(200);
    let before = fabric.report().messages.delivered;
    fabric.run_us(50);
    assert!(fabric.report().messages.delivered > before + 100);
    end(fabric);
}

#[test]
fn switch_restart_never_regresses_a_barrier() {
    for number in [0, 2] {
        let mut fabric = begin(steady_plan("leaf-spine:2x2x2", 1, 4));
        let node = switch(&fabric, number);
        fabric.inject(Fault::Crash(node));
        fabric.run_us(2);
        fabric.inject(Fault::Restart(node));
        fabric.run_us(100);
        end(fabric);
    }
}

#[test]
fn one_way_port_failure() {
    let mut fabric = begin(steady_plan("star:4", 1, 5));
    let hub = switch(&fabric, 0);
    for link in fabric.between(NodeId(0), hub) {
        fabric.inject(Fault::Cut(link));
        fabric.run_us(100);
        let before = fabric.barrier(3);
        fabric.run_us(50);
        assert!(fabric.barrier(3) > before);
        fabric.inject(Fault::Repair(link));
        fabric.run_us(100);
    }
    end(fabric);
}

#[test]
fn process_restarts_as_a_new_incarnation() {
    let mut fabric = begin(steady_plan("star:3", 2, 6));
    fabric.crash_process(1);
    fabric.run_us(1);
    // Fast enough that no neighbour has detected the crash.
    fabric.restart_process(1);
    fabric.run_us(60);
    fabric.crash_process(2);
    fabric.run_us(100);
    end(fabric);
}

//= spec/ordering.md#R37
#[test]
fn partition_heals() {
    let mut fabric = begin(steady_plan("leaf-spine:2x1x2", 2, 7));
    let (spine, rack) = (switch(&fabric, 2), switch(&fabric, 0));
    for link in fabric.between(rack, spine) {
        fabric.inject(Fault::Cut(link));
    }
    fabric.run_us(150);
    let before = (fabric.barrier(0), fabric.barrier(7));
    fabric.run_us(100);
    assert!(
        fabric.barrier(0) > before.0 && fabric.barrier(7) > before.1,
        "both sides make progress"
    );
    end(fabric);
}

#[test]
fn host_pauses_beyond_the_link_timeout() {
    let mut fabric = begin(steady_plan("star:4", 1, 8));
    fabric.inject(Fault::Pause(NodeId(2), 300_000));
    fabric.run_us(400);
    end(fabric);
}
