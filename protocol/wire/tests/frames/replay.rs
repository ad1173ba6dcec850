//! Replays the seeds of the fuzz targets, and every input that once failed.

use onepipe_verify_testing::check_corpus;

use crate::properties;

#[test]
fn frame() {
    check_corpus("frame", properties::frame);
}

#[test]
fn rewrite() {
    check_corpus("rewrite", properties::rewrite);
}

#[test]
fn messages() {
    check_corpus("messages", properties::messages);
}
