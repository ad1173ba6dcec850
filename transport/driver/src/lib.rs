//! The loop that drives a machine.
