//! Messages of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_messages_are_safe(
        mode in 0..5_u8, bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        properties::check_messages(&[&[mode], &bytes[..]].concat());
    }
}

#[test]
fn corpus_messages_are_safe() {
    onepipe_verify_testing::check_corpus("transaction", properties::check_messages);
}
