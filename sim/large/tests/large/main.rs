//! Integration tests, as one program.

mod crashes;
mod fault_free;
mod random_runs;
mod verify;
