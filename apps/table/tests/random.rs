//! Calls of three clients on two replicas, with losses and any delays, are linearizable.

mod fabric;

#[test]
fn calls_are_linearizable() {
    let mut met = 0;
    for seed in 0..150 {
        met += fabric::run(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    assert!(met > 1_000, "only {met} walks and changes met others");
}
