//! The loop that drives a machine in real time.
//!
//! scattering → send → `[driver]` → transport → `[driver]` → receive → reorder → deliver
//!
//! A [`Driver`] owns a machine ([`DrivenMachine`]), a [`Transport`] and a clock. One [`Driver::turn`] sends
//! what was commanded since the last one, takes what has arrived, runs what is due, hands out
//! events and sends what the machine then has to say, straight into the transport's own memory. A
//! thread of its own calls [`Driver::run`]; a program that has no thread to spare calls `turn`
//! whenever it likes.
//!
//! # Invariants
//! The driver rules D1–D5 of [`onepipe_base::Machine`] are kept here, and here only:
//! - **D1** the clock is read once before the frames of a batch and once before a burst of sending
//!   (one reading does for a frame sent and the batch behind it), and `mono` is held if the clock
//!   goes back;
//! - **D2** after every mutation events and frames are drained before the driver waits; short of
//!   room it waits for nothing but room;
//! - **D3** what was polled is handed to the transport in that order, and a frame to forward takes
//!   its place behind it;
//! - **D4** [`Transport::IS_FIFO`] says what the machine's configuration must assume;
//! - **D5** `handle_timeout` is called when the clock has reached the deadline, not on waking up.

#![forbid(unsafe_code)]

mod doorbell;
mod driver;
mod duty;
mod idle;
mod machine;
mod transport;

pub use doorbell::{Doorbell, Waker};
pub use driver::{Config, Driver, Progress};
pub use duty::Duty;
pub use idle::{Idle, IdleAction, Idler};
pub use machine::DrivenMachine;
pub use transport::Transport;

#[cfg(test)]
mod tests;
