//! Beacons on demand: a fabric at rest is quiet, and the first message after a pause waits for one
//! round trip to the idle neighbours, whatever is lost.

use crate::fixture;

use fixture::{controller_plan, end, plan};
use onepipe_sim_network::{LinkFaults, Loss, Placement};
use onepipe_sim_scenarios::{Fabric, PauseOptions, Plan, demand, pauses};
use onepipe_topology::Shape;

/// Heartbeats in these tests, in beacon intervals.
const HEARTBEAT_INTERVALS: u64 = 100;

/// Returns the fabric of `plan` with beacons on demand, at rest for two heartbeats.
fn at_rest(mut plan: Plan) -> Fabric {
    plan.load = None;
    plan.set_on_demand(HEARTBEAT_INTERVALS);
    let heartbeat_us = plan.switch.heartbeat_interval_ns / 1_000;
    let starts_us = plan.load_starts_ns / 1_000;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(starts_us + 2 * heartbeat_us);
    fabric
}

/// Returns how long a message from process 0 to process 1 takes, in us; at most `us_max`.
fn latency_us(fabric: &mut Fabric, is_reliable: bool, us_max: u64) -> u64 {
    let before = fabric.report().messages.delivered;
    let receivers = [(1, 64)];
    let scattered = match is_reliable {
        true => fabric.scatter_reliably(0, &receivers),
        false => fabric.scatter(0, &receivers),
    };
    scattered.expect("the process runs").expect("the buffer is empty");
    for us in 1..=us_max {
        fabric.run_us(1);
        if fabric.report().messages.delivered > before {
            return us;
        }
    }
    us_max
}

/// Returns the latencies of a message whose connection is open, each after a pause of half a
/// heartbeat.
fn latencies_after_pauses(fabric: &mut Fabric, is_reliable: bool) -> Vec<u64> {
    latency_us(fabric, is_reliable, 10_000);
    (0..5)
        .map(|_| {
            fabric.run_us(150);
            latency_us(fabric, is_reliable, 1_000)
        })
        .collect()
}

//= spec/ordering.md#R40
#[test]
fn fabric_at_rest_sends_heartbeats_only() {
    for shape in ["star:4", "leaf-spine:2x2x2"] {
        let mut fabric = at_rest(plan(shape, 1, 1));
        let links = u64::from(fabric.topology().hosts()) + if shape == "star:4" { 0 } else { 4 };
        let before = fabric.stats().hops;
        fabric.run_us(3_000);
        let sent = fabric.stats().hops - before;
        // Ten heartbeats in both directions of every link.
        assert!((2 * 9 * links..=2 * 11 * links).contains(&sent), "{shape}: {sent} frames");
        end(fabric);
    }
}

//= spec/ordering.md#R41
//= spec/ordering.md#R42
#[test]
fn first_message_waits_for_one_round_trip() {
    for shape in ["star:4", "leaf-spine:2x2x2"] {
        for is_reliable in [false, true] {
            let mut fixed_plan = plan(shape, 1, 2);
            fixed_plan.load = None;
            let mut fixed = Fabric::new(fixed_plan);
            fixed.run_us(200);
            let fixed = latencies_after_pauses(&mut fixed, is_reliable);
            let mut fabric = at_rest(plan(shape, 1, 2));
            let on_demand = latencies_after_pauses(&mut fabric, is_reliable);
            let slowest = |all: &[u64]| all.iter().copied().max().expect("there are five");
            println!(
                "{shape}, reliable {is_reliable}: fixed {fixed:?} us, on demand {on_demand:?} us"
            );
            // The heartbeat is 300 us; a hop of the longest path takes less than 1 us.
            assert!(slowest(&on_demand) <= slowest(&fixed) + 6, "{shape} {is_reliable}");
            end(fabric);
        }
    }
}

