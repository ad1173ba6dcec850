//! Integration tests, as one program.

mod evaluation;
mod page;
mod shards;
