//! Random scenarios from fixed and fresh seeds: no invariant may be violated.

use onepipe_sim_scenarios::{Placement, Swarm};

/// Runs a seed. On failure prints how to run it again.
fn check(seed: u64) {
    check_swarm(seed, &Swarm::draw(seed));
}

fn check_swarm(seed: u64, swarm: &Swarm) {
    let report = swarm.run();
    let broken = &report.violations_by_rule;
    assert!(
        broken.is_empty(),
        "seed {seed} violates {broken:?}; to run it again:\n\
         ONEPIPE_SEED={seed} cargo test -p onepipe-sim-scenarios --test scenarios swarm\n\
         {:#?}\n{:#?}",
        swarm.timeline,
        report.first_violations,
    );
}

/// Returns new seeds in every run, or the one in ONEPIPE_SEED.
fn fresh_seeds(count: usize) -> Vec<u64> {
    if let Some(seed) = std::env::var("ONEPIPE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let base = since.expect("the system clock is past 1970").as_secs() * 1_000;
    (base..).take(count).collect()
}

#[test]
fn fixed_seeds_keep_every_invariant() {
    (0..20).for_each(check);
}

#[test]
fn fresh_seeds_keep_every_invariant() {
    fresh_seeds(8).into_iter().for_each(check);
}

/// Seeds at which an endpoint left messages without an outcome (I12), and fresh ones.
#[test]
fn every_message_gets_an_outcome() {
    let known = [
        0, 13, 20, 38, 41, 53, 59, 133, 194, 250, 527, 712, 772, 996, 1129, 1273, 1413, 100_042,
        100_264, 100_656, 101_175,
    ];
    known.iter().for_each(|seed| check_swarm(*seed, &Swarm::draw_with(*seed, Placement::Chip)));
    fresh_seeds(20).into_iter().for_each(check);
}
