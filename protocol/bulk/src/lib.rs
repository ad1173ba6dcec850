//! Bulk multicast: one object to many receivers at the speed of one link (RDMC, DSN 2018; design:
//! bulk.md).
//!
//! object → blocks → `[schedule]` → who sends which block to whom, step by step
//!
//! ```
//! use onepipe_bulk::{Algorithm, Plain, Schedule, Transfer};
//!
//! let schedule = Schedule::new(&Algorithm::Plain(Plain::Pipeline), 8).expect("eight can");
//! assert_eq!(schedule.steps(100), 102);
//! // In step 3 everybody exchanges with who differs in the lowest bit: 6 hands block 1 to 7.
//! assert_eq!(schedule.outgoing(6, 100, 3), Some(Transfer { peer: 7, block: 1 }));
//! assert_eq!(schedule.incoming(7, 100, 3), Some(Transfer { peer: 6, block: 1 }));
//! ```
//!
//! # Invariants
//! - A schedule is a pure function of (members, rank, blocks, step); a step takes O(log members)
//!   work. Nobody negotiates a route.
//! - Sender and receiver agree on every step. Nobody sends what has not come to it in an earlier
//!   step, nobody gets a block twice, all get all.
//! - In each step every member sends one block at most, and receives one at most.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod schedule;

pub use schedule::{
    Algorithm, BLOCKS_MAX, First, MEMBERS_MAX, Plain, Schedule, ScheduleError, Transfer,
};
