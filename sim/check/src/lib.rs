//! The invariants of ordered scattering, checked on what can be seen from outside.
//!
//! `[check]` knows nothing of how endpoints and switches work. It is fed with observations — what
//! was submitted, delivered and reported failed at which process, which frames entered which link —
//! and compares them with what was promised (design: ordering.md section 7). It keeps only what is
//! still open, so that it runs along with every simulation.
//!
//! | | where | what |
//! |---|---|---|
//! | I1 | [`Checker`], receiver | deliveries ascend by `(timestamp, sender, index)` |
//! | I2 | [`Checker`], sender | one timestamp for all messages of a scattering, none for two of them; with I1 any two receivers agree |
//! | I3 | [`Checker`] | what a process stamps and promises is above all that it has delivered |
//! | I4 | [`Checker`], sender | nothing invented, nothing twice, payloads intact, to whom it was sent |
//! | I5 | [`Checker`], sender | messages of a pair of processes come in the order of their timestamps and, where asked for, of their submission |
//! | I6 | [`Checker`], judge | reliable: what correct processes send each other arrives |
//! | I7 | [`Checker`], judge | reliable: all correct receivers of a scattering deliver it, or none; who failed has delivered a prefix of it |
//! | I8 | [`Checker`], judge | of a failed process correct ones deliver what lies below its failure timestamp, and nothing else |
//! | E | [`Checker`], [`Reigns`] | one failure timestamp for a life, told to everybody; one active controller an epoch |
//! | I9 | [`Checker`], [`Links`] | barriers never move back, at processes and on links |
//! | B | [`Checker`], [`Links`] | nothing is delivered, and on a sound link nothing sent, below an earlier barrier |
//! | I10 | [`Liveness`] | barriers advance after healing |
//! | I11 | [`Levels`] | buffers stay within their limits |
//! | U | [`Agreed`] | agreed multicast: one order for all groups, and all deliver what anybody does |
//! | I12 | [`Checker`], sender | every message of a living sender is delivered or reported lost, never both, never neither |
//!
//! Each check is shown a history that it must refuse, in `tests/`.

#![forbid(unsafe_code)]

mod agreed;
mod checker;
mod drill;
mod judge;
mod levels;
mod life;
mod links;
mod liveness;
mod receiver;
mod reigns;
mod sender;
mod stamps;
mod violation;

pub use agreed::{Agreed, Belongs};
pub use checker::{Checker, Counts, Delivered, Failed, Fate, Look, Submitted, Tag, digest};
pub use drill::{drill_known, drill_program};
pub use levels::Levels;
pub use links::Links;
pub use liveness::Liveness;
pub use reigns::Reigns;
pub use violation::{Rule, Seen, Violation, Violations};
