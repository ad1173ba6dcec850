//! Sequences of anything: drawn ones, and those that a fuzzer has found.

mod properties;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn an_endpoint_bears_anything(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        properties::endpoint(&bytes);
    }
}

#[test]
fn an_endpoint_bears_what_was_found_before() {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus/endpoint");
    let mut met = 0;
    for entry in fs::read_dir(folder).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::endpoint(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        met += 1;
    }
    assert!(met > 0, "no seeds");
}
