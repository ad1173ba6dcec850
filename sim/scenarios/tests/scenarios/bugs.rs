//! Machines with one bug each: the checkers must detect every bug, and nothing without one.

use crate::fixture;

use fixture::plan;
use onepipe_sim_network::{ClockConfig, Fault, LinkFaults, Loss, NodeId};
use onepipe_sim_scenarios::{Bug, Fabric, Report};

/// Runs a fault-free fabric, or one with a little loss for bugs that show only in reports of failed
/// messages.
fn run(bug: Option<Bug>, seed: u64, has_loss: bool) -> Report {
    let mut plan = plan("leaf-spine:2x2x2", 2, seed);
    plan.network.clocks = ClockConfig { offset_ns_max: 200, drift_ppb_max: 10_000 };
    plan.bug = bug;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(120);
    fabric.set_strict();
    if has_loss {
        let loss = Loss { data_ppm: 5_000, ..Loss::default() };
        fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
    }
    if bug == Some(Bug::LinkReorders) {
        // Bypass `Fabric::inject`, so that the checks stay as strict as without faults.
        let faults =
            LinkFaults { reorder_ppm: 50_000, delay_ns_max: 5_000, ..LinkFaults::default() };
        for link in fabric.between(NodeId(0), fixture::switch(&fabric, 0)) {
            fabric.network().inject(Fault::SetLinkFaults(link, faults));
        }
    }
    fabric.run_us(300);
    fabric.stop_load();
    fabric.expect_liveness();
    fabric.drain_us(20_000);
    // Send once more after a pause in which only beacons kept the links alive.
    for from in 0..8 {
        fabric.scatter(from, &[(7 - from, 64)]);
    }
    fabric.drain_us(20_000);
    fabric.finish()
}

fn has_loss(bug: Bug) -> bool {
    matches!(bug, Bug::EndpointDropsFailure | Bug::EndpointRepeatsFailure)
}

#[test]
fn checkers_catch_every_bug() {
    let missed: Vec<Bug> = Bug::ALL
        .into_iter()
        .filter(|bug| run(Some(*bug), 1, has_loss(*bug)).violations == 0)
        .collect();
    assert_eq!(missed, []);
}

#[test]
fn no_violation_without_a_bug() {
    for has_loss in [false, true] {
        let report = run(None, 1, has_loss);
        assert_eq!(report.first_violations, Vec::<String>::new());
        assert_eq!(report.messages.lost > 0, has_loss);
        assert!(report.messages.delivered > 1_000);
    }
}
