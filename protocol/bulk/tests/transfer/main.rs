//! Groups as a whole, in a world of their own (`world.rs`).

mod failures;
mod faulty;
mod healthy;
mod speed;
mod world;
