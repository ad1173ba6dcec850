//! Random scenarios with faults: all histories of tables are linearizable.

use onepipe_verify_memory::run;

/// Runs seeds, and fails with the violations of the first that has any.
fn check(seeds: std::ops::Range<u64>) {
    let (mut conflicts, mut repeated, mut changes) = (0, 0, 0);
    for seed in seeds {
        let report = run(seed);
        assert!(report.is_ok(), "seed {seed}: {report:#?}");
        assert_eq!(report.undecided, 0, "seed {seed}");
        conflicts += report.conflicts;
        repeated += report.repeated;
        changes += report.changes;
    }
    println!("{changes} changes, {conflicts} conflicts, {repeated} repeated batches");
    assert!(changes > 100 && conflicts > 0, "scenarios without contention show nothing");
}

#[test]
fn histories_of_seeds_0_to_19_are_linearizable() {
    check(0..20);
}

#[test]
fn histories_of_seeds_20_to_39_are_linearizable() {
    check(20..40);
}

#[test]
fn equal_seeds_give_equal_runs() {
    assert_eq!(run(3), run(3));
}
