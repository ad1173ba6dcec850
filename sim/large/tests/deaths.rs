//! Crashes of senders and receivers of large payloads at every step of a transfer.

mod court;

use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Scattering, Setup, Story, World};
use onepipe_topology::Shape;

/// All nodes know the controller by then, in ns.
const CALM_NS: u64 = 400_000;
/// Bulk groups detect a failure within 2 ms, and endpoints a loss as fast.
const RUN_NS: u64 = 6_000_000;

/// Five processes in two racks; payloads above 4 KiB are large.
fn setup() -> Setup {
    let shape = Shape::leaf_spine(2, 1, 3).expect("there is one");
    Setup { large_bytes: 4 << 10, ..Setup::new(shape, 5) }
}

fn judged(setup: &Setup, run_ns: u64) -> Story {
    let story = World::new(setup.clone()).run(run_ns);
    if let Some(wrong) = court::judge(setup, &story) {
        panic!("{wrong}: {setup:?}\n{:?}\n{:?}", story.failed, story.stats);
    }
    story
}

/// Returns the number of receivers that delivered a scattering.
fn receivers(story: &Story, number: usize) -> usize {
    let all = story.delivered.iter().flatten();
    all.filter(|seen| seen.scattering == Some(number)).count()
}

/// Three payloads at once, one of them with a small message in its scattering; `victim` crashes
/// after sending `frames` more frames.
fn death(victim: u32, frames: u32) -> Setup {
    let first = Scattering {
        small_to: vec![4],
        ..Scattering::new(CALM_NS + 10_000, 0, vec![1, 2, 3], 40_000)
    };
    let second = Scattering::new(CALM_NS + 12_000, 1, vec![0, 2, 4], 20_000);
    let third = Scattering::new(CALM_NS + 13_000, 0, vec![0, 3], 10_000);
    let probes = Probes {
        every_ns: 5_000,
        from_ns: CALM_NS,
        until_ns: CALM_NS + 100_000,
        service: Service::Reliable,
    };
    Setup {
        scatterings: vec![first, second, third],
        probes: Some(probes),
        deaths_after: vec![(victim, CALM_NS + 11_000, frames)],
        ..setup()
    }
}

/// Crashes `victim` at each of the frames in turn. Returns the number of delivered scatterings, and
/// of processes that were notified of failures.
fn deaths(victim: u32, frames: impl Iterator<Item = u32>) -> (usize, usize) {
    let (mut delivered, mut failed) = (0, 0);
    for frames in frames {
        let setup = death(victim, frames);
        let story = judged(&setup, RUN_NS);
        delivered += (0..3).filter(|number| receivers(&story, *number) > 0).count();
        failed += story.failed.iter().filter(|told| !told.is_empty()).count();
    }
    (delivered, failed)
}

#[test]
fn a_sender_dies() {
    let (delivered, _) = deaths(0, (0..260).step_by(20));
    assert!(delivered > 0);
}

#[test]
fn a_relay_dies_that_sends_itself() {
    let (delivered, failed) = deaths(1, (0..75).step_by(5));
    assert!(delivered > 0 && failed > 0, "{delivered} delivered, {failed} told");
}

#[test]
fn a_receiver_dies() {
    let (delivered, failed) = deaths(3, (0..50).step_by(5));
    assert!(delivered > 0 && failed > 0, "{delivered} delivered, {failed} told");
}

#[test]
#[ignore = "minutes: every frame; `cargo test -p onepipe-sim-large -- --ignored`"]
fn everybody_dies_at_every_frame() {
    for victim in 0..5 {
        deaths(victim, 0..100);
    }
}

#[test]
fn lost_frames_cost_time_and_nothing_else() {
    for (seed, service) in (0..6).zip([Service::Reliable, Service::BestEffort].into_iter().cycle())
    {
        let scattering = |number: u64| Scattering {
            small_to: vec![4],
            service,
            ..Scattering::new(
                CALM_NS + number * 7_000,
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
        let story = judged(&setup, 30_000_000);
        if service == Service::Reliable {
            assert!((0..8).all(|number| receivers(&story, number) == 3), "seed {seed}");
        }
    }
}

#[test]
fn what_has_no_room_waits_at_its_sender() {
    // Four senders at once, and receive buffer for one and a half payloads.
    let scattering = |from: u32| Scattering::new(CALM_NS + 10_000, from, vec![4], 60_000);
    let setup = Setup {
        scatterings: (0..4).map(scattering).collect(),
        received_bytes_max: 90_000,
        ..setup()
    };
    let story = judged(&setup, 2 * RUN_NS);
    assert!((0..4).all(|number| receivers(&story, number) == 1), "{:?}", story.delivered);
    assert!(story.bytes_held_max[4] > 0);
}
