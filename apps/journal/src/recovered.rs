//! What a journal returns when it is opened or repaired.

use std::path::PathBuf;

/// What a directory held when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The newest snapshot that is intact.
    pub snapshot: Option<Snapshot>,
    /// The records after the snapshot, by ascending position.
    pub records: Vec<Record>,
    /// What was cut off, if a crash left an incomplete record.
    pub repaired: Option<Repair>,
    /// Snapshots that were damaged and not needed; they have been renamed to `damaged-…`.
    pub damaged_snapshots: Vec<PathBuf>,
}

/// A state of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Position of the last record whose effect the state includes.
    pub position: u64,
    /// The state.
    pub bytes: Vec<u8>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub position: u64,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// Bytes that were cut off the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{bytes} bytes from offset {offset} of {path} were cut off{at}",
    path = path.display(),
    at = copy.as_ref().map(|copy| format!("; a copy is {}", copy.display())).unwrap_or_default()
)]
pub struct Repair {
    /// The file.
    pub path: PathBuf,
    /// Offset of the first byte that was cut off. A file that was cut at 0 is removed.
    pub offset: u64,
    /// Number of bytes that were cut off.
    pub bytes: u64,
    /// A copy of the file as it was, if one was made.
    pub copy: Option<PathBuf>,
}
