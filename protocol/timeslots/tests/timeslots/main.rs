//! Integration tests, as one program.

mod allocate;
mod allocation;
mod paths;
mod tree_paths;
