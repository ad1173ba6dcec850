//! A member of a bulk group over whatever carries it: the seam between a group and its links.
//!
//! object → blocks → group → pieces → `[bulk]` → pieces → group → object
//!
//! [`Carrier`] names the ways, and how a machine is set up for each. [`End::join`] meets the others
//! and answers an [`End`], which drives the machine and looks the same whatever carries it.
//!
//! # To add a way
//! One more of [`Carrier`], which says what its links are like; one more of the enum behind
//! [`End`], with the few calls that the others have, too; and how it is made, in [`End::join`],
//! where members have a door each and may talk before they begin. Nothing above this crate changes.
//!
//! # Invariants
//! - All members of a group are asked for the same carrier: their plans differ else, and the
//!   machines refuse each other.
//! - A member's port is its rank.

#![forbid(unsafe_code)]

mod attendance;
mod carrier;
mod datagrams;
mod end;

pub use carrier::Carrier;
pub use end::{End, JoinError};
pub use onepipe_transport_pages::{AttachError, Bytes, Lender, Page, Sheet, Shelf};
pub use onepipe_transport_tcp::{Door, MeetError, Meeting, Progress, Standing};

#[cfg(test)]
mod tests;
