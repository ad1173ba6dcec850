//! Clients and arbiters together in a simulated network.

mod ack;
mod failover;
mod faults;
mod idle;
mod input;
mod isolation;
mod late_join;
mod mismatch;
mod net;
mod pipeline;
mod throughput;
mod trace;
