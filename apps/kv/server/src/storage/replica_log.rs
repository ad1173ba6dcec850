//! The log of a replica, which another log may replace.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use onepipe::{Doorbell, Timestamp};
use onepipe_journal::{Directory, Journal, Options, Writer};
use onepipe_kv::Store;
use onepipe_transaction::{LogSummary, OwnLog, Replica, State};

use super::StorageOptions;
use super::log_writer::LogWriter;
use super::own::{Rebuilt, rebuild};
use super::replacement::{Contents, Replacement};
use super::schedule::Schedule;
use crate::shared::LogStats;

/// The log of one replica.
pub(crate) struct ReplicaLog {
    directory: PathBuf,
    options: Options,
    storage: StorageOptions,
    bell: Doorbell,
    phase: Phase,
}

/// A replica without its void records, and what its log holds.
pub(crate) type CutOff<S> = (Replica<S>, OwnLog);

enum Phase {
    Open(LogWriter),
    /// Another log takes the place of this one. The bytes of its snapshot, and of its records after
    /// that, are received before it is finished.
    Replacing(Replacement, Receiver<(u64, u64)>),
    /// The log could not be replaced, or is about to be. The directory has the old log or the new
    /// one.
    Failed,
}

impl ReplicaLog {
    /// Starts the thread that writes the log, which rings `bell` when more is stored. `lengths` are
    /// the bytes of the last snapshot, and of the records after it.
    pub fn open(
        directory: PathBuf,
        journal: Journal,
        storage: StorageOptions,
        lengths: (u64, u64),
        bell: Doorbell,
    ) -> io::Result<Self> {
        let options = *journal.options();
        let writer = write(journal, &storage, lengths, &bell)?;
        Ok(Self { directory, options, storage, bell, phase: Phase::Open(writer) })
    }

    /// Stores what the replica has executed, and notes what is stored.
    ///
    /// # Errors
    /// Why the log cannot be written or replaced.
    pub fn store<S: State>(&mut self, replica: &mut Replica<S>) -> Result<(), String> {
        if let Some((number, image)) = replica.poll_image() {
            self.replace(move || Ok(Contents::of_image(number, image)))?;
        }
        if self.finish_replacing()?
            && let Phase::Open(log) = &self.phase
        {
            replica.on_stored(log.appended());
        }
        let Phase::Open(log) = &mut self.phase else { return Ok(()) };
        while let Some(record) = replica.poll_record() {
            log.append(&record).map_err(|error| format!("the log cannot be written: {error}"))?;
        }
        replica.on_written(log.acknowledged());
        replica.on_stored(log.stored());
        Ok(())
    }

    /// Replaces this log by another one, with what `contents` returns in the thread that writes it.
    fn replace(
        &mut self,
        contents: impl FnOnce() -> Result<Contents, super::StorageError> + Send + 'static,
    ) -> Result<(), String> {
        // The writer has the lock, and a replacement that is under way uses the same names. Either
        // is dropped in the other thread, as that may have to wait for the disk.
        let earlier = std::mem::replace(&mut self.phase, Phase::Failed);
        let (sender, lengths) = channel();
        let bell = self.bell.clone();
        let contents = move || {
            drop(earlier);
            let contents = contents()?;
            let behind = contents.records.iter().map(|record| record.request.len() as u64).sum();
            // An error means that the log was dropped meanwhile.
            let _ = sender.send((contents.image.len() as u64, behind));
            Ok(contents)
        };
        let started =
            Replacement::start(self.directory.clone(), self.options, contents, move || {
                bell.ring();
            });
        let replacement = started.map_err(|error| format!("no thread to write a log: {error}"))?;
        self.phase = Phase::Replacing(replacement, lengths);
        Ok(())
    }

    /// Opens the new log if it has replaced the old one. Returns whether that happened now.
    fn finish_replacing(&mut self) -> Result<bool, String> {
        let Phase::Replacing(replacement, lengths) = &mut self.phase else { return Ok(false) };
        let Some(finished) = replacement.take_finished() else { return Ok(false) };
        let lengths = lengths.try_recv().unwrap_or_default();
        self.phase = Phase::Failed;
        let journal = finished.map_err(|error| with_causes(&error))?;
        let writer = write(journal, &self.storage, lengths, &self.bell);
        self.phase = Phase::Open(writer.map_err(|error| format!("no thread for a log: {error}"))?);
        Ok(true)
    }

    /// Removes the void records: those from the timestamp `before` on. The replica without them is
    /// received before [`ReplicaLog::writer`] returns the new log.
    pub fn cut(
        &mut self,
        shard: u16,
        before: Timestamp,
    ) -> Result<Receiver<CutOff<Store>>, String> {
        let (sender, replica) = channel();
        let (directory, store) = (self.directory.clone(), self.options.store);
        self.replace(move || {
            let rebuilt = rebuild(&Directory::open(&directory)?, store, shard, before)?;
            let Rebuilt { replica, snapshot, contents } = rebuilt;
            let (last, members) = (replica.executed_position(), replica.members().clone());
            let summary = LogSummary { shard, is_durable: true, snapshot, last, members };
            let records = contents.records.clone();
            // An error means that the start was given up.
            let _ = sender.send((replica, OwnLog { summary, records }));
            Ok(contents)
        })?;
        Ok(replica)
    }

    /// Returns the log if it can be written now.
    pub fn writer(&mut self) -> Result<Option<&mut LogWriter>, String> {
        self.finish_replacing()?;
        Ok(match &mut self.phase {
            Phase::Open(writer) => Some(writer),
            Phase::Replacing(..) | Phase::Failed => None,
        })
    }

    /// Returns the log if it is not being replaced.
    pub fn open_writer(&self) -> Option<&LogWriter> {
        match &self.phase {
            Phase::Open(writer) => Some(writer),
            Phase::Replacing(..) | Phase::Failed => None,
        }
    }

    /// Advances the snapshots of `replica`: see [`LogWriter::advance`].
    pub fn advance<S: State>(&mut self, now: Instant, replica: &mut Replica<S>) {
        // A replica that catches up takes no snapshots.
        if let Phase::Open(writer) = &mut self.phase
            && replica.is_serving()
        {
            writer.advance(now, replica);
            replica.await_stored_images();
        }
    }

    /// Returns the lengths of the log and of its snapshot; zeros while the log is replaced.
    pub fn stats(&self) -> LogStats {
        self.open_writer().map(LogWriter::stats).unwrap_or_default()
    }
}

/// Returns the text of an error and of its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn write(
    journal: Journal,
    storage: &StorageOptions,
    (snapshot_bytes, log_bytes): (u64, u64),
    bell: &Doorbell,
) -> io::Result<LogWriter> {
    let (last, bell) = (journal.last(), bell.clone());
    let writer = Writer::start(journal, move |_| bell.ring())?;
    let schedule = Schedule::new(storage.snapshot_bytes, snapshot_bytes, log_bytes);
    Ok(LogWriter::new(writer, (storage.policy, last), schedule))
}
