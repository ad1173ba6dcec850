//! Integration tests, as one program.

mod allocation;
mod burst;
mod coordinator;
mod cumulative;
mod epochs;
mod faults;
mod harness;
mod input;
mod model;
mod restart;
mod retransmission;
mod runs;
mod sequence;
