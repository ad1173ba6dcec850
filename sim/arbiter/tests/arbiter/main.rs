//! Integration tests, as one program.

mod baselines;
mod faults;
mod scheduled;
