//! Scenarios of failing nodes and links.

#[allow(dead_code)]
mod tale;

use onepipe_sim_network::{Fault, NodeId};
use tale::{begin, end, steady_plan, switch};

#[test]
fn a_host_crashes_and_the_others_go_on_without_it() {
    let mut fabric = begin(steady_plan("leaf-spine:2x2x2", 2, 1));
    fabric.inflict(Fault::Crash(NodeId(0)));
    fabric.run_us(100);
    let before = (fabric.report().messages, fabric.barrier(7));
    fabric.run_us(100);
    assert!(fabric.barrier(7) > before.1, "barriers wait for the crashed host");
    assert!(fabric.report().messages.delivered > before.0.delivered + 100);
    end(fabric);
}

#[test]
fn a_rack_switch_crashes_and_its_hosts_come_back_with_it() {
    let mut fabric = begin(steady_plan("testbed", 1, 2));
    let rack = switch(&fabric, 0);
    fabric.inflict(Fault::Crash(rack));
    fabric.run_us(100);
    let before = (fabric.barrier(31), fabric.report().messages.delivered);
    fabric.run_us(100);
    assert!(fabric.barrier(31) > before.0, "barriers wait for the rack");
    assert!(fabric.report().messages.delivered > before.1 + 100);
    end(fabric);
}

#[test]
fn a_core_switch_and_a_core_link_die_and_nobody_is_cut_off() {
    let mut fabric = begin(steady_plan("testbed", 1, 3));
    let (spine, core) = (switch(&fabric, 4), switch(&fabric, 9));
    let link = fabric.between(spine, core)[0];
    fabric.inflict(Fault::Cut(link));
    fabric.inflict(Fault::Crash(switch(&fabric, 8)));
    fabric.run_us(200);
    let before = fabric.report().messages.delivered;
    fabric.run_us(50);
    assert!(fabric.report().messages.delivered > before + 100);
    end(fabric);
}

#[test]
fn a_switch_restarts_with_empty_registers_and_no_barrier_moves_back() {
    for number in [0, 2] {
        let mut fabric = begin(steady_plan("leaf-spine:2x2x2", 1, 4));
        let node = switch(&fabric, number);
        fabric.inflict(Fault::Crash(node));
        fabric.run_us(2);
        fabric.inflict(Fault::Restart(node));
        fabric.run_us(100);
        end(fabric);
    }
}

#[test]
fn a_port_dies_in_one_direction_only() {
    let mut fabric = begin(steady_plan("star:4", 1, 5));
    let hub = switch(&fabric, 0);
    for link in fabric.between(NodeId(0), hub) {
        fabric.inflict(Fault::Cut(link));
        fabric.run_us(100);
        let before = fabric.barrier(3);
        fabric.run_us(50);
        assert!(fabric.barrier(3) > before);
        fabric.inflict(Fault::Mend(link));
        fabric.run_us(100);
    }
    end(fabric);
}

#[test]
fn a_process_crashes_and_comes_back_as_another_life() {
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

#[test]
fn a_fabric_is_torn_in_two_and_heals() {
    let mut fabric = begin(steady_plan("leaf-spine:2x1x2", 2, 7));
    let (spine, rack) = (switch(&fabric, 2), switch(&fabric, 0));
    for link in fabric.between(rack, spine) {
        fabric.inflict(Fault::Cut(link));
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
fn a_host_stands_still_for_longer_than_the_timeout() {
    let mut fabric = begin(steady_plan("star:4", 1, 8));
    fabric.inflict(Fault::Pause(NodeId(2), 300_000));
    fabric.run_us(400);
    end(fabric);
}
