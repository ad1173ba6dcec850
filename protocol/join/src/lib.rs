//! How a joiner is admitted to a fabric: the handshake before its first frame counts.
//!
//! A node that attaches itself to a switch over a network sends a [`onepipe_wire::JoinRequest`]
//! until it is answered ([`Joiner`]). The switch states the terms of the fabric, and challenges the
//! joiner to repeat the request with a cookie ([`Admission`]): only an address that receives is
//! admitted, and until then the switch keeps no state about it (docs/design/join.md).
//!
//! # Invariants
//! - No answer is longer than the frame that it answers.
//! - What is refused, challenged or not asked for changes no state of an [`Admission`].
//! - A node that was admitted as one process sends as no other ([`Applicant::may_send`]).

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod admission;
mod given;
mod joiner;
mod roster;

pub use admission::{Admission, Applicant, Cookies, Decision, Obstacle, Occupancy, Request, Rival};
pub use given::{Given, Mismatch, TermsChange};
pub use joiner::{Event, Joiner, JoinerConfig};
pub use roster::{Roster, Side};
