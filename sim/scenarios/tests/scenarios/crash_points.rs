//! Crashes, leaves and restarts at every step: a process, a switch or a controller crashes before
//! its k-th frame, a controller before or after its k-th record is written, for every k that makes
//! a difference. A process leaves before its k-th frame, or crashes there, and is followed by its
//! next incarnation at once.

use crate::fixture;

use fixture::{begin, controller_plan, end, switch};
use onepipe_sim_network::{Fault, NodeId};
use onepipe_sim_scenarios::{Fabric, Report};

/// A fragmented message, an unfragmented one, and one to the other rack.
const TO: [(u32, u32); 3] = [(1, 3_000), (2, 64), (4, 1_500)];

/// Returns a fabric of eight hosts without load; the controllers are on the last ones.
fn quiet(replicas: u32, seed: u64) -> Fabric {
    let mut plan = controller_plan("leaf-spine:2x2x4", 1, replicas, seed);
    plan.load = None;
    begin(plan)
}

/// Injects a fault, submits a fragmented and an unfragmented scattering, and runs to the end.
fn scenario(mut fabric: Fabric, inject: impl FnOnce(&mut Fabric)) -> Report {
    inject(&mut fabric);
    for to in [&TO[..], &[(1, 64), (2, 64), (4, 64)]] {
        fabric
            .scatter_reliably(0, to)
            .expect("the process runs")
            .expect("the message fits the send buffer");
    }
    fabric.run_us(1_500);
    end(fabric)
}

/// Outcomes of the messages in many runs.
#[derive(Debug, Default)]
struct Tally {
    runs: u32,
    failures: u64,
    /// Runs without lost messages, and runs with lost messages.
    all: u32,
    not_all: u32,
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.failures += u64::from(report.messages.failures > 0);
        self.all += u32::from(report.messages.lost == 0);
        self.not_all += u32::from(report.messages.lost > 0);
        assert_eq!(report.control_plane.inexact, 0);
    }
}

#[test]
fn sender_crashes_before_each_frame() {
    let mut tally = Tally::default();
    for frames in 0..24 {
        tally.add(&scenario(quiet(1, 1), |fabric| fabric.crash_process_after(0, frames)));
    }
    assert!(tally.failures > 12, "{tally:?}");
}

#[test]
fn receiver_crashes_before_each_reply() {
    let mut tally = Tally::default();
    for frames in 0..10 {
        tally.add(&scenario(quiet(1, 2), |fabric| fabric.crash_process_after(4, frames)));
    }
    assert!(tally.failures > 4 && tally.all > 0 && tally.not_all > 0, "{tally:?}");
}

#[test]
fn spine_crashes_before_each_forwarded_frame() {
    let mut tally = Tally::default();
    for frames in 0..20 {
        tally.add(&scenario(quiet(1, 3), |fabric| {
            let spine = switch(fabric, 2);
            fabric.inject(Fault::CrashAfter(spine, frames));
        }));
    }
    assert_eq!((tally.failures, tally.all), (0, tally.runs), "no process is cut off: {tally:?}");
}

#[test]
fn rack_switch_crashes_before_each_forwarded_frame() {
    let mut tally = Tally::default();
    for frames in 0..24 {
        tally.add(&scenario(quiet(1, 4), |fabric| {
            let rack = switch(fabric, 0);
            fabric.inject(Fault::CrashAfter(rack, frames));
        }));
    }
    assert_eq!(tally.failures, u64::from(tally.runs), "{tally:?}");
}

/// Fails process 2 and the replica that resolves the failure; another replica takes over.
fn failover(seed: u64, inject: impl FnOnce(&mut Fabric, u32)) -> Report {
    let fabric = quiet(3, seed);
    let (active, epoch) = fabric.active().expect("a controller is active");
    assert_eq!(epoch, 1);
    let report = scenario(fabric, |fabric| {
        fabric.crash_process(2);
        inject(fabric, active);
    });
    assert!(report.messages.failures > 0 && report.control_plane.inexact == 0, "{report:#?}");
    report
}

