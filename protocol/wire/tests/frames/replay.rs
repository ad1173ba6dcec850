//! Replays the seeds of the fuzz targets, and every input that once failed.

use std::fs;
use std::path::PathBuf;

use crate::properties;

fn replay(target: &str, property: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../verify/fuzz/corpus");
    let mut met = 0;
    for entry in fs::read_dir(folder.join(target)).expect("the seeds are committed") {
        let path = entry.expect("readable").path();
        let bytes = fs::read(&path).expect("readable");
        let outcome = std::panic::catch_unwind(|| property(&bytes));
        assert!(outcome.is_ok(), "{} fails", path.display());
        met += 1;
    }
    assert!(met > 0, "no seeds for {target}");
}

#[test]
fn frame() {
    replay("frame", properties::frame);
}

#[test]
fn rewrite() {
    replay("rewrite", properties::rewrite);
}

#[test]
fn messages() {
    replay("messages", properties::messages);
}
