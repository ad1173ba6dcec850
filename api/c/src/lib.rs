//! The C interface to registered memory: the functions of `include/onepipe.h`.
//!
//! A handle is a pipe behind a lock. No function unwinds into its caller: a panic is the status
//! [`Status::Bug`].

#![warn(missing_docs)]

mod error;
mod memory;
mod pipe;

pub use error::{Status, onepipe_error};
pub use memory::{
    onepipe_compare_and_swap, onepipe_deregister, onepipe_fetch_add, onepipe_local_read,
    onepipe_local_write, onepipe_read, onepipe_register, onepipe_write,
};
pub use pipe::{
    OnepipeHandle, onepipe_join, onepipe_join_udp, onepipe_leave, onepipe_wait_for_peers,
};
