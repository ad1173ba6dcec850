//! Random operation sequences, and those that a fuzzer has found.

mod properties;

use std::fs;
use std::path::PathBuf;

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
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus/arbiter");
    let mut met = 0;
    for entry in fs::read_dir(folder).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::arbiter(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        met += 1;
    }
    assert!(met > 0, "no seeds");
}
