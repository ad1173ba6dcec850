//! Integration tests, as one program.

mod message_bytes;
mod model;
mod random;
