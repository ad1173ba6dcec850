//! The words that every onepipe machine speaks: time, identity, and the contract with its driver.
//!
//! `[base]` lies under the whole way of a message:
//! scattering → send → switch → receive → reorder → deliver.
//!
//! The one public contract is [`Machine`]: a plain value that takes frames and time, and is asked
//! for frames, events and a deadline. Two worlds drive it unchanged: the simulator (virtual time)
//! and the transports (real time).
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
//! - A [`Timestamp`] has neither default nor zero constructor; "nothing heard yet" is `None`.
//! - A promise held in [`Registers`] never weakens while its link lives. A newcomer lowers their
//!   minimum; their owner holds its output still meanwhile, so no barrier moves back (I9).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod backoff;
mod frozen;
mod ids;
mod machine;
pub mod mistake;
mod neighbours;
mod promise;
mod psn;
mod registers;
mod slew;
mod time;

pub use backoff::Backoff;
pub use frozen::{Frozen, FrozenLinks};
pub use ids::{
    Address, Controllers, HostId, Incarnation, Instance, Port, ProcessId, ScatteringId, SwitchId,
};
pub use machine::{Machine, Transmit, Verdict};
pub use neighbours::{Neighbours, PeerUpdate};
pub use promise::Promises;
pub use psn::Psn;
pub use registers::Registers;
pub use slew::Slew;
pub use time::{Mono, Now, Timestamp, WIRE_MODULUS, WireTimestamp};
