//! Shared parts of the scenarios: fabrics under load, and the final checks.

use onepipe_sim_network::{Load, NodeId, Pace, Workload};
use onepipe_sim_scenarios::{Court, Fabric, Plan, Report};
use onepipe_topology::{Node, Shape};

pub const HOUR_NS: i64 = 3_600_000_000_000;

/// Returns a plan with a load that leaves no process and no link idle.
pub fn plan(shape: &str, per_host: u16, seed: u64) -> Plan {
    let shape: Shape = shape.parse().expect("well-formed");
    let mut plan = Plan::new(shape, per_host, seed, 400_000);
    plan.load = Some(Load {
        workload: Workload::AllToAll { fan_out: 3, bytes: 64 },
        pace: Pace::ClosedLoop { messages_max: 12 },
    });
    plan
}

/// Returns the plan with an open loop, so that messages to failed receivers stop nobody.
pub fn steady_plan(shape: &str, per_host: u16, seed: u64) -> Plan {
    let mut plan = plan(shape, per_host, seed);
    plan.load = plan.load.map(|load| Load { pace: Pace::Every { ns: 2_000 }, ..load });
    plan
}

/// Returns a plan with controllers; most of the load is reliable.
pub fn court_plan(shape: &str, per_host: u16, replicas: u32, seed: u64) -> Plan {
    let mut plan = steady_plan(shape, per_host, seed);
    plan.reliable_percent = 70;
    plan.set_court(Court::new(replicas, plan.switch.beacon_interval_ns));
    plan
}

/// Builds the fabric of a plan and runs it under load for 50 us.
pub fn begin(plan: Plan) -> Fabric {
    let mut fabric = Fabric::new(plan);
    fabric.run_us(150);
    fabric
}

/// Returns a switch by its number; racks come first, cores last.
pub fn switch(fabric: &Fabric, number: u32) -> NodeId {
    fabric.node(Node::Switch(onepipe_base::SwitchId(number)))
}

/// Heals all faults and checks the recovery: all barriers advance in time, every message gets its
/// outcome, and every process still reaches all others. No invariant may have been violated at any
/// time.
pub fn end(mut fabric: Fabric) -> Report {
    fabric.heal();
    fabric.expect_liveness();
    fabric.stop_load();
    assert!(fabric.settle_us(200_000), "messages without an outcome: {:#?}", fabric.finish());
    let before = fabric.report().messages;
    let processes = fabric.members();
    for from in 0..processes {
        let to: Vec<(u32, u32)> = (0..processes).map(|to| (to, 100)).collect();
        fabric
            .scatter(from, &to)
            .expect("every process runs")
            .expect("the send buffers are empty by now");
    }
    assert!(fabric.settle_us(200_000), "messages without an outcome: {:#?}", fabric.finish());
    let report = fabric.finish();
    assert_eq!(report.first_violations, Vec::<String>::new(), "{report:#?}");
    let all = u64::from(processes) * u64::from(processes);
    assert_eq!(
        report.messages.delivered - before.delivered,
        all,
        "not all messages were delivered after healing: {report:#?}"
    );
    report
}
