//! Parts, states and answers of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(
        mode in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        properties::check_state(&[&[mode], &bytes[..]].concat());
    }
}

#[test]
fn corpus_inputs_are_safe() {
    onepipe_verify_testing::check_corpus("tpcc", properties::check_state);
}
