//! Core of the discrete-event simulator: virtual time, event queue, random numbers, trace.
//!
//! `[engine]` is the base of every simulation, and independent of networks, frames and machines.
//!
//! [`Instant`] counts picoseconds; [`Queue`] returns events in the order of their instants, and
//! simultaneous ones in the order of scheduling; [`Random`] is a named stream of random numbers
//! derived from one seed; [`Trace`] hashes a history into 64 bits; [`Seeds`] runs many seeds on
//! several threads, and [`Totals`] adds up what they found. [`Section`] is a part of a vector that
//! is divided among threads.
//!
//! ```
//! use onepipe_sim_engine::{Instant, NANOSECOND, Queue, Span};
//!
//! let mut queue = Queue::new(Span::FABRIC);
//! queue.schedule(Instant::START.after(3 * NANOSECOND), 'b');
//! queue.schedule(Instant::START, 'a');
//! assert_eq!(queue.next_until(Instant::END), Some((Instant::START, 'a')));
//! assert_eq!(queue.next_until(Instant::from_ps(2_999)), None);
//! assert_eq!(queue.next_until(Instant::END), Some((Instant::from_ps(3_000), 'b')));
//! ```
//!
//! # Invariants
//! - Time never goes back, and no event is returned before its instant.
//! - Equal seeds give equal histories on every machine and in every build: integers only, no hash
//!   map with random order, no clock of the simulating machine.

#![forbid(unsafe_code)]

mod queue;
mod random;
mod section;
mod seeds;
mod time;
mod totals;
mod trace;

pub use queue::{Queue, Span};
pub use random::Random;
pub use section::Section;
pub use seeds::{Seeds, Shard};
pub use time::{Instant, MICROSECOND, MILLISECOND, NANOSECOND, SECOND};
pub use totals::{Tally, Totals};
pub use trace::Trace;
