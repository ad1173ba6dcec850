//! Random scenarios with faults: no history violates what transactions promise.

use onepipe_verify_transactions::run;

/// Runs seeds, and fails with the violations of the first that has any.
fn check(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let report = run(seed);
        assert!(report.is_ok(), "seed {seed}: {report:#?}");
        assert!(report.counts.writes > 0, "seed {seed} has no writes");
    }
}

#[test]
fn histories_of_seeds_0_to_14_are_valid() {
    check(0..15);
}

#[test]
fn histories_of_seeds_15_to_29_are_valid() {
    check(15..30);
}

#[test]
fn equal_seeds_give_equal_runs() {
    assert_eq!(run(3), run(3));
}
