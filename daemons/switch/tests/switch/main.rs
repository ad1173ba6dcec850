//! Integration tests, as one program.

mod endpoints;
mod strangers;
