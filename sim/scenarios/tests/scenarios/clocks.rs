//! Scenarios of clock errors.

use crate::fixture;

use fixture::{HOUR_NS, begin, end, plan, switch};
use onepipe_base::WIRE_MODULUS;
use onepipe_sim_network::{ClockConfig, Fault, NodeId, clock_origin};

//= spec/ordering.md#R5
#[test]
fn hour_long_clock_step_does_not_stall() {
    for (seed, ns) in [(1, HOUR_NS), (2, -HOUR_NS)] {
        let mut fabric = begin(plan("leaf-spine:2x2x2", 1, seed));
        fabric.set_strict();
        fabric.inject(Fault::StepClock(NodeId(1), ns));
        fabric.inject(Fault::StepClock(switch(&fabric, 0), -ns));
        let before = fabric.report().messages.delivered;
        fabric.run_us(300);
        assert!(fabric.report().messages.delivered > before + 300);
        assert_eq!(end(fabric).messages.lost, 0);
    }
}

#[test]
fn skew_and_drift_never_break_order() {
    let mut plan = plan("leaf-spine:2x2x2", 1, 3);
    plan.network.clocks = ClockConfig { offset_ns_max: 50_000, drift_ppb_max: 500_000 };
    let mut fabric = begin(plan);
    fabric.run_us(100);
    fabric.set_strict();
    fabric.run_us(500);
    end(fabric);
}

#[test]
fn wire_clock_wraps_mid_run_without_loss() {
    let mut plan = plan("leaf-spine:2x2x2", 2, 4);
    plan.network.sync_origin = clock_origin(7, 300_000);
    let origin = plan.network.sync_origin.as_ns();
    let mut fabric = begin(plan);
    fabric.set_strict();
    fabric.run_us(300);
    let barrier = fabric.barrier(0).expect("the process runs").as_ns();
    assert_eq!(barrier / WIRE_MODULUS, origin / WIRE_MODULUS + 1, "the clock has wrapped");
    let report = end(fabric);
    assert_eq!((report.messages.lost, report.messages.unknown), (0, 0));
}
