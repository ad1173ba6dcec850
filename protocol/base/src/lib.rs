//! Clocks, identities and the state-machine contract that all onepipe protocol crates share.
//!
//! `[base]` is used at every stage of a message:
//! scattering → send → switch → receive → reorder → deliver.
//!
//! The central contract is [`Machine`], a sans-IO state machine: it takes frames and the current
//! time, and is polled for frames, events and the next deadline. The simulator (virtual time) and
//! the transports (real time) drive the same machines.
//!
//! ```
//! use onepipe_base::{Mono, Now, Timestamp};
//!
//! let now = Now { mono: Mono::from_ns(10), sync: Timestamp::from_ns(1 << 50) };
//! let on_the_wire = now.sync.wrapping_add_ns(5).to_wire();
//! assert_eq!(Timestamp::from_wire(on_the_wire, now.sync), now.sync.wrapping_add_ns(5));
//! ```
//!
//! # Invariants
//! - No clock, no entropy, no I/O, no heap map with random order: equal inputs give equal outputs.
//! - A [`Timestamp`] has neither a default nor a zero constructor; "nothing received yet" is
//!   `None`.
//! - A promise in [`Registers`] never decreases while its link is live. A joining link may lower
//!   the minimum over all links; the owner then repeats its last output until the minimum catches
//!   up, so that no barrier moves back (I9).

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod adaptive_timeout;
mod backoff;
mod cause;
mod copy;
mod frozen;
mod ids;
mod lateness;
mod machine;
pub mod mistake;
mod neighbours;
mod promise;
mod psn;
mod registers;
mod response_time;
mod slew;
mod solicit;
mod time;

pub use adaptive_timeout::AdaptiveTimeout;
pub use backoff::Backoff;
pub use cause::Cause;
pub use copy::copy_payload;
pub use frozen::{Frozen, FrozenLinks};
pub use ids::{
    Address, Controllers, HostId, Incarnation, Instance, Port, ProcessId, ProcessInstance,
    ScatteringId, SwitchId,
};
pub use lateness::Lateness;
pub use machine::{Machine, Transmit, Verdict};
pub use neighbours::{Neighbours, PeerUpdate};
pub use promise::Promises;
pub use psn::Psn;
pub use registers::Registers;
pub use response_time::ResponseTime;
pub use slew::Slew;
pub use solicit::{AnswerBudget, SolicitTimer, is_plausible_request};
pub use time::{Mono, Now, Timestamp, WIRE_MODULUS, WireTimestamp};
