//! Random input sequences, and those that the fuzzer has found.

mod properties;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 5_000,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    //= spec/amcast.md#R33
    #[test]
    fn machines_survive_arbitrary_input(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        properties::amcast(&bytes);
    }
}

#[test]
fn machines_survive_fuzzing_corpus() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus/amcast");
    let mut met = 0;
    for entry in fs::read_dir(folder).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::amcast(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        met += 1;
    }
    assert!(met > 0, "no seeds");
}
