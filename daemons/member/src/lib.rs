//! Daemon for a member of an agreed multicast group, over UDP.
//!
//! The protocol (start → propose → acknowledge → decide → deliver) is in the machine
//! [`onepipe_amcast::Member`]; [`MemberDaemon`] adds a socket, a clock and a thread.
//!
//! # Invariants
//! - All decisions are the machine's: the order of messages, and which member leads.
//! - State is not persisted. A member that has stopped counts as crashed, of which a group
//!   tolerates f. The others refuse it when it returns under the same process id.

#![forbid(unsafe_code)]

mod daemon;
mod report;

pub use daemon::{Ended, MemberDaemon};
pub use report::Report;
