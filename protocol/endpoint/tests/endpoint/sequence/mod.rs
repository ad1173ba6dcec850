//! Arbitrary sequences of frames and commands: random ones, and those found by a fuzzer.

mod properties;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn survives_arbitrary_scripts(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        properties::endpoint(&bytes);
    }
}

#[test]
fn survives_the_fuzz_corpus() {
    let folder =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus/endpoint");
    let mut replayed = 0;
    for entry in fs::read_dir(folder).expect("the corpus is in the repository") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::endpoint(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        replayed += 1;
    }
    assert!(replayed > 0, "the corpus is empty");
}
