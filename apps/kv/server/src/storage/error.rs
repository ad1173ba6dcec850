//! Errors of logs.

use std::io;
use std::path::PathBuf;

use onepipe_journal::{JournalError, OpenError};
use onepipe_transaction::LostShard;
use thiserror::Error;

/// Why a log cannot be used.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log cannot be written.
    #[error("cannot write the log in {directory}: {error}")]
    Write {
        /// The replica's directory.
        directory: PathBuf,
        /// The reason.
        error: JournalError,
    },
    /// An intact record was not written by this version of the program.
    #[error(
        "record {number} of the log in {directory} was not written by this version: use the version that wrote it"
    )]
    Record {
        /// The replica's directory.
        directory: PathBuf,
        /// Number of the record.
        number: u64,
    },
    /// An intact snapshot was not written by this version of the program.
    #[error(
        "the snapshot up to record {number} in {directory} was not written by this version: use the version that wrote it"
    )]
    Snapshot {
        /// The replica's directory.
        directory: PathBuf,
        /// Number of the last record that it holds.
        number: u64,
    },
    /// The log cannot be completed. It ends before a snapshot of another replica of its shard, or
    /// has void records while another replica's log has none: the replica had been declared failed,
    /// or the log was put back from an older copy.
    #[error(
        "the log in {directory} ends with record {last}, and cannot be completed: another replica of the shard has gone on without it"
    )]
    Behind {
        /// The replica's directory.
        directory: PathBuf,
        /// Number of the last record of the log.
        last: u64,
    },
    /// The records from a timestamp on are void: the replica had been declared failed, and others
    /// have gone on without them.
    #[error(
        "the log in {directory} has writes that are void from {before} (ns since 1970) on: the replica had been declared failed"
    )]
    Void {
        /// The replica's directory.
        directory: PathBuf,
        /// The timestamp, in ns.
        before: u64,
    },
    /// No log of a shard is whole.
    #[error(transparent)]
    Lost(#[from] LostShard),
    /// The log is missing, and the previous one is there, which a replacement had replaced.
    #[error(
        "{directory} is missing, and {previous} is the log that it has replaced: put back {directory}, or remove {previous}"
    )]
    Missing {
        /// The replica's directory.
        directory: PathBuf,
        /// The log that was replaced.
        previous: PathBuf,
    },
    /// A new log cannot be stored in place of the old one.
    #[error(
        "cannot replace the log in {directory} by the state of another replica ({bytes} bytes): {path}: {error}; nothing is lost: {advice}",
        advice = advice(error)
    )]
    Replace {
        /// The replica's directory.
        directory: PathBuf,
        /// Length of the state with which the new log begins.
        bytes: usize,
        /// The file or directory that cannot be used.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The state before a timestamp cannot be rebuilt: the log begins later, and no snapshot before
    /// the timestamp precedes it.
    #[error(
        "the log in {directory} does not say what the state was before {before} (ns since 1970): record {missing} is missing"
    )]
    NotBack {
        /// The replica's directory.
        directory: PathBuf,
        /// The timestamp, in ns.
        before: u64,
        /// Number of the first record that is needed and missing.
        missing: u64,
    },
    /// The numbers of shards or replicas are not those of the store.
    #[error(
        "{directory} holds a store of other numbers of shards or replicas: {found} replicas, not {expected}"
    )]
    Shape {
        /// The directory of the store.
        directory: PathBuf,
        /// Replicas found.
        found: usize,
        /// Replicas expected.
        expected: usize,
    },
}

impl StorageError {
    /// Returns whether a repair may help: a log is damaged, void or behind.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Behind { .. }
                | Self::Void { .. }
                | Self::Open(
                    OpenError::Damaged { .. }
                        | OpenError::SnapshotDamaged { .. }
                        | OpenError::Gap { .. }
                )
        )
    }
}

/// Returns what the user can do about an error of the system.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on this disk, which holds the old log, too, until the new one is whole"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "let this program write there, and to the directory that holds it"
        }
        _ => "check the disk, and what else uses this directory",
    }
}
