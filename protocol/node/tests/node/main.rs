//! Integration tests, as one program.

mod host;
mod overlay;
mod third_party;
