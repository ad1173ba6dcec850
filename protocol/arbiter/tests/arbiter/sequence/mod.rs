//! Random operation sequences, and those that a fuzzer has found.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    //= spec/arbiter.md#R38
    #[test]
    fn arbitrary_operation_sequences_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        properties::arbiter(&bytes);
    }
}

#[test]
fn regression_operation_sequences_are_safe() {
    onepipe_verify_testing::check_corpus("arbiter", properties::arbiter);
}
