//! Random sequences of frames and time, and those that a fuzzer has found.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn survives_random_scripts(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        properties::switch(&bytes);
    }
}

#[test]
fn survives_the_fuzz_corpus() {
    onepipe_verify_testing::check_corpus("switch", properties::switch);
}
