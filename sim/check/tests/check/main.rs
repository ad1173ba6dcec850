//! Integration tests, as one program.

mod agreed;
mod elle;
mod frames;
mod histories;
mod reliable;
