//! Checkers of the invariants of ordered scattering, from externally visible events.
//!
//! The checkers know nothing about the implementation of endpoints and switches. They are fed with
//! observations (what was submitted, delivered and reported failed at which process, which frames
//! entered which link) and compare them with the guarantees below. They keep state only for what is
//! still open, so that they run along with every simulation.
//!
//! | | checked by | invariant |
//! |---|---|---|
//! | I1 | [`Checker`], receiver | deliveries ascend by `(timestamp, sender, index)` |
//! | I2 | [`Checker`], sender | all messages of a scattering have one timestamp, and no two scatterings share one; with I1 any two receivers agree |
//! | I3 | [`Checker`] | the timestamps and promises of a process are above everything that it has delivered |
//! | I4 | [`Checker`], sender | a message is delivered at most once, intact, to its receiver, and only if it was sent |
//! | I5 | [`Checker`], sender | messages of a pair of processes arrive in the order of their timestamps and, if requested, of their submission |
//! | I6 | [`Checker`], verify | reliable: messages between correct processes arrive |
//! | I7 | [`Checker`], verify | reliable: all correct receivers of a scattering deliver it or none; a failed receiver has delivered a prefix |
//! | I8 | [`Checker`], verify | correct processes deliver of a failed one exactly what lies below its failure timestamp |
//! | E | [`Checker`], [`ControllerEpochs`] | an incarnation has one failure timestamp, of which every process is notified; an epoch has one active controller |
//! | L | [`Checker`] | only a process that left is reported as left; a process that runs and is protected has not failed; the first reliable scattering to a restarted one arrives |
//! | I9 | [`Checker`], [`Links`] | barriers never regress, at processes and on links |
//! | B | [`Checker`], [`Links`] | nothing is delivered, and on a fault-free link nothing sent, below an earlier barrier; no read that waits for the commit barrier ends at a process without which others have gone on |
//! | I10 | [`Liveness`] | barriers advance after healing |
//! | I11 | [`BufferLevels`] | buffers stay within their limits |
//! | U | [`AgreedChecker`] | agreed multicast: one order for all groups, and uniform agreement |
//! | I12 | [`Checker`], sender | every message of a live sender gets exactly one outcome, delivered or lost; unknown only if the receiver has ended, where running processes are protected |
//!
//! The tests in `tests/` show each checker a history that it must reject.

#![forbid(unsafe_code)]

mod agreed;
mod buffer_levels;
mod checker;
mod epochs;
mod incarnation;
mod links;
mod liveness;
mod mutation;
mod observation;
mod outcome;
mod receiver;
mod sender;
mod stamps;
mod tag;
mod verify;
mod violation;

pub use agreed::{AgreedChecker, Membership};
pub use buffer_levels::BufferLevels;
pub use checker::{Checker, Counts, Received};
pub use epochs::ControllerEpochs;
pub use links::Links;
pub use liveness::Liveness;
pub use mutation::{mutation_main, run_known_mutations};
pub use observation::{Delivered, Failed, Snapshot, Submitted, digest};
pub use outcome::Outcome;
pub use tag::Tag;
pub use violation::{Rule, Violation, ViolationKind, Violations};
