//! Clients and arbiters together, in a world of their own.

mod accidents;
mod failover;
mod perfect;
mod world;
