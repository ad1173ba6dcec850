//! Fault isolation: finds links that lose packets, avoids them, and tries them again later.
//!
//! granted packets, loss reports → `[isolation]` → links to avoid, links to try again
//!
//! Receivers report lost packets with their paths. A loss implicates the link of the sender's rack
//! to the path, that of the receiver's rack, and with three tiers the links of two spines to a
//! core. The link with the highest loss rate is avoided, if the rate clearly exceeds the overall
//! one; losses that it explains implicate no other link. Nothing reports a repair: after a while
//! the link is used again, and if it still loses packets, it is avoided for twice as long
//! (`docs/design/arbiter.md`, "Which link is to blame?").
//!
//! ```
//! use onepipe_base::Mono;
//! use onepipe_isolation::{Config, Fault, Isolation, Layout, Loss};
//!
//! let (now, layout) = (Mono::from_ns(0), Layout::of_racks(8, 2, 4));
//! let mut isolation = Isolation::new(layout, Config::DEFAULT.timing(1_230, 65_000, 64));
//! isolation.on_timeout(now);
//! // Endpoints 0 and 1 form rack 0. Packets by path 1 leave the rack, and do not arrive.
//! (2..8).for_each(|dst| isolation.on_granted(0, dst, 1));
//! (2..8).for_each(|dst| isolation.on_granted(0, dst, 2));
//! (2..8).for_each(|dst| isolation.on_lost(now, Loss { src: 0, dst, path: 1, lost: 1 }));
//! assert_eq!(isolation.find(now), Some(Fault::Link { rack: 0, path: 1 }));
//! ```
//!
//! # Invariants
//! - Never are two racks, or two spines of one core, left without a link in common.
//! - An endpoint cannot report more losses than packets were granted to it.
//! - The sums of losses by link equal those of the reports.
//! - All memory is allocated by `new`. No clock and no randomness.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod config;
mod fault;
mod isolation;
mod layout;
mod reports;
#[cfg(test)]
mod tests;

pub use config::{Config, Timing};
pub use fault::Fault;
pub use isolation::{Isolation, Loss};
pub use layout::{Layout, Spines};
