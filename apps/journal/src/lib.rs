//! A durable, append-only log of records with snapshots in a directory, for a replica of a state
//! machine.
//!
//! A record is a payload of bytes at a *position*: the timestamp of its transaction. Positions
//! ascend and leave gaps. Position 0 is before every record.
//!
//! The caller drives a [`Journal`] on its own thread, or gives it to a [`Writer`], whose thread
//! writes and synchronises all that is queued at once (group commit), so that the caller never
//! waits for the disk.
//!
//! ```
//! use onepipe_journal::{Journal, Options, StoreId};
//!
//! let dir = tempfile::tempdir()?;
//! let options = Options::new(StoreId(*b"shard 3 of acme "));
//! let (mut journal, recovered) = Journal::open(dir.path(), options)?;
//! assert!(recovered.records.is_empty());
//! journal.append(17, b"SET a 1")?;
//! assert_eq!(journal.sync()?.durable, 17);
//! journal.snapshot(17, b"a = 1")?;
//! drop(journal);
//!
//! let (_journal, recovered) = Journal::open(dir.path(), options)?;
//! let snapshot = recovered.snapshot.expect("it was stored");
//! assert_eq!((snapshot.position, &snapshot.bytes[..]), (17, &b"a = 1"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//! - `log-<first position>` holds records; a new segment begins at [`Options::segment_bytes`].
//! - `snapshot-<position>` holds a state; it has a temporary name until it is durable.
//! - `lock` is locked by the process that uses the directory.
//! - `damaged-…` are copies of damaged files. This crate makes them and never reads them.
//!
//! # What survives
//! A record at or below a reported durable position survives a crash of the machine at any time.
//! After a failed write or `fdatasync` no later record is reported durable until
//! [`Journal::reopen`] has written all records again that were not durable.

#![forbid(unsafe_code)]

mod active;
mod directory;
mod disk;
mod error;
mod format;
mod journal;
mod memory;
mod mistake;
mod options;
mod plan;
mod recover;
mod recovered;
mod repair;
mod salvage;
mod scan;
mod snapshot;
mod writer;

#[cfg(test)]
mod tests;

pub use directory::{Directory, LOCK_NAME};
pub use disk::{Disk, DiskFile};
pub use error::{Failure, JournalError, OpenError, Operation};
pub use journal::{Journal, Progress};
pub use memory::{MemoryDisk, MemoryFile};
pub use options::{Options, StoreId, SyncPolicy};
pub use recovered::{Record, Recovered, Repair, Snapshot};
pub use salvage::Salvaged;
pub use snapshot::{FinishedSnapshot, SnapshotWriter};
pub use writer::{Status, Writer};
