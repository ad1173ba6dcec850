//! Integration tests, as one program.

mod handshake;
mod roster;
