//! A fixed and a fresh set of seeds: each draws everything, and nothing may go wrong.

use onepipe_sim_scenarios::Swarm;

/// Runs a seed and says how to run it again if anything was wrong.
fn check(seed: u64) {
    let report = Swarm::draw(seed).run();
    assert!(
        report.violations == 0,
        "seed {seed}: ONEPIPE_SEED={seed} cargo test -p onepipe-sim-scenarios --test swarm\n{:#?}\n{:#?}",
        Swarm::draw(seed).timeline,
        report.first_violations,
    );
}

#[test]
fn a_fixed_set_of_seeds() {
    (0..30).for_each(check);
}

/// Other seeds each time, or the one in ONEPIPE_SEED.
#[test]
fn a_fresh_set_of_seeds() {
    if let Some(seed) = std::env::var("ONEPIPE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return check(seed);
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let base = since.expect("this machine's clock is past 1970").as_secs() * 1_000;
    (base..base + 15).for_each(check);
}
