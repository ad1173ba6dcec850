//! Random sequences of frames and time, and those that a fuzzer has found.

mod properties;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn survives_random_scripts(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        properties::switch(&bytes);
    }
}

#[test]
fn survives_the_fuzz_corpus() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus/switch");
    let mut seeds = 0;
    for entry in fs::read_dir(folder).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| properties::switch(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds");
}
