//! Integration tests, as one program.

mod evidence;
mod fabric;
mod frames;
mod harness;
mod hello;
mod outdated;
mod scenarios;
mod suspects;
mod swarm;
mod trace;
