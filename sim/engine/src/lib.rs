//! Virtual time, an event queue, one seed, one history.
//!
//! `[engine]` lies under every simulation: it knows nothing of networks, frames or machines.
//!
//! The parts: [`Instant`] counts picoseconds; [`Queue`] hands out events in the order of their
//! instants, simultaneous ones in the order in which they were scheduled; [`Random`] is a stream of
//! random numbers with a name, split off one seed; [`Trace`] folds a history into 64 bits.
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
//! - Time never goes back, and no event is handed out before its instant.
//! - Equal seeds give equal histories on every machine and in every build: integers only, no hash
//!   map with random order, no clock of the machine that simulates.

#![forbid(unsafe_code)]

mod queue;
mod random;
mod seeds;
mod time;
mod trace;

pub use queue::{Queue, Span};
pub use random::Random;
pub use seeds::Seeds;
pub use time::{Instant, MICROSECOND, MILLISECOND, NANOSECOND, SECOND};
pub use trace::Trace;
