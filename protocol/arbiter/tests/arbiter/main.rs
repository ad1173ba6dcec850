//! Integration tests, as one program.

mod allocation;
mod fcp;
mod pipeline;
mod sequence;
mod transfer;
