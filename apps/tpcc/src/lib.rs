//! TPC-C's New-Order and Payment as independent transactions over shards.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod codec;
mod database;
mod population;
mod random;
mod scale;
mod schema;
mod text;
mod warehouse;
