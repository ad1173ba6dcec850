//! Makes a snapshot count, and removes the files that it replaces.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Disk, FinishedSnapshot, Journal, JournalError, Mistake, Operation, makes};
use crate::format::{position_in, segment_name, snapshot_name};

impl<D: Disk> Journal<D> {
    /// Makes a snapshot count whose bytes are durable, then removes the files that it replaces.
    ///
    /// # Errors
    /// See [`Journal::snapshot`]; the bytes are removed then. If a file that is no longer needed
    /// cannot be removed, the snapshot counts all the same, and the next one tries again.
    pub fn install(&mut self, snapshot: FinishedSnapshot) -> Result<(), JournalError> {
        let position = snapshot.position;
        let failed = |operation, path, source| {
            let source = Arc::new(source);
            JournalError::Snapshot { operation, path, source }
        };
        if let Err(error) = self.prepare_installation(&snapshot) {
            // A file that remains is removed when the journal is opened.
            let _ = self.disk.remove(&snapshot.unfinished_name());
            return Err(error);
        }
        if !makes(Mistake::RenameNotSynced) {
            let synced = self.disk.sync_directory();
            synced.map_err(|error| failed(Operation::Sync, self.disk.path(""), error))?;
        }
        self.snapshots.push(position);
        // Records after the snapshot begin a new segment unless the log ends exactly here.
        self.last = self.last.max(position);
        self.progress.durable = self.progress.durable.max(position);
        self.progress.written = self.progress.written.max(position);
        self.prune().map_err(|(path, error)| failed(Operation::Remove, path, error))
    }

    /// Gives the file of a snapshot its name.
    fn prepare_installation(&mut self, snapshot: &FinishedSnapshot) -> Result<(), JournalError> {
        self.check_snapshot(snapshot.position)?;
        // No record at or below the position may have to be written again later on.
        self.sync()?;
        let name = snapshot_name(snapshot.position);
        self.disk.rename(&snapshot.unfinished_name(), &name).map_err(|error| {
            let (path, source) = (self.disk.path(&name), Arc::new(error));
            JournalError::Snapshot { operation: Operation::Rename, path, source }
        })
    }

    /// Removes surplus snapshots, and the segments that only hold what the oldest retained one
    /// holds.
    pub(super) fn prune(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let surplus = self.snapshots.len().saturating_sub(self.options.snapshot_count.max(1));
        for _ in 0..surplus {
            self.remove(&snapshot_name(self.snapshots[0]))?;
            self.snapshots.remove(0);
        }
        let Some(oldest) = self.snapshots.first().copied() else { return Ok(()) };
        while let Some(segment) = self.segments.first().copied() {
            let is_last = self.segments.len() == 1;
            let end = if is_last { self.end_of_log() } else { self.segments[1].before };
            if end > oldest {
                break;
            }
            self.remove(&segment_name(segment.first))?;
            self.segments.remove(0);
            if is_last {
                self.active = None;
            }
        }
        Ok(())
    }

    /// Returns a position that no record of the last segment exceeds.
    fn end_of_log(&self) -> u64 {
        self.active.as_ref().map_or(self.last, |active| active.last.position)
    }

    fn remove(&self, name: &str) -> Result<(), (PathBuf, io::Error)> {
        match self.disk.remove_later(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err((self.disk.path(name), error))
            }
            _ => Ok(()),
        }
    }

    /// Removes all snapshots before `position`, which only a mistake does.
    pub(super) fn remove_snapshots_before(&self, position: u64) -> io::Result<()> {
        for name in self.disk.list()? {
            if position_in(&name, "snapshot-").is_some_and(|found| found < position) {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }
}
