//! Messages of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use std::fs;
use std::path::PathBuf;

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
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join("../../verify/fuzz/corpus/transaction");
    let mut seeds = 0;
    for entry in fs::read_dir(folder).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::check_messages(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds");
}
