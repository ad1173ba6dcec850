//! Changes, copies and files of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        properties::check_image(&bytes);
    }

    #[test]
    fn edited_files_are_safe(
        file in 0u8..3, edits in prop::collection::vec((0u16..200, 1u8..), 1..4),
    ) {
        let mut bytes = vec![file * 3 + 2];
        for (at, change) in edits {
            bytes.extend(at.to_le_bytes());
            bytes.extend([change, 0]);
        }
        properties::check_image(&bytes);
    }
}

#[test]
fn corpus_images_are_safe() {
    onepipe_verify_testing::check_corpus("image", properties::check_image);
}
