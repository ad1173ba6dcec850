//! Integration tests, as one program.

mod catch_up;
mod fabric;
mod message_bytes;
mod messages;
mod restart;
mod runs;
mod safe_point;
mod serializable;
mod start;
mod stranded;
