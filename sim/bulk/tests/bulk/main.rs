//! Integration tests, as one program.

mod groups;
mod mesh;
