//! What the table is compared with: tables in memory whose operations have no order.
//!
//! A client looks a key up by reads of the leader alone. It inserts a key in one of two ways. With
//! *fenced* operations it writes the node, waits until that is done, and then swings the pointer.
//! Otherwise it asks the [`Leader`], whose program inserts the key and replicates what it writes.
//! Keys are never removed, so that no node is reused.

mod client;
mod leader;
mod message;

pub use client::{RivalClient, RivalOptions};
pub use leader::Leader;
pub use message::is_leader_message;
