//! Timeslots given out by several cores.
//!
//! desk → commands → clerk → `[worker, worker, …]` → batches → clerk → desk
//!
//! The [`Clerk`] says what is wanted. Each [`Worker`] gives out every so many-th batch: first to
//! the flows that the one before could not serve, which come while that is at work, then to those
//! that are new. Flows that were given all go back to the clerk with the batch. All that travels
//! between them travels in order, and there is one at either end: whoever drives them needs rings
//! with one writer and one reader, and nothing else. What is given out is what one
//! [`crate::Allocator`] gives that is told the same commands (design: arbiter.md section 2).

mod allocated;
mod clerk;
mod worker;

pub use allocated::Allocated;
pub use clerk::{Clerk, Hands, Order, Refused};
pub use worker::Worker;
