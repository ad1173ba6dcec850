//! Integration tests, as one program.

mod fuzz;
mod rivals;
