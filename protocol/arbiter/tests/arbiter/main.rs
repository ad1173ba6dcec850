//! Integration tests, as one program.

mod allocate;
mod allocation;
mod fcp;
mod paths;
mod pipeline;
mod sequence;
mod transfer;
mod tree_paths;