#[test]
fn controller_crashes_before_each_recovery_frame() {
    let mut failovers = 0;
    for frames in 0..16 {
        let report = failover(5, |fabric, active| {
            let node = NodeId(active);
            fabric.inject(Fault::CrashAfter(node, frames));
        });
        failovers += u32::from(report.control_plane.epochs > 1);
    }
    assert!(failovers > 8, "{failovers}");
}

#[test]
fn controller_crashes_around_each_store_write() {
    let mut failovers = 0;
    for records in 0..3 {
        for is_written in [false, true] {
            let report = failover(6, |fabric, active| {
                fabric.crash_controller_at(active, records, is_written);
            });
            failovers += u32::from(report.control_plane.epochs > 1);
        }
    }
    assert!(failovers > 3, "{failovers}");
}

/// Waits until process `id` has ended, and starts its next incarnation at once; all others send to
/// it reliably, before they know. Returns whether it has ended.
fn succeed(fabric: &mut Fabric, id: u32) -> bool {
    let has_ended = |fabric: &Fabric| match fabric.process(id) {
        Some(process) => process.has_crashed() || process.endpoint.has_left(),
        None => true,
    };
    let ends = (0..1_000).any(|_| {
        fabric.run_us(1);
        has_ended(fabric)
    });
    if !ends {
        return false;
    }
    fabric.restart_process(id);
    for from in (0..fabric.members()).filter(|from| *from != id) {
        let accepted = fabric.scatter_reliably(from, &[(id, 64), ((id + 1) % 7, 64)]);
        accepted.expect("the process runs").expect("the message fits the send buffer");
    }
    true
}

/// Ends process `id` as `inject` says while process 0 scatters to it and while it scatters itself,
/// and starts its next incarnation at once.
fn replacement(seed: u64, id: u32, inject: impl FnOnce(&mut Fabric)) -> (Report, bool) {
    let mut fabric = quiet(1, seed);
    let back = if id == 0 { 4 } else { 0 };
    inject(&mut fabric);
    for (from, to) in [(0, &TO[..]), (id, &[(back, 64), (2, 3_000)]), (0, &[(1, 64), (4, 64)])] {
        // A process that has ended already refuses.
        let _ = fabric.scatter_reliably(from, to);
    }
    let has_ended = succeed(&mut fabric, id);
    fabric.run_us(1_500);
    (end(fabric), has_ended)
}

//= spec/failure.md#R34
/// A process that has crashed is back before anybody has noticed.
#[test]
fn next_incarnation_follows_a_crash_before_each_frame() {
    for id in [0, 4] {
        let mut ended = 0;
        for frames in 0..24 {
            let crash = |fabric: &mut Fabric| fabric.crash_process_after(id, frames);
            let (report, has_ended) = replacement(7, id, crash);
            ended += u32::from(has_ended);
            assert_eq!(report.messages.failures > 0, has_ended, "{frames} frames: {report:#?}");
        }
        assert!(ended > 8, "process {id} has ended {ended} times");
    }
}

//= spec/ordering.md#R56
//= spec/failure.md#R51
/// A process that leaves is no failure, wherever it leaves; what it has acknowledged is delivered.
#[test]
fn process_leaves_before_each_frame() {
    for id in [0, 4] {
        let mut ended = 0;
        for frames in 0..24 {
            let (report, has_ended) = replacement(8, id, |fabric| {
                fabric.protect_leavers();
                fabric.leave_after(id, frames);
            });
            ended += u64::from(has_ended);
            let control_plane = &report.control_plane;
            let expected = (u64::from(has_ended), 0);
            assert_eq!((control_plane.leaves, control_plane.failures), expected, "{report:#?}");
        }
        assert!(ended > 8, "process {id} has left {ended} times");
    }
}
