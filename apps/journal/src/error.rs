//! Errors, which say what failed, where, and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::options::StoreId;

/// A directory cannot be opened as a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process, or another journal of this one, uses the directory.
    #[error(
        "{path} is locked{by}: each replica needs a directory of its own; name another one, or \
         stop the process that uses this one",
        path = path.display(),
        by = holder.map(|id| format!(" by process {id}")).unwrap_or_default()
    )]
    Locked {
        /// The file that is locked.
        path: PathBuf,
        /// Id of the process that has the lock, if it is known.
        holder: Option<u32>,
    },
    /// The system returned an error.
    #[error("cannot use {path}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file belongs to another store.
    #[error(
        "{path} belongs to store {found}, not to {expected}: name the directory of this store",
        path = path.display()
    )]
    OtherStore {
        /// The file.
        path: PathBuf,
        /// Its store.
        found: StoreId,
        /// The store of the caller.
        expected: StoreId,
    },
    /// A file was written in a format that this version does not know.
    #[error(
        "{path} has format version {version}, and this program reads version {known}: use the \
         program that has written it",
        path = path.display(), known = crate::format::VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A segment is damaged where a crash cannot have damaged it: records behind the damage may
    /// have been acknowledged.
    #[error(
        "{path} is damaged at byte {offset} of {len}: acknowledged records may be lost; restore \
         this replica from a peer",
        path = path.display()
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Offset of the first byte of the damaged record, or 0 for the header.
        offset: u64,
        /// Length of the file, in bytes.
        len: u64,
    },
    /// A snapshot is damaged, and the log does not hold what it held.
    #[error(
        "{path} is damaged, and the log does not reach back before it: restore this replica from \
         a peer",
        path = path.display()
    )]
    SnapshotDamaged {
        /// The snapshot.
        path: PathBuf,
    },
    /// Records between two files are missing.
    #[error(
        "{path} continues after position {expected}, but what precedes it ends at {found}: a file \
         is missing; put it back, or restore this replica from a peer",
        path = path.display()
    )]
    Gap {
        /// The segment behind the gap.
        path: PathBuf,
        /// Position of the last record before this segment.
        expected: u64,
        /// Position at which the files before it end.
        found: u64,
    },
}

/// What a journal was doing when the disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Creating a file.
    Create,
    /// Writing records or a snapshot.
    Write,
    /// Waiting for `fdatasync` of a file, or `fsync` of the directory.
    Sync,
    /// Cutting a segment to what is durable.
    Truncate,
    /// Renaming a snapshot.
    Rename,
    /// Removing a file that is no longer needed.
    Remove,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Write => "write to",
            Self::Sync => "synchronise",
            Self::Truncate => "truncate",
            Self::Rename => "rename",
            Self::Remove => "remove",
        })
    }
}

/// An error of the disk. After one of the log, no later record is reported durable until
/// [`Journal::reopen`](crate::Journal::reopen) succeeds.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "cannot {operation} {path}: {source}; records up to {durable} are durable, {advice}",
    path = path.display(), advice = advice(source)
)]
pub struct Failure {
    /// What the journal was doing.
    pub operation: Operation,
    /// The file or directory.
    pub path: PathBuf,
    /// Position up to which records are durable all the same.
    pub durable: u64,
    /// The error of the system.
    pub source: Arc<io::Error>,
}

impl Failure {
    /// Returns whether the disk or the quota is full, so that freeing space and
    /// [`Journal::reopen`](crate::Journal::reopen) help.
    pub fn is_disk_full(&self) -> bool {
        is_disk_full(&self.source)
    }
}

fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn advice(error: &io::Error) -> &'static str {
    if is_disk_full(error) {
        "later ones are retained in memory: free space on this disk, then reopen the journal"
    } else {
        "later ones are retained in memory: check the disk, then reopen the journal"
    }
}

/// A journal refuses a call, or cannot fulfil it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The disk failed, now or in an earlier call.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A position does not ascend.
    #[error("position {position} is not above {last}, the last one: positions must ascend")]
    NotAscending {
        /// The refused position.
        position: u64,
        /// The last position of the log, or of a snapshot.
        last: u64,
    },
    /// A record is too long.
    #[error("a record of {len} bytes is too long: the limit is {max} bytes; split it")]
    TooLong {
        /// Length of the payload, in bytes.
        len: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// Too many bytes wait for the disk.
    #[error(
        "{buffered} bytes wait for the disk (buffered_bytes_max = {max}): wait until more records \
         are durable; if the disk has failed, reopen the journal"
    )]
    BufferFull {
        /// Payload bytes in memory.
        buffered: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A snapshot cannot be stored. The log, and the previous snapshot, are as before.
    #[error(
        "cannot {operation} {path}: {source}; the log and the previous snapshot remain, take the \
         snapshot again once the disk works and has space",
        path = path.display()
    )]
    Snapshot {
        /// What the journal was doing.
        operation: Operation,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// A snapshot cannot be read from its source.
    #[error("cannot read the state of snapshot {position}: {source}")]
    Source {
        /// Position of the snapshot.
        position: u64,
        /// The error of the source.
        source: Arc<io::Error>,
    },
    /// The thread of a [`Writer`](crate::Writer) has ended.
    #[error("the writer of the journal has stopped: open the journal again")]
    Stopped,
}
