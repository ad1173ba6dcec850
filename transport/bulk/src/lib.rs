//! A member of a bulk group over whatever carries it: the seam between a group and its links.
//!
//! object → blocks → group → pieces → `[bulk]` → pieces → group → object
//!
//! [`Carrier`] names the ways, and how a machine is set up for each. [`GroupDriver::join`] meets the others
//! and answers an [`GroupDriver`], which drives the machine and looks the same whatever carries it.
//!
//! # To add a way
//! One more of [`Carrier`], which says what its links are like; one more of the enum behind
//! [`GroupDriver`], with the few calls that the others have, too; and how it is made, in [`GroupDriver::join`],
//! where members have a door each and may talk before they begin. Nothing above this crate changes.
//!
//! # Invariants
//! - All members of a group are asked for the same carrier: their plans differ else, and the
//!   machines refuse each other.
//! - A member's port is its rank.

#![forbid(unsafe_code)]

mod carrier;
mod driver;
mod state_guard;
mod udp;

pub use carrier::Carrier;
pub use driver::{GroupDriver, JoinError};
pub use onepipe_transport_pages::{AttachError, ObjectBytes, Page, PageIndex, PageMut, PagePool};
pub use onepipe_transport_tcp::{GroupState, Listener, Progress, Rendezvous, RendezvousError};

#[cfg(test)]
mod tests;
