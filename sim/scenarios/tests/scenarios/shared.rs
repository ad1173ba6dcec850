//! One payload for several receivers: sent once, delivered as if sent to each alone.

use crate::fixture;

use fixture::{begin, controller_plan, end, plan, steady_plan, switch};
use onepipe_sim_network::{Fault, HopKind, Load, NodeId, Workload};
use onepipe_sim_scenarios::{Fabric, Plan, Report, Swarm, shared};

/// Returns a plan in which every process scatters 1 KiB to all others.
fn repeating(mut plan: Plan) -> Plan {
    plan.repeats_payloads = true;
    plan.load = plan
        .load
        .map(|load| Load { workload: Workload::AllToAll { fan_out: 3, bytes: 1_024 }, ..load });
    plan
}

/// Returns the data frames that crossed links, and the messages delivered.
fn hops(report: &Report) -> (u64, u64) {
    let data = HopKind::ALL.iter().position(|kind| *kind == HopKind::Data).expect("a kind");
    (report.network.hops_by_kind[data], report.messages.delivered)
}

//= spec/ordering.md#R51
//= spec/ordering.md#R52
#[test]
fn shared_frames_reach_the_same_receivers() {
    for reliable_percent in [0, 100] {
        let report = |shares| {
            let mut plan = repeating(plan("star:4", 1, 3));
            plan.load = None;
            plan.endpoint.shares_payloads = shares;
            let mut fabric = Fabric::new(plan);
            fabric.run_us(100);
            for round in 0..50 {
                let to: Vec<(u32, u32)> = (0..4).map(|to| (to, 1_024)).collect();
                let sent = match reliable_percent {
                    0 => fabric.scatter(round % 4, &to),
                    _ => fabric.scatter_reliably(round % 4, &to),
                };
                sent.expect("the process runs").expect("it fits the send buffer");
                fabric.run_us(5);
            }
            assert!(fabric.drain_us(50_000));
            let ends = (0..4).map(|id| fabric.process(id).expect("it runs").endpoint.stats());
            let frames_shared: Vec<u64> = ends.map(|stats| stats.frames_shared).collect();
            assert!(frames_shared.iter().all(|frames| (*frames > 10) == shares));
            fabric.finish()
        };
        let (shared, single) = (report(true), report(false));
        for report in [&shared, &single] {
            assert_eq!(report.first_violations, Vec::<String>::new());
            assert_eq!((report.messages.lost, report.messages.unknown), (0, 0));
        }
        let (shared, single) = (hops(&shared), hops(&single));
        assert_eq!(shared.1, single.1, "messages delivered");
        // One frame to the switch and three copies behind it, in place of three frames and three.
        assert_eq!((shared.0, single.0), (50 * 4, 50 * 6));
    }
}

//= spec/ordering.md#R52
#[test]
fn shared_frames_survive_failures_of_switches() {
    for service_percent in [0, 50] {
        let mut plan = repeating(steady_plan("leaf-spine:2x2x2", 2, 5));
        plan.reliable_percent = service_percent;
        let mut fabric = begin(plan);
        let spine = switch(&fabric, 2);
        fabric.inject(Fault::Crash(spine));
        fabric.run_us(100);
        fabric.inject(Fault::Restart(spine));
        fabric.run_us(100);
        assert!(fabric.report().messages.delivered > 1_000);
        end(fabric);
    }
}

#[test]
fn failed_receivers_of_shared_frames_leave_the_others() {
    let mut fabric = begin(repeating(controller_plan("leaf-spine:2x2x2", 2, 1, 5)));
    fabric.crash_process(1);
    fabric.run_us(200);
    fabric.inject(Fault::Crash(NodeId(1)));
    fabric.run_us(1_000);
    assert!(fabric.report().messages.reliable > 500);
    end(fabric);
}

#[test]
fn no_message_follows_below_a_promise() {
    for seed in 0..8 {
        let report = shared(seed);
        assert_eq!(report.first_violations, Vec::<String>::new(), "seed {seed}");
        assert!(report.messages.delivered > 100 && report.messages.lost == 0, "seed {seed}");
    }
}

/// Random fabrics, loads and faults, with one payload for all messages of each scattering.
#[test]
fn random_runs_with_one_payload_keep_all_invariants() {
    for seed in 7_000..7_032 {
        let mut swarm = Swarm::draw(seed);
        swarm.plan.repeats_payloads = true;
        let outcome = swarm.attempt();
        assert_eq!(outcome.rules().map(|rules| rules.len()), Some(0), "seed {seed}");
    }
}
