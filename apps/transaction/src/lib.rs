//! Transactions over shards and replicas in the total order, without locks.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod state;

pub use state::{Exact, State};
