//! Lookahead gives the same histories as handling all events in time order.

use onepipe_sim_network::{ClockConfig, Load, Pace, Workload};
use onepipe_sim_scenarios::{Fabric, Plan, Report};
use onepipe_topology::Shape;

/// Runs a load that does not depend on events at other nodes.
fn run(seed: u64, takes_turns: bool) -> Report {
    let mut plan = Plan::new(Shape::testbed(), 2, seed, 200_000);
    let workload = Workload::AllToAll { fan_out: 8, bytes: 64 };
    plan.load = Some(Load { workload, pace: Pace::Every { ns: 3_001 } });
    plan.network.clocks = ClockConfig { offset_ns_max: 500, drift_ppb_max: 10_000 };
    plan.network.takes_turns = takes_turns;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(300);
    fabric.stop_load();
    fabric.settle_us(10_000);
    fabric.finish()
}

/// Whether the two values are as close as a few reordered simultaneous frames leave them.
fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) * 50 <= other
}

#[test]
fn in_turns_or_in_the_order_of_time_everybody_lives_through_the_same() {
    for seed in 1..4 {
        let (turns, time) = (run(seed, true), run(seed, false));
        assert!(turns.messages.delivered > 10_000, "{:?}", turns.messages);
        assert_eq!(turns.violations, 0, "{:?}", turns.first_violations);
        assert_ne!(turns.trace_hash, time.trace_hash, "seed {seed}: lookahead had no effect");
        assert_eq!(turns.messages, time.messages, "seed {seed}");
        let kinds = turns.network.hops_by_kind.into_iter().zip(time.network.hops_by_kind);
        for (turns, time) in kinds.chain([
            (turns.network.events, time.network.events),
            (turns.latency.p50_ns, time.latency.p50_ns),
            // Not the maximum: a single message determines it.
            (turns.latency.p99_ns, time.latency.p99_ns),
        ]) {
            assert!(is_near(turns, time), "seed {seed}: {turns} and {time}");
        }
    }
}
