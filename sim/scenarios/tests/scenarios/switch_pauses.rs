//! Switches that pause or restart must not cost any process its incarnation, and a graceful leave
//! is no failure.

use crate::fixture;

use fixture::{begin, controller_plan};
use onepipe_sim_scenarios::{FaultEvent, Swarm};

//= spec/failure.md#R49
/// In each of these seeds processes fail if a lost path alone decides.
#[test]
fn no_process_fails_while_switches_pause() {
    for seed in [5, 12, 21, 36, 39, 85] {
        let swarm = Swarm::draw_calm(seed).expect("a seed with controllers");
        let report = swarm.run();
        assert_eq!(report.first_violations, Vec::<String>::new(), "seed {seed}");
    }
}

//= spec/failure.md#R72
/// Relays in each timeout kept the only controller so busy that it declared a process failed.
#[test]
fn pause_does_not_overload_the_controller_with_relays() {
    let swarm = Swarm::draw_calm(7000572).expect("a seed with controllers");
    let report = swarm.run();
    assert_eq!(report.first_violations, Vec::<String>::new());
    assert!(report.control_plane.relayed < report.messages.submitted / 10, "{report:#?}");
}

//= spec/failure.md#R49
/// The check of the runs above can fail.
#[test]
fn lost_path_alone_fails_living_processes() {
    let mut swarm = Swarm::draw_calm(39).expect("a seed with controllers");
    let control_plane = swarm.plan.control_plane.as_mut().expect("it has controllers");
    control_plane.controller.silent_after_ns = 0;
    let report = swarm.run();
    assert!(report.first_violations[0].contains("is alive, but has failed"), "{report:#?}");
}

/// A whole fabric restarts, one role after another.
#[test]
fn rolling_restart_fails_nobody_else() {
    for seed in [36, 64, 123, 418, 799] {
        let swarm = Swarm::draw_calm(seed).expect("a seed with controllers");
        let leaves = |(_, fault): &(u64, FaultEvent)| matches!(fault, FaultEvent::Leave(_));
        assert!(swarm.timeline.iter().any(leaves), "seed {seed} is a rolling restart");
        let report = swarm.run();
        assert_eq!(report.first_violations, Vec::<String>::new(), "seed {seed}");
    }
}

//= spec/failure.md#R51
#[test]
fn graceful_leave_is_no_failure() {
    for seed in 0..4 {
        let mut fabric = begin(controller_plan("testbed", 1, 1, seed));
        fabric.protect_leavers();
        fabric.run_us(100);
        fabric.stop_load();
        fabric.run_us(300);
        fabric.leave(0);
        fabric.run_us(1_500);
        let report = fabric.report();
        assert_eq!(report.first_violations, Vec::<String>::new());
        let control_plane = &report.control_plane;
        assert_eq!((control_plane.leaves, control_plane.failures), (1, 0), "{report:#?}");
    }
}