//= spec/ordering.md#R43
#[test]
fn every_form_delivers_without_waiting_for_a_heartbeat() {
    for placement in [Placement::Chip, Placement::SwitchCpu, Placement::Delegate] {
        let mut plan = plan("leaf-spine:2x2x2", 1, 3);
        plan.set_placement(placement);
        let mut fabric = at_rest(plan);
        let best_effort = latencies_after_pauses(&mut fabric, false);
        let reliable = latencies_after_pauses(&mut fabric, true);
        println!("{placement:?}: best effort {best_effort:?} us, reliable {reliable:?} us");
        assert!(best_effort.iter().chain(&reliable).all(|us| *us < 200), "{placement:?}");
        end(fabric);
    }
}

//= spec/ordering.md#R43
#[test]
fn processes_at_the_fixed_interval_solicit_switches_on_demand() {
    for placement in [Placement::Chip, Placement::SwitchCpu, Placement::Delegate] {
        let mut plan = plan("leaf-spine:2x2x2", 1, 6);
        plan.load = None;
        plan.set_placement(placement);
        plan.set_on_demand(HEARTBEAT_INTERVALS);
        plan.endpoint.heartbeat_interval_ns = 0;
        let mut fabric = Fabric::new(plan);
        fabric.run_us(700);
        let best_effort = latencies_after_pauses(&mut fabric, false);
        let reliable = latencies_after_pauses(&mut fabric, true);
        println!("{placement:?}: best effort {best_effort:?} us, reliable {reliable:?} us");
        assert!(best_effort.iter().chain(&reliable).all(|us| *us < 200), "{placement:?}");
        end(fabric);
    }
}

//= spec/ordering.md#R41
//= spec/ordering.md#R43
#[test]
fn lost_solicits_and_answers_are_repeated() {
    let mut fabric = at_rest(plan("leaf-spine:2x2x2", 1, 4));
    latency_us(&mut fabric, false, 10_000);
    let loss = Loss { beacon_ppm: 300_000, ..Loss::default() };
    fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
    let mut latencies = Vec::new();
    for _ in 0..20 {
        fabric.run_us(150);
        latencies.push(latency_us(&mut fabric, false, 1_000));
    }
    latencies.sort_unstable();
    println!("{latencies:?} us with 30 % of the beacons lost");
    assert!(latencies[10] < 100, "the median waits for a heartbeat: {latencies:?}");
    fabric.set_link_faults(LinkFaults::default());
    end(fabric);
}

//= spec/ordering.md#R47
#[test]
fn single_messages_meet_the_bound() {
    for seed in 0..100 {
        assert_eq!(demand(seed), Vec::<String>::new(), "seed {seed}");
    }
}

//= spec/ordering.md#R45
#[test]
fn controlled_fabric_commits_at_rest() {
    let mut fabric = at_rest(controller_plan("leaf-spine:2x2x2", 1, 1, 5));
    let reliable = latencies_after_pauses(&mut fabric, true);
    println!("with a controller: {reliable:?} us");
    assert!(reliable.iter().all(|us| *us < 100));
    end(fabric);
}

//= spec/ordering.md#R40
#[test]
fn chip_on_demand_is_as_fast_after_a_pause() {
    let [fixed, on_demand] = [None, Some(5_000)].map(|heartbeat_intervals| {
        [false, true].map(|is_reliable| {
            let report = pauses(&PauseOptions {
                shape: Shape::star(4).expect("in range"),
                placement: Placement::Chip,
                heartbeat_intervals,
                pause_intervals: 1_000,
                is_reliable,
                messages: 50,
                seed: 1,
            });
            assert_eq!(report.violations, 0);
            report
        })
    });
    for (fixed, on_demand) in fixed.iter().zip(&on_demand) {
        assert!(on_demand.latency.p50_ns <= fixed.latency.p50_ns, "{on_demand:?}, {fixed:?}");
    }
    let ratio = fixed[0].rest_frames_per_second / on_demand[0].rest_frames_per_second;
    assert!(ratio > 1_000.0, "a link at rest carries heartbeats only: {ratio}");
}
