//! Clients and arbiters together, in a world of their own.

mod accidents;
mod perfect;
mod world;
