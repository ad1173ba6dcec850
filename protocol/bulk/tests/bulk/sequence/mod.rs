//! Random input sequences, and those that the fuzzer has found.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    //= spec/bulk.md#R30
    #[test]
    fn member_survives_arbitrary_input(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        properties::bulk(&bytes);
    }

    #[test]
    fn member_survives_arbitrary_detached_input(
        bytes in prop::collection::vec(any::<u8>(), 0..3_000)
    ) {
        properties::detached(&bytes);
    }
}

#[test]
fn member_survives_fuzzing_corpus() {
    onepipe_verify_testing::check_corpus("bulk", properties::bulk);
    onepipe_verify_testing::check_corpus("detached", properties::detached);
}
