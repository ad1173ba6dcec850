//! Integration tests, as one program.

mod allocations;
mod memory;
mod processes;
mod shortened;
