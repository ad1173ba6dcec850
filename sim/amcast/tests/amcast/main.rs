//! Integration tests, as one program.

mod measures;
mod scenarios;
mod seeds;
