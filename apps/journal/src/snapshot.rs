//! Snapshots: a state of the caller in one file.
//!
//! ```text
//!  0  magic "1PIPESNP"     40  checksum of bytes 0–39, u64
//!  8  format version, u32  48  the state
//! 12  0, u32               …   length of the state, u64
//! 16  store id, 16 bytes   …   checksum of all before it, u64
//! 32  position, u64
//! ```

use std::io::Read;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::disk::{Disk, DiskFile};
use crate::error::{JournalError, Operation};
use crate::format::{HeaderError, VERSION, check_start, snapshot_name, u64_at};
use crate::options::StoreId;

const MAGIC: &[u8; 8] = b"1PIPESNP";
const HEADER_LEN: usize = 48;
const TRAILER_LEN: usize = 16;
/// Bytes that are read from a source and written at once.
const CHUNK_LEN: usize = 256 << 10;
/// Bytes after which what was written is synchronised: the log is on the same disk, and its own
/// `fdatasync` may wait for as much. As in Redis (`rdb-save-incremental-fsync`).
const SYNC_LEN: u64 = 4 << 20;
/// End of the name of a snapshot that is not complete.
pub const UNFINISHED_SUFFIX: &str = ".tmp";

/// Writes a snapshot in pieces to a temporary file. It does not use the journal, so another thread
/// can write it while the log goes on. A snapshot that is dropped unfinished is removed.
#[derive(Debug)]
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    file: D::File,
    position: u64,
    len: u64,
    synced_len: u64,
    checksum: Checksum,
    is_finished: bool,
}

/// A snapshot whose bytes are durable under a temporary name;
/// [`Journal::install`](crate::Journal::install) makes it count.
#[derive(Debug)]
#[must_use = "a snapshot counts once it is installed"]
pub struct FinishedSnapshot {
    /// Position of the last record whose effect the state includes.
    pub position: u64,
}

impl FinishedSnapshot {
    /// Returns the temporary name of the file.
    pub(crate) fn unfinished_name(&self) -> String {
        snapshot_name(self.position) + UNFINISHED_SUFFIX
    }
}

impl<D: Disk> SnapshotWriter<D> {
    /// Begins a snapshot of `store` at `position`: the state after all records up to it.
    ///
    /// # Errors
    /// [`JournalError::Snapshot`] if the file cannot be created or written.
    pub fn begin(disk: D, store: StoreId, position: u64) -> Result<Self, JournalError> {
        let name = snapshot_name(position) + UNFINISHED_SUFFIX;
        let file = disk.create(&name).map_err(|source| JournalError::Snapshot {
            operation: Operation::Create,
            path: disk.path(&name),
            source: Arc::new(source),
        })?;
        let checksum = Checksum(Xxh3::new());
        let (len, synced_len, is_finished) = (0, 0, false);
        let mut writer = Self { disk, file, position, len, synced_len, checksum, is_finished };
        writer.write(&header(store, position))?;
        Ok(writer)
    }

    /// Appends `bytes` to the state.
    ///
    /// # Errors
    /// [`JournalError::Snapshot`] if the disk fails. The snapshot is then of no use; the journal is
    /// not affected.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.write(bytes)
    }

    /// Appends all that `source` holds to the state.
    ///
    /// # Errors
    /// [`JournalError::Source`] if `source` fails, [`JournalError::Snapshot`] if the disk does.
    pub fn append_from(&mut self, source: &mut impl Read) -> Result<(), JournalError> {
        let mut chunk = vec![0; CHUNK_LEN];
        loop {
            match source.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(len) => self.write(&chunk[..len])?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let (position, source) = (self.position, Arc::new(error));
                    return Err(JournalError::Source { position, source });
                }
            }
        }
    }

    /// Ends the state and waits until it is durable under its temporary name.
    ///
    /// # Errors
    /// [`JournalError::Snapshot`] if the disk fails.
    pub fn finish(mut self) -> Result<FinishedSnapshot, JournalError> {
        let state_len = self.len - HEADER_LEN as u64;
        self.write(&state_len.to_le_bytes())?;
        let checksum = self.checksum.0.digest();
        self.write(&checksum.to_le_bytes())?;
        let synced = self.file.sync_data();
        synced.map_err(|source| self.failure(Operation::Sync, source))?;
        self.is_finished = true;
        Ok(FinishedSnapshot { position: self.position })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let written = self.file.write_at(self.len, bytes);
        written.map_err(|source| self.failure(Operation::Write, source))?;
        self.checksum.0.update(bytes);
        self.len += bytes.len() as u64;
        if self.len - self.synced_len >= SYNC_LEN {
            let synced = self.file.sync_data();
            synced.map_err(|source| self.failure(Operation::Sync, source))?;
            self.synced_len = self.len;
        }
        Ok(())
    }

    fn failure(&self, operation: Operation, source: std::io::Error) -> JournalError {
        let path = self.disk.path(&(snapshot_name(self.position) + UNFINISHED_SUFFIX));
        JournalError::Snapshot { operation, path, source: Arc::new(source) }
    }
}

impl<D: Disk> Drop for SnapshotWriter<D> {
    fn drop(&mut self) {
        if !self.is_finished {
            // The space is free at once; a file that remains is removed when the journal is opened.
            let _ = self.disk.remove(&(snapshot_name(self.position) + UNFINISHED_SUFFIX));
        }
    }
}

/// A checksum in progress.
struct Checksum(Xxh3);

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checksum({:x})", self.0.digest())
    }
}

fn header(store: StoreId, position: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&store.0);
    bytes[32..40].copy_from_slice(&position.to_le_bytes());
    let checksum = xxh3_64(&bytes[..40]);
    bytes[40..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the state in the bytes of a snapshot of `store` at `position`.
pub fn decode(mut bytes: Vec<u8>, store: StoreId, position: u64) -> Result<Vec<u8>, HeaderError> {
    if bytes.len() < HEADER_LEN + TRAILER_LEN {
        return Err(HeaderError::Damaged);
    }
    check_start(&bytes, MAGIC, u64_at(&bytes, 40) == xxh3_64(&bytes[..40]), store)?;
    let state_end = bytes.len() - TRAILER_LEN;
    let is_intact = u64_at(&bytes, 32) == position
        && u64_at(&bytes, state_end) == (state_end - HEADER_LEN) as u64
        && u64_at(&bytes, state_end + 8) == xxh3_64(&bytes[..state_end + 8]);
    if !is_intact {
        return Err(HeaderError::Damaged);
    }
    bytes.truncate(state_end);
    bytes.drain(..HEADER_LEN);
    Ok(bytes)
}
