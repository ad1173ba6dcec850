//! What the stories share: a fabric under load, and how a story ends.

use onepipe_sim_network::{Load, NodeId, Pace, Workload};
use onepipe_sim_scenarios::{Court, Fabric, Plan, Report};
use onepipe_topology::{Node, Shape};

pub const HOUR_NS: i64 = 3_600_000_000_000;

/// A plan under a load that leaves no process and no link idle.
pub fn plan(shape: &str, per_host: u16, seed: u64) -> Plan {
    let shape: Shape = shape.parse().expect("well-formed");
    let mut plan = Plan::new(shape, per_host, seed, 400_000);
    plan.load = Some(Load {
        workload: Workload::AllToAll { fan_out: 3, bytes: 64 },
        pace: Pace::ClosedLoop { messages_max: 12 },
    });
    plan
}

/// The same at a steady pace, so that messages to the dead hold nobody up.
pub fn steady_plan(shape: &str, per_host: u16, seed: u64) -> Plan {
    let mut plan = plan(shape, per_host, seed);
    plan.load = plan.load.map(|load| Load { pace: Pace::Every { ns: 2_000 }, ..load });
    plan
}

/// A fabric with so many controllers; most of the load is reliable.
pub fn court_plan(shape: &str, per_host: u16, replicas: u32, seed: u64) -> Plan {
    let mut plan = steady_plan(shape, per_host, seed);
    plan.reliable_percent = 70;
    plan.set_court(Court::new(replicas, plan.switch.beacon_interval_ns));
    plan
}

/// The fabric of a plan, under load for 50 us.
pub fn begin(plan: Plan) -> Fabric {
    let mut fabric = Fabric::new(plan);
    fabric.run_us(150);
    fabric
}

/// A switch by its number; racks come first, cores last.
pub fn switch(fabric: &Fabric, number: u32) -> NodeId {
    fabric.node(Node::Switch(onepipe_base::SwitchId(number)))
}

/// Everything heals: all barriers must advance in time, all messages get their fate, and after that
/// everybody still reaches everybody. Nothing may have gone wrong at any time.
pub fn end(mut fabric: Fabric) -> Report {
    fabric.heal();
    fabric.expect_liveness();
    fabric.stop_load();
    assert!(fabric.settle_us(200_000), "messages without a fate: {:#?}", fabric.finish());
    let before = fabric.report().messages;
    let processes = fabric.members();
    for from in 0..processes {
        let to: Vec<(u32, u32)> = (0..processes).map(|to| (to, 100)).collect();
        fabric.scatter(from, &to).expect("everybody runs").expect("buffers are empty by now");
    }
    assert!(fabric.settle_us(200_000), "messages without a fate: {:#?}", fabric.finish());
    let report = fabric.finish();
    assert_eq!(report.first_violations, Vec::<String>::new(), "{report:#?}");
    let all = u64::from(processes) * u64::from(processes);
    assert_eq!(report.messages.delivered - before.delivered, all, "healed, yet {report:#?}");
    report
}
