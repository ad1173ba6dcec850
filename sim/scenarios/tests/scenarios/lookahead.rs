//! Lookahead gives the same histories as handling all events in time order, and several threads the
//! same as one.

use std::num::NonZeroUsize;

use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{
    ClockConfig, Fault, LinkFaults, LinkId, Load, Loss, NodeId, SendPattern, Workload,
};
use onepipe_sim_scenarios::{Fabric, Plan, Report};
use onepipe_topology::Shape;

/// A load that does not depend on events at other nodes.
const OPEN_LOOP: SendPattern = SendPattern::OpenLoop { interval_ns: 3_001 };
/// A load that submits more as soon as messages are delivered elsewhere.
const CLOSED_LOOP: SendPattern = SendPattern::ClosedLoop { messages_max: 24 };
/// Loss, corruption, duplicates and delays, on every link.
const FAULTS: LinkFaults = LinkFaults {
    loss: Loss { data_ppm: 2_000, beacon_ppm: 5_000, control_ppm: 3_000 },
    loss_ppb: 0,
    burst_ppm: 50,
    burst_frames: 3,
    corrupt_ppm: 500,
    duplicate_ppm: 1_000,
    reorder_ppm: 1_000,
    delay_ns_max: 2_000,
};

fn plan(shape: Shape, seed: u64, workload: Workload, pattern: SendPattern) -> Plan {
    let mut plan = Plan::new(shape, 2, seed, 200_000);
    plan.load = Some(Load { workload, pattern });
    plan.network.clocks = ClockConfig { offset_ns_max: 500, drift_ppb_max: 10_000 };
    plan.network.uses_lookahead = true;
    plan
}

fn all_to_all(seed: u64, pattern: SendPattern) -> Plan {
    plan(Shape::testbed(), seed, Workload::AllToAll { fan_out: 8, bytes: 64 }, pattern)
}

/// Runs the load, injecting faults at the start, and waits for the outcomes.
fn run(plan: Plan, threads: Option<usize>, inject: impl FnOnce(&mut Fabric)) -> Report {
    let mut plan = plan;
    plan.network.threads = threads.and_then(NonZeroUsize::new);
    let mut fabric = Fabric::new(plan);
    inject(&mut fabric);
    fabric.run_us(200);
    fabric.run_us(100);
    fabric.stop_load();
    fabric.heal();
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
        let plan = all_to_all(seed, OPEN_LOOP);
        let mut in_order = plan.clone();
        in_order.network.uses_lookahead = false;
        let (ahead, time) = (run(plan, None, |_| {}), run(in_order, None, |_| {}));
        assert!(ahead.messages.delivered > 10_000, "{:?}", ahead.messages);
        assert_eq!(ahead.violations, 0, "{:?}", ahead.first_violations);
        assert_ne!(ahead.trace_hash, time.trace_hash, "seed {seed}: lookahead had no effect");
        assert_eq!(ahead.messages, time.messages, "seed {seed}");
        let kinds = ahead.network.hops_by_kind.into_iter().zip(time.network.hops_by_kind);
        for (ahead, time) in kinds.chain([
            (ahead.network.events, time.network.events),
            (ahead.latency.p50_ns, time.latency.p50_ns),
            // Not the maximum: a single message determines it.
            (ahead.latency.p99_ns, time.latency.p99_ns),
        ]) {
            assert!(is_near(ahead, time), "seed {seed}: {ahead} and {time}");
        }
    }
}

#[test]
fn threads_do_not_change_an_open_loop() {
    let random = Workload::Random { fan_out_max: 5, bytes_max: 20_000 };
    let plans = [
        all_to_all(1, OPEN_LOOP),
        plan(Shape::fat_tree(4).expect("16 hosts"), 2, random, OPEN_LOOP),
        plan(Shape::star(5).expect("5 hosts"), 3, random, OPEN_LOOP),
    ];
    for (plan, faults) in plans.into_iter().zip([LinkFaults::default(), FAULTS, FAULTS]) {
        let report = |threads| {
            let plan = plan.clone();
            run(plan, threads, |fabric| fabric.set_link_faults(faults))
        };
        let one = report(None);
        assert!(one.messages.delivered > 500 && one.violations == 0, "{one:?}");
        assert_eq!(one.messages.lost > 0, faults != LinkFaults::default(), "{one:?}");
        // Not divided, and divided among one, two and three threads: everything is the same.
        for threads in 1..=3 {
            assert_eq!(report(Some(threads)), one, "{threads} threads");
        }
    }
}

#[test]
fn threads_do_not_change_a_closed_loop() {
    for (seed, faults) in [(4, LinkFaults::default()), (5, FAULTS)] {
        let report = |threads| {
            let plan = all_to_all(seed, CLOSED_LOOP);
            run(plan, Some(threads), |fabric| fabric.set_link_faults(faults))
        };
        let one = report(1);
        assert!(one.messages.delivered > 5_000 && one.violations == 0, "{one:?}");
        for threads in 2..=3 {
            assert_eq!(report(threads), one, "{threads} threads");
        }
    }
}

#[test]
fn threads_do_not_change_scheduled_faults() {
    let report = |threads| {
        run(all_to_all(6, OPEN_LOOP), threads, |fabric| {
            fabric.set_link_faults(LinkFaults { loss: Loss::uniform(100), ..FAULTS });
            let at = |ns: u64| Instant::from_ps(ns * NANOSECOND);
            let network = fabric.network();
            let last = NodeId(network.nodes() - 1);
            for (ns, fault) in [
                (60_000, Fault::Cut(LinkId(40))),
                (80_000, Fault::StepClock(NodeId(3), 2_000)),
                (80_000, Fault::Pause(NodeId(9), 30_000)),
                (95_000, Fault::Crash(last)),
                (120_001, Fault::Repair(LinkId(40))),
                (150_000, Fault::Restart(last)),
            ] {
                network.schedule(at(ns), fault);
            }
        })
    };
    let one = report(None);
    assert!(one.network.drops.link_down > 0 && one.network.drops.node_down > 0, "{one:?}");
    for threads in 1..=3 {
        let divided = report(Some(threads));
        assert_eq!(divided, one, "{threads} threads");
    }
}
