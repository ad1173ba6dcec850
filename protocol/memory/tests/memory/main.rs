//! Integration tests, as one program.

mod ended;
mod message_bytes;
mod model;
mod random;
