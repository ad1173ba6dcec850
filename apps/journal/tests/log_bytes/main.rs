//! Logs of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        properties::check_log(&bytes);
    }

    #[test]
    fn changed_bytes_are_safe(
        file in 0u8..8, edits in prop::collection::vec((0u16..600, 1u8..), 1..4),
    ) {
        let mut bytes = vec![file * 3 + 2];
        for (at, change) in edits {
            bytes.extend(at.to_le_bytes());
            bytes.push(change);
        }
        properties::check_log(&bytes);
    }
}

#[test]
fn corpus_logs_are_safe() {
    onepipe_verify_testing::check_corpus("journal", properties::check_log);
}
