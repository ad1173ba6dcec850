//! The kernel program against the switch machine: the same frames, and the same outcome.
#![cfg(feature = "kernel")]

mod bad_input;
mod differential;
mod lab;
