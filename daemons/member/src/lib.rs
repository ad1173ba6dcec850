//! A member of a group of agreed multicast as a daemon over UDP.
//!
//! start → propose → acknowledge → decide → deliver: all of it is the machine
//! [`onepipe_amcast::Member`]; [`MemberDaemon`] gives it a socket, a clock and a thread.
//!
//! # Invariants
//! - It decides nothing: what is ordered how, and who leads, is the machine's.
//! - What it knows is gone when it ends. One that comes back has another id and place, or takes
//!   part no more: it counts among the f of its group that may crash.

#![forbid(unsafe_code)]

mod daemon;
mod report;

pub use daemon::{Ended, MemberDaemon};
pub use report::Report;
