//! A member of a bulk group over any carrier: the seam between a group and its links.
//!
//! object → blocks → group → pieces → `[bulk]` → pieces → group → object
//!
//! [`Carrier`] names the carriers and configures a machine for each. [`GroupDriver::join`] connects
//! to the other members and returns a [`GroupDriver`], which drives the machine and has the same
//! interface over every carrier.
//!
//! # Adding a carrier
//! Add a variant to [`Carrier`], which describes its links; a variant to the enum behind
//! [`GroupDriver`], with the few methods that the others have; and its construction to
//! [`GroupDriver::join`], where members have a listener each and may exchange messages before they
//! start. Nothing above this crate changes.
//!
//! # Invariants
//! - All members of a group use the same carrier: otherwise their schedules differ, and the
//!   machines refuse each other.
//! - A member's port is its rank.

#![forbid(unsafe_code)]

mod carrier;
mod driver;
mod error;
mod frame_len;
mod state_guard;
mod udp;

pub use carrier::Carrier;
pub use driver::GroupDriver;
pub use error::JoinError;
pub use onepipe_transport_pages::{AttachError, ObjectBytes, Page, PageIndex, PageMut, PagePool};
pub use onepipe_transport_tcp::{
    GroupState, Listener, ListenerStats, Progress, Rendezvous, RendezvousError,
};

#[cfg(test)]
mod tests;
