//! Random input sequences, and those that the fuzzer has found.

mod properties;

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
    onepipe_verify_testing::check_corpus("amcast", properties::amcast);
}
