//! Integration tests, as one program.

mod groups;
mod sequence;
mod shared;
mod transfer;
