//! The key-value store as processes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backend;
pub mod front;

pub use backend::{Backend, BackendError, Replies};
