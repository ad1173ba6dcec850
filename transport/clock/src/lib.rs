//! The two clocks of a real machine, read in about ten nanoseconds.
//!
//! scattering → send → switch → receive → reorder → deliver: `[clock]` gives every driver *now*.
//!
//! [`SystemClock`] counts ticks of the invariant time-stamp counter (or, where there is none, of
//! `CLOCK_MONOTONIC`) and converts them to nanoseconds by a [`Calibration`]: a plain value that one
//! process measures and others on the same machine adopt, so that all of them compute the same time
//! from the same tick.
//!
//! ```
//! use onepipe_transport_clock::{Clock, SystemClock};
//!
//! let mut first = SystemClock::calibrated();
//! let mut second = SystemClock::with_calibration(first.calibration());
//! let (a, b) = (first.read(), second.read());
//! assert!(b.mono >= a.mono && b.sync >= a.sync);
//! ```
//!
//! # Invariants
//! - With one calibration, a read that happens after another, on whatever core, is not below it:
//!   [`Clock::read`] is ordered against the loads and stores around it.
//! - `sync − mono` is constant unless the clock follows the system's clock or is stepped.

mod affinity;
mod calibration;
mod clock;
mod incarnation;
mod scheduling;
mod ticks;

pub use affinity::{cores, pin_to_core};
pub use calibration::Calibration;
pub use clock::{Clock, SystemClock};
pub use incarnation::{incarnation_after, start_incarnation};
pub use scheduling::reduce_wakeup_latency;
pub use ticks::Source;
