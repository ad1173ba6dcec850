//! Integration tests, as one program.

mod harness;
mod links;
mod nodes;
mod threads;
