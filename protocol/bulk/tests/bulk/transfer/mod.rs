//! Whole groups in a simulated network (`harness.rs`).

mod failures;
mod faulty;
mod harness;
mod healthy;
mod speed;
