//! The atomics of rings, promise words and sleeping. `tests/loom.rs` compiles the same sources
//! against loom's, and runs every interleaving of them.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
