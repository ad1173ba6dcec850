//! TPC-C's New-Order and Payment as independent transactions over shards.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod answer;
mod codec;
mod database;
mod digest;
mod input;
mod new_order;
mod order_status;
mod payment;
mod population;
mod random;
mod scale;
mod schema;
mod snapshot;
mod state;
mod text;
mod warehouse;
