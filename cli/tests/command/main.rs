//! The real binary, as a person or a script runs it.

mod amcast;
mod arbiter;
mod arguments;
mod bench;
mod bulk;
mod controller;
mod demo;
mod failures;
mod guide;
mod lab;
mod node;
mod program;
mod sim;
mod transfer;
mod transfer_ends;
