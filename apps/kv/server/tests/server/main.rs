//! Integration tests, as one program.

mod cluster;
mod durable;
mod harness;
mod join;
mod repair;
mod resp_bytes;
mod snapshots;
