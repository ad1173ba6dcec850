//! Linearizable reads at a process that is cut off, and declared failed without its knowledge.

use crate::fixture;

use fixture::{begin, controller_plan, end, switch};
use onepipe_sim_network::{ClockConfig, Fault, LinkId, NodeId};
use onepipe_sim_scenarios::Fabric;

/// Cuts links of host 0 while its clock is behind those of the others by `behind_ns`. The checker
/// reports a read that ends there after others were notified of the failure.
fn cut_off(directions: &[usize], behind_ns: i64, seed: u64) {
    let mut fabric = begin(controller_plan("leaf-spine:2x2x3", 1, 1, seed));
    let rack = switch(&fabric, 0);
    fabric.inject(Fault::StepClock(NodeId(0), -behind_ns));
    fabric.run_us(50);
    let links: Vec<_> = fabric.between(NodeId(0), rack).into_iter().collect();
    for direction in directions {
        fabric.inject(Fault::Cut(links[*direction]));
    }
    fabric.run_us(900);
    assert_eq!(fabric.report().messages.failures, 1, "the others go on without it");
    end(fabric);
}

#[test]
fn process_that_cannot_send_serves_no_stale_read() {
    for seed in 1..6 {
        cut_off(&[0], 0, seed);
        cut_off(&[0], 400_000, seed);
    }
}

#[test]
fn process_that_cannot_receive_serves_no_stale_read() {
    for seed in 1..6 {
        cut_off(&[1], 0, seed);
        cut_off(&[1], 400_000, seed);
    }
}

#[test]
fn process_that_is_cut_off_serves_no_stale_read() {
    for seed in 1..6 {
        cut_off(&[0, 1], 0, seed);
        cut_off(&[0, 1], 400_000, seed);
    }
}

//= spec/failure.md#R73
/// Cuts links of an idle fabric whose clocks are off by up to `offset_us`, so that the commits from
/// the other side of the cut may be ahead of the clocks on this side. The processes on this side
/// would raise each other's commit barriers up to them.
fn cut_apart(shape: &str, offset_us: u64, cut: fn(&Fabric) -> Vec<LinkId>, failures: u64) {
    for seed in 1..20 {
        let mut plan = controller_plan(shape, 2, 1, seed);
        plan.network.clocks = ClockConfig { offset_ns_max: 1_000 * offset_us, drift_ppb_max: 0 };
        plan.load = None;
        let mut fabric = begin(plan);
        // The last process has caught up with the others by then.
        fabric.run_us(3 * offset_us);
        cut(&fabric).into_iter().for_each(|link| fabric.inject(Fault::Cut(link)));
        fabric.run_us(2_000);
        let report = fabric.report();
        assert_eq!(report.first_violations, Vec::<String>::new(), "{shape} {seed}");
        assert_eq!(report.messages.failures, failures, "the others go on without them");
    }
}

#[test]
fn processes_of_a_host_do_not_raise_each_others_commits() {
    cut_apart("star:3", 200, |fabric| fabric.between(NodeId(0), switch(fabric, 0)), 2);
}

#[test]
fn processes_of_a_rack_do_not_raise_each_others_commits() {
    let cut = |fabric: &Fabric| {
        let above = [3, 4].map(|number| switch(fabric, number));
        let links = above.map(|above| fabric.between(switch(fabric, 0), above));
        links.into_iter().flatten().collect()
    };
    cut_apart("leaf-spine:3x2x2", 200, cut, 4);
}

#[test]
fn processes_of_several_racks_do_not_raise_each_others_commits() {
    let cut = |fabric: &Fabric| fabric.between(switch(fabric, 2), switch(fabric, 3));
    cut_apart("leaf-spine:3x1x2", 1_000, cut, 8);
}
