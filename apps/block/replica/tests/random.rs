//! Runs drawn by seeds.

mod model;

use model::{Outcome, copies, crashes, damage, full, reads, repairs};

fn all(name: &str, seeds: u64, run: impl Fn(u64) -> Outcome) {
    for seed in 0..seeds {
        if let Err(error) = run(seed) {
            panic!("{name}, seed {seed}: {error}");
        }
    }
}

#[test]
fn crash_at_any_operation_loses_nothing_durable() {
    for seed in 0..6 {
        let crashed = (0..).take_while(|operation| match crashes::crash_at(seed, *operation) {
            Ok(has_crashed) => has_crashed,
            Err(error) => panic!("seed {seed}, crash at operation {operation}: {error}"),
        });
        assert!(crashed.count() > 40, "a run has more operations");
    }
}

#[test]
fn full_disk_loses_nothing_at_any_operation() {
    for seed in 0..6 {
        let full = (0..).take_while(|operation| match full::full_at(seed, *operation) {
            Ok(is_full) => is_full,
            Err(error) => panic!("seed {seed}, full at operation {operation}: {error}"),
        });
        assert!(full.count() > 30, "a run has more operations");
    }
}

#[test]
fn repeated_crashes_and_failed_syncs_lose_nothing_durable() {
    all("crashes", 300, crashes::run);
}

#[test]
fn damage_is_noticed_and_repaired() {
    all("damage", 300, damage::run);
}

#[test]
fn replica_that_was_away_gets_what_has_changed() {
    all("copies", 400, copies::run);
}

#[test]
fn no_read_goes_back_in_time() {
    all("reads", 300, reads::run);
}

#[test]
fn replicas_repair_each_other_over_a_lossy_network() {
    all("repairs", 300, repairs::run);
}
