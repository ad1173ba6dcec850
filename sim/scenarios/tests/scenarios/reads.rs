//! Linearizable reads at a process that is cut off, and declared failed without its knowledge.

use crate::fixture;

use fixture::{begin, controller_plan, end, switch};
use onepipe_sim_network::{Fault, NodeId};

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
