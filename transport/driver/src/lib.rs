//! The loop that drives a machine in real time.
//!
//! scattering → send → `[driver]` → transport → `[driver]` → receive → reorder → deliver
//!
//! A [`Driver`] owns a machine ([`DrivenMachine`]), a [`Transport`] and a clock. One
//! [`Driver::turn`] sends what was commanded since the previous turn, receives frames, runs
//! expired timers, hands out events and sends the machine's output straight into memory of the
//! transport. A dedicated thread calls [`Driver::run`]; a program without a spare thread calls
//! `turn` from its own loop.
//!
//! # Invariants
//! The driver rules D1–D5 of [`onepipe_base::Machine`] are kept here, and here only:
//! - **D1** the clock is read once before a batch of frames and once before a burst of sends (one
//!   reading serves a single frame sent and the batch received behind it); `mono` is held when the
//!   clock goes back;
//! - **D2** events and frames are drained after every mutation and before the driver waits; a
//!   blocked transport is retried without blocking;
//! - **D3** frames are handed to the transport in the order polled, and a forwarded frame follows
//!   the frames already sent to its port;
//! - **D4** [`Transport::IS_FIFO`] says what the machine's configuration must assume;
//! - **D5** `handle_timeout` is called once the clock has reached the deadline, not on wake-up.

#![forbid(unsafe_code)]

mod doorbell;
mod driver;
mod driver_thread;
mod duty;
mod idle;
mod machine;
mod transport;

pub use doorbell::{Doorbell, Waker};
pub use driver::{Config, Driver, Progress};
pub use driver_thread::{DrivenService, DriverThread, Panicked, StopFlag};
pub use duty::Duty;
pub use idle::{Idle, IdleAction, Idleness, Idler};
pub use machine::DrivenMachine;
pub use transport::{SharedWait, Transport, Wait};

#[cfg(test)]
mod tests;
