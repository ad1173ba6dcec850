//! Crashes of senders and receivers of large payloads at every step of a transfer.

use crate::verify;

use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Report, Scattering, Setup, SimEnv};
use onepipe_topology::Shape;

/// All nodes know the controller by then, in ns.
const READY_NS: u64 = 400_000;
/// Bulk groups detect a failure within 2 ms, and endpoints a loss as fast.
const RUN_NS: u64 = 6_000_000;

/// Five processes in two racks; payloads above 4 KiB are large.
fn setup() -> Setup {
    let shape = Shape::leaf_spine(2, 1, 3).expect("there is one");
    Setup { large_threshold_bytes: 4 << 10, ..Setup::new(shape, 5) }
}

fn run_verified(setup: &Setup, run_ns: u64) -> Report {
    let report = SimEnv::new(setup.clone()).run(run_ns);
    if let Some(wrong) = verify::verify(setup, &report) {
        panic!("{wrong}: {setup:?}\n{:?}\n{:?}", report.failed, report.stats);
    }
    report
}

/// Returns the number of receivers that delivered a scattering.
fn receivers(report: &Report, number: usize) -> usize {
    let all = report.delivered.iter().flatten();
    all.filter(|received| received.scattering == Some(number)).count()
}

/// Three payloads at once, one of them with a small message in its scattering; `victim` crashes
/// after sending `frames` more frames.
fn crash(victim: u32, frames: u32) -> Setup {
    let first = Scattering {
        small_to: vec![4],
        ..Scattering::new(READY_NS + 10_000, 0, vec![1, 2, 3], 40_000)
    };
    let second = Scattering::new(READY_NS + 12_000, 1, vec![0, 2, 4], 20_000);
    let third = Scattering::new(READY_NS + 13_000, 0, vec![0, 3], 10_000);
    let probes = Probes {
        every_ns: 5_000,
        from_ns: READY_NS,
        until_ns: READY_NS + 100_000,
        service: Service::Reliable,
    };
    Setup {
        scatterings: vec![first, second, third],
        probes: Some(probes),
        crashes_after: vec![(victim, READY_NS + 11_000, frames)],
        ..setup()
    }
}

/// Crashes `victim` at each of the frames in turn. Returns the number of delivered scatterings, and
/// of processes that were notified of failures.
fn crashes(victim: u32, frames: impl Iterator<Item = u32>) -> (usize, usize) {
    let (mut delivered, mut failed) = (0, 0);
    for frames in frames {
        let setup = crash(victim, frames);
        let report = run_verified(&setup, RUN_NS);
        delivered += (0..3).filter(|number| receivers(&report, *number) > 0).count();
        failed += report.failed.iter().filter(|reported| !reported.is_empty()).count();
    }
    (delivered, failed)
}

#[test]
fn survives_sender_crash() {
    let (delivered, _) = crashes(0, (0..260).step_by(20));
    assert!(delivered > 0);
}

#[test]
fn survives_relay_crash() {
    let (delivered, failed) = crashes(1, (0..75).step_by(5));
    assert!(delivered > 0 && failed > 0, "{delivered} delivered, {failed} told");
}

#[test]
fn survives_receiver_crash() {
    let (delivered, failed) = crashes(3, (0..50).step_by(5));
    assert!(delivered > 0 && failed > 0, "{delivered} delivered, {failed} told");
}

#[test]
#[ignore = "minutes: every frame; `cargo test -p onepipe-sim-large -- --ignored`"]
fn survives_crash_at_every_frame() {
    for victim in 0..5 {
        crashes(victim, 0..100);
    }
}

#[test]
fn frame_loss_costs_only_time() {
    for (seed, service) in (0..6).zip([Service::Reliable, Service::BestEffort].into_iter().cycle())
    {
        let scattering = |number: u64| Scattering {
            small_to: vec![4],
            service,
            ..Scattering::new(
                READY_NS + number * 7_000,
                number as u32 % 4,
                vec![(number as u32 + 1) % 4, (number as u32 + 2) % 4],
                // Every other payload is small.
                if number.is_multiple_of(2) { 30_000 } else { 2_000 },
            )
        };
        let setup = Setup {
            scatterings: (0..8).map(scattering).collect(),
            loss_ppm: 5_000,
            seed,
            dead_after_ns: 50_000_000,
            ..setup()
        };
        let report = run_verified(&setup, 30_000_000);
        if service == Service::Reliable {
            assert!((0..8).all(|number| receivers(&report, number) == 3), "seed {seed}");
        }
    }
}

#[test]
fn payload_waits_at_sender_without_memory() {
    // Four senders at once, and receive buffer for one and a half payloads.
    let scattering = |from: u32| Scattering::new(READY_NS + 10_000, from, vec![4], 60_000);
    let setup = Setup {
        scatterings: (0..4).map(scattering).collect(),
        received_bytes_max: 90_000,
        ..setup()
    };
    let report = run_verified(&setup, 2 * RUN_NS);
    assert!((0..4).all(|number| receivers(&report, number) == 1), "{:?}", report.delivered);
    assert!(report.bytes_held_max[4] > 0);
}
