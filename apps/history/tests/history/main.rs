//! Integration tests, as one program.

mod anomalies;
mod generated;
mod history_bytes;
mod store;
