//! Integration tests, as one program.

mod model;
mod serializable;
mod tpcc;
