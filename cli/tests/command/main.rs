//! Tests of the real binary.

mod amcast;
mod arbiter;
mod arguments;
mod bench;
mod bulk;
mod clean;
mod controller;
mod coordinator;
mod demo;
mod failures;
mod full_disk;
mod guide;
mod join;
mod kv;
mod kv_disk;
mod lab;
mod namespace;
mod node;
mod outdated;
mod program;
mod rolling;
mod rolling_load;
mod sim;
mod transfer;
mod transfer_ends;
mod wrong_inputs;
