//! Integration tests, as one program.

mod buffers;
mod bugs;
mod clocks;
mod crash_points;
mod demand;
mod determinism;
mod failures;
mod fixture;
mod forms;
mod give_up;
mod links;
mod lookahead;
mod reads;
mod recovery;
mod reliable;
mod rest;
mod seeds;
mod shared;
mod swarm;
mod switch_pauses;
mod switch_restart;
