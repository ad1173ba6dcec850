//! Arbitrary sequences of frames and commands: random ones, and those found by a fuzzer.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn survives_arbitrary_scripts(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        properties::endpoint(&bytes);
    }
}

#[test]
fn survives_the_fuzz_corpus() {
    onepipe_verify_testing::check_corpus("endpoint", properties::endpoint);
}
