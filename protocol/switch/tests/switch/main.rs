//! Integration tests, as one program.

mod ack_bundles;
mod allocation;
mod announce;
mod demand;
mod fabric;
mod flood;
mod forms;
mod harness;
mod incarnations;
mod joiner;
mod labels;
mod leave;
mod links;
mod previous_holds;
mod promises;
mod prop_frozen;
mod prop_model;
mod restart;
mod sequence;
mod shared;
mod superseded;
mod trace;
mod unfed;
