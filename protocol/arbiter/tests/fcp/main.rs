//! Clients and arbiters together, in a world of their own.

mod accidents;
mod acknowledgements;
mod failover;
mod input;
mod isolation;
mod latecomers;
mod perfect;
mod pipeline;
mod quiet;
mod unlike;
mod world;
