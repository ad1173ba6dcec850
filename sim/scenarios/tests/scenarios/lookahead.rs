//! Lookahead gives the same histories as handling all events in time order.

use onepipe_sim_network::{ClockConfig, Load, SendPattern, Workload};
use onepipe_sim_scenarios::{Fabric, Plan, Report};
use onepipe_topology::Shape;

/// Runs a load that does not depend on events at other nodes.
fn run(seed: u64, uses_lookahead: bool) -> Report {
    let mut plan = Plan::new(Shape::testbed(), 2, seed, 200_000);
    let workload = Workload::AllToAll { fan_out: 8, bytes: 64 };
    plan.load = Some(Load { workload, pattern: SendPattern::OpenLoop { interval_ns: 3_001 } });
    plan.network.clocks = ClockConfig { offset_ns_max: 500, drift_ppb_max: 10_000 };
    plan.network.uses_lookahead = uses_lookahead;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(300);
    fabric.stop_load();
    fabric.drain_us(10_000);
    fabric.finish()
}

/// Whether the two values are as close as a few reordered simultaneous frames leave them.
fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) * 50 <= other
}

#[test]
fn lookahead_gives_equivalent_histories() {
    for seed in 1..4 {
        let (next_ports, time) = (run(seed, true), run(seed, false));
        assert!(next_ports.messages.delivered > 10_000, "{:?}", next_ports.messages);
        assert_eq!(next_ports.violations, 0, "{:?}", next_ports.first_violations);
        assert_ne!(next_ports.trace_hash, time.trace_hash, "seed {seed}: lookahead had no effect");
        assert_eq!(next_ports.messages, time.messages, "seed {seed}");
        let kinds = next_ports.network.hops_by_kind.into_iter().zip(time.network.hops_by_kind);
        for (next_ports, time) in kinds.chain([
            (next_ports.network.events, time.network.events),
            (next_ports.latency.p50_ns, time.latency.p50_ns),
            // Not the maximum: a single message determines it.
            (next_ports.latency.p99_ns, time.latency.p99_ns),
        ]) {
            assert!(is_near(next_ports, time), "seed {seed}: {next_ports} and {time}");
        }
    }
}
