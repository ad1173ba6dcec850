//! Random input sequences, and those that the fuzzer has found.

mod properties;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    //= spec/bulk.md#R30
    #[test]
    fn member_survives_arbitrary_input(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        properties::bulk(&bytes);
    }

    #[test]
    fn member_survives_arbitrary_detached_input(
        bytes in prop::collection::vec(any::<u8>(), 0..3_000)
    ) {
        properties::detached(&bytes);
    }
}

#[test]
fn member_survives_fuzzing_corpus() {
    for (target, play) in
        [("bulk", properties::bulk as fn(&[u8])), ("detached", properties::detached)]
    {
        let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus");
        let mut met = 0;
        for entry in fs::read_dir(corpus.join(target)).expect("the seeds are committed") {
            let path = entry.expect("readable").path();
            let bytes = fs::read(&path).expect("readable");
            let outcome = std::panic::catch_unwind(|| play(&bytes));
            assert!(outcome.is_ok(), "{} fails", path.display());
            met += 1;
        }
        assert!(met > 0, "no seeds of {target}");
    }
}
