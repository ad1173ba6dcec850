//! Errors of logs.

use std::path::PathBuf;

use onepipe_journal::{JournalError, OpenError};
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
    /// A record that is not damaged is none of this program.
    #[error(
        "record {number} of the log in {directory} is none of this version: use the version that wrote it"
    )]
    Record {
        /// The replica's directory.
        directory: PathBuf,
        /// Number of the record.
        number: u64,
    },
    /// A snapshot that is not damaged is none of this program.
    #[error(
        "the snapshot of record {number} in {directory} is none of this version: use the version that wrote it"
    )]
    Snapshot {
        /// The replica's directory.
        directory: PathBuf,
        /// Number of the last record that it holds.
        number: u64,
    },
    /// The log of a replica ends before that of another one of its shard, which has replaced the
    /// records in between by a snapshot. Only a log that was put back from a copy ends so.
    #[error(
        "the log in {directory} ends with record {last}, and another replica of the shard has dropped the records that follow: it is an older copy"
    )]
    Behind {
        /// The replica's directory.
        directory: PathBuf,
        /// Number of its last record.
        last: u64,
    },
    /// The shards or replicas are not those of the store.
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
    /// Returns whether a log is damaged, so that a repair may help.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Behind { .. }
                | Self::Open(
                    OpenError::Damaged { .. }
                        | OpenError::SnapshotDamaged { .. }
                        | OpenError::Gap { .. }
                )
        )
    }
}
