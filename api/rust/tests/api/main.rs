//! Integration tests, as one program.

mod amcast;
mod bank;
mod checksums;
mod embedded;
mod examples;
mod group;
mod harness;
mod hostile;
mod isolation;
mod large;
mod memory;
mod peers;
mod pipe;
mod reliable;
mod transfer;
mod udp;
