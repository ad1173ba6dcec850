//! Controller daemons with real processes.

mod fabric;
mod harness;
mod segment;
mod status;
mod switch;
