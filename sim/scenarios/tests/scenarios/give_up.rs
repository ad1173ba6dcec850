//! Reliable scatterings end without a controller.

use crate::fixture;

use fixture::plan;
use onepipe_sim_scenarios::{Fabric, Swarm};

const GIVE_UP_US: u64 = 5_000;

//= spec/failure.md#R55
//= spec/failure.md#R56
/// One receiver dies with a scattering in flight: it is recalled at the other one, and what comes
/// behind it is delivered.
#[test]
fn dead_receiver_stops_reliable_messages_for_a_bounded_time() {
    let mut plan = plan("leaf-spine:2x2x2", 1, 3);
    plan.load = None;
    plan.endpoint.give_up_after_ns = GIVE_UP_US * 1_000;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(100);
    let scatter = |fabric: &mut Fabric, from: u32, to: &[(u32, u32)]| {
        let accepted = fabric.scatter_reliably(from, to).expect("the process runs");
        accepted.expect("the message fits the send buffer");
    };
    for from in 0..4 {
        scatter(&mut fabric, from, &[(0, 64), (1, 64), (2, 64), (3, 64)]);
    }
    fabric.run_us(200);
    fabric.remove_process(3);
    scatter(&mut fabric, 0, &[(1, 64), (3, 64)]);
    scatter(&mut fabric, 0, &[(1, 64), (2, 64)]);
    scatter(&mut fabric, 1, &[(2, 64)]);
    fabric.run_us(GIVE_UP_US / 2);
    let report = fabric.report();
    assert_eq!((report.messages.lost, report.messages.unknown), (0, 0), "{report:#?}");
    fabric.run_us(GIVE_UP_US);
    let report = fabric.finish();
    assert_eq!(report.first_violations, Vec::<String>::new());
    assert_eq!((report.messages.lost, report.messages.unknown), (1, 1), "{report:#?}");
    assert_eq!(report.messages.reliable, 16 + 3);
}

//= spec/failure.md#R55
//= spec/failure.md#R58
//= spec/failure.md#R59
/// Receivers that never joined, senders that cancel, and no controller, or none for long. The check
/// can fail: without a limit scatterings stay open.
#[test]
fn every_reliable_scattering_ends_in_time() {
    for (seed, has_controllers) in [(7_000_009, true), (7_000_005, false)] {
        let mut swarm = Swarm::draw(seed);
        assert!(swarm.ends_after_us.is_some(), "seed {seed} has a limit");
        assert_eq!(swarm.plan.control_plane.is_some(), has_controllers, "seed {seed}");
        assert_eq!(swarm.run().first_violations, Vec::<String>::new(), "seed {seed}");
        swarm.plan.endpoint.give_up_after_ns = 0;
        let violations = swarm.run().first_violations;
        assert!(violations.iter().any(|text| text.contains("has not ended")), "{violations:#?}");
    }
}
