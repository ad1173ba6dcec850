//! Who has failed, when, and who has been told: the controller of a fabric.
//!
//! It stands beside the way of a message, not in it: scattering → send → switch → receive →
//! reorder → deliver goes on while every controller is down. Only recovery from failures waits.
//!
//! # Invariants
//! - No frame depends on a decision that the [`Store`] does not hold yet.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod record;
mod store;

pub use record::{FailedLife, Member, MemberLink, Record, RecordError, Severed};
pub use store::{Epoch, MemoryStore, Store, StoreError, Unavailable};
