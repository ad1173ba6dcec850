//! A block device for NBD clients: sockets, threads, a device in a file, and one on replicas.
//!
//! socket → connection → requests → `[device]` → replies → socket
//!
//! [`serve`] accepts clients at a TCP address or a Unix socket. Each has two threads, one that
//! reads and one that sends. What stores the blocks implements [`Blocks`]: it executes commands of
//! all clients at once and completes them in any order, on any thread. [`FileBlocks`] is one in a
//! file, [`ReplicatedBlocks`] one on several replicas.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::sync::Arc;
//!
//! use onepipe_block_server::{Address, FileBlocks, FileOptions, ServerOptions, serve};
//!
//! let dir = tempfile::tempdir()?;
//! let options = FileOptions { size: Some(1 << 20), ..FileOptions::default() };
//! let blocks = Arc::new(FileBlocks::open(&dir.path().join("disk"), options)?);
//! let address = Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
//! let server = serve(&address, blocks, ServerOptions::default())?;
//! println!("nbdinfo {}", server.address());
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - A client that is slow, wrong or gone affects no other client.
//! - A flush, or a write with forced unit access, is complete when its data is durable. After a
//!   failed synchronisation no later one is reported as successful.
//!
//! Access is not restricted: every program that reaches the address can read and write the device.
//! NBD has TLS for that, which is not offered; a Unix socket has the permissions of its directory.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod blocks;
mod extents;
mod file;
mod options;
mod replicated;
mod server;
mod session;
mod stats;
mod sync_group;
mod workers;

pub use address::Address;
pub use blocks::{Blocks, Completion, Reply};
pub use file::{FileBlocks, FileError, FileOptions};
pub use onepipe_block_replica::ScrubReport;
pub use options::ServerOptions;
pub use replicated::{
    DeviceError, RepairStats, ReplaceError, ReplicatedBlocks, ReplicatedOptions, replace_offline,
};
pub use server::{ServeError, Server, serve};
pub use stats::ServerStats;
