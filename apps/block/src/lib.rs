//! A block device for NBD clients: the server's end of a connection, without I/O.
//!
//! bytes → handshake → `[requests]` → device → replies → bytes
//!
//! A driver passes received bytes to a [`Connection`], executes the [`Request`]s that it returns,
//! in any order and any number at a time, and sends the bytes that it returns. Clients are those
//! of the Network Block Device protocol: qemu, libnbd, fio, the kernel of Linux. NBD's
//! specification is the document `proto` of the repository NetworkBlockDevice/nbd; this crate names
//! its sections.
//!
//! ```
//! use onepipe_block::{BlockSizes, Config, Connection, Export};
//!
//! let export = Export {
//!     name: "disk".into(),
//!     description: String::new(),
//!     size: 1 << 20,
//!     is_read_only: false,
//!     is_flush_shared: true,
//!     knows_allocation: false,
//!     block_sizes: BlockSizes::default(),
//! };
//! let mut connection = Connection::new(export, Config::default())?;
//! assert!(connection.poll_output().is_some_and(|bytes| bytes.starts_with(b"NBDMAGICIHAVEOPT")));
//! connection.handle_input(&[0, 0, 0, 1]);
//! assert!(connection.wants_input());
//! # Ok::<(), onepipe_block::ExportError>(())
//! ```
//!
//! # Invariants
//! - No bytes of a client cause a panic. A wrong request gets the error that the specification
//!   names; a stream that is out of step ends the session.
//! - Every request that the device receives lies within it, is aligned, and is allowed.
//! - Every accepted request has one reply with its cookie. Once the session ends, requests in
//!   flight are completed before the connection is closed.
//! - Memory is bounded by [`Config::bytes_max`], one payload and one buffer of the driver. A client
//!   that sends more, or reads nothing, waits in its own socket.
//!
//! # Absences
//! - No TLS, no old handshake, no experimental extensions: extended headers and resizing are
//!   refused as unknown.
//! - No metadata but which blocks are allocated, if the device knows that.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod command;
mod config;
mod connection;
mod end;
mod export;
mod failure;
mod handshake;
mod input;
mod option_reply;
mod output;
mod reply;
mod request;
mod transmission;
pub mod values;

pub use command::{Command, Extent, Outcome, Range, Request, RequestId};
pub use config::Config;
pub use connection::Connection;
pub use end::End;
pub use export::{BlockSizes, Export, ExportError};
pub use failure::{ErrorCode, Failure};
