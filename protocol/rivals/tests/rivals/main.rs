//! Integration tests, as one program.

mod group;
mod network;
mod primcast;
