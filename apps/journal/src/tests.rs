//! Tests of the journal: crashes, damage, failures of the disk, real files.

mod crash;
mod damage;
mod failures;
mod mistakes;
mod model;
mod real;
mod threads;

use crate::options::{Options, StoreId};

/// The store of most tests.
const STORE: StoreId = StoreId(*b"store of a test.");

/// Settings with segments so small that a few records fill one.
fn small_segments() -> Options {
    Options { segment_bytes: 700, ..Options::new(STORE) }
}
