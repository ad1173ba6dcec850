//! The front that Redis clients use: it speaks RESP2 and RESP3, and executes with a
//! [`Backend`](crate::Backend).
//!
//! socket → `[session]` → bytes → [`Connection`] → transaction → `[backend]` → replies → bytes
//!
//! A [`Connection`] is a machine without I/O: bytes go in, transactions and bytes come out. It
//! parses requests, executes the commands of connections (`HELLO`, `AUTH`, `MULTI`, …) and gathers
//! data commands into transactions. [`serve`] drives one for each socket.
//!
//! # Invariants
//! - The commands of a connection appear to be executed in their order: a transaction is begun when
//!   the replies of the previous one have arrived.
//! - Data commands that a client sends without waiting for replies may be one transaction. They are
//!   then executed at one timestamp in their order, which is one of the executions that separate
//!   commands allow. If the backend cannot execute the transaction, each of them has that error.
//! - The memory of a connection is bounded, whatever a client sends or does not read.
//! - No bytes from a client cause a panic.

mod catalog;
mod client;
mod clients;
mod commands;
mod config;
mod connection;
mod execute;
mod hello;
mod info;
mod inline;
mod mailbox;
mod options;
mod peer;
mod reply;
mod request;
mod server;
mod service;
mod session;
mod transaction;

pub use connection::Connection;
pub use inline::split as split_words;
pub use options::FrontOptions;
pub use server::{Front, FrontError, serve};
pub use service::Service;
