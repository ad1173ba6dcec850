//! The real binary, as a person or a script runs it.

mod arguments;
mod bench;
mod demo;
mod node;
mod program;
mod sim;
