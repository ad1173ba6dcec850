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

mod broadcast;
mod config;
mod controller;
mod determine;
mod event;
mod forward;
mod graph;
mod journal;
mod ledger;
mod outbox;
mod record;
mod recovery;
mod stats;
mod status;
mod store;

pub use config::{Config, ConfigError, Links, Recovery};
pub use controller::Controller;
pub use event::Event;
pub use journal::{RecordId, Refused};
pub use record::{FailedLife, Member, MemberLink, Record, RecordError, Severed};
pub use stats::Stats;
pub use status::{FrozenStatus, MemberState, MemberStatus, Status};
pub use store::{Epoch, MemoryStore, Store, StoreError, Unavailable};
