//! Integration tests, as one program.

mod amcast;
mod amcast_stopped;
mod bank;
mod checksums;
mod embedded;
mod examples;
mod excluded;
mod give_up;
mod group;
mod harness;
mod hostile;
mod isolation;
mod large;
mod memory;
mod memory_faults;
mod peers;
mod pipe;
mod processes;
mod reliable;
mod transfer;
mod udp;
