//! Page locations from untrusted frames: random ones, and the fuzzer's corpus.

mod properties;

use std::fs;
use std::path::PathBuf;

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
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus/page_locations");
    let mut seeds = 0;
    for entry in fs::read_dir(folder).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::check_locations(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds");
}
