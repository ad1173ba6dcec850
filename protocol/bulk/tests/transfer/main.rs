//! Whole groups in a simulated network (`harness.rs`).

mod failures;
mod faulty;
mod healthy;
mod speed;
mod world;
