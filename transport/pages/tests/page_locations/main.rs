//! Page locations from untrusted frames: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_locations_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        properties::check_locations(&bytes);
    }

    #[test]
    fn nearly_valid_locations_are_safe(
        which in any::<u8>(), sealed in any::<u8>(), at in 0u8..32,
        changed in prop::collection::vec(prop::sample::select(&[0u8, 1, 2, 16, 17, 255][..]), 0..4),
    ) {
        let bytes = [&[which, sealed, at][..], &changed].concat();
        properties::check_locations(&bytes);
    }
}

#[test]
fn corpus_locations_are_safe() {
    onepipe_verify_testing::check_corpus("page_locations", properties::check_locations);
}
