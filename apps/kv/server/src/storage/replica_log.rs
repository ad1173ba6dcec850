//! The log of a replica that starts, runs, or takes the state of another one.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use onepipe::{Doorbell, Timestamp};
use onepipe_journal::{Directory, Journal, Options, Writer};
use onepipe_kv::Store;
use onepipe_transaction::{Position, Replica, State};

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

/// A replica without its void records, and the last write that its snapshot includes.
pub(crate) type CutOff<S> = (Replica<S>, Option<Position>);

enum Phase {
    Open(LogWriter),
    /// Another log takes its place. Received: the bytes of its snapshot, and of the records behind.
    Replacing(Replacement, Receiver<(u64, u64)>),
    /// The log could not be replaced. The old one remains.
    Failed,
}

impl ReplicaLog {
    /// Starts the thread that writes the log. It rings `bell` when more is stored. `lengths`: the
    /// bytes of its snapshot, and of the records behind.
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
    /// The log cannot be written: why.
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

    /// Lets a log that begins with an image take the place of this one.
    fn replace(
        &mut self,
        contents: impl FnOnce() -> Result<Contents, super::StorageError> + Send + 'static,
    ) -> Result<(), String> {
        // The writer has the lock, and a replacement that is under way uses the same names. Both
        // end in the other thread, which may have to wait for the disk.
        let earlier = std::mem::replace(&mut self.phase, Phase::Failed);
        let (sender, lengths) = channel();
        let bell = self.bell.clone();
        let contents = move || {
            drop(earlier);
            let contents = contents()?;
            let behind = contents.records.iter().map(|record| record.request.len() as u64).sum();
            // The log is gone, if this fails.
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

    /// Returns whether a log has taken the place of another one.
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

    /// Removes all records from a timestamp on, which are void. What is received is the replica
    /// without them, when [`ReplicaLog::writer`] returns the new log.
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
            // The log is gone, if this fails.
            let _ = sender.send((replica, snapshot));
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
        // While another replica is the source of the state, the old log remains as it is.
        if let Phase::Open(writer) = &mut self.phase
            && replica.is_serving()
        {
            writer.advance(now, replica);
            replica.await_stored_images();
        }
    }

    /// Returns the lengths of the log and of its snapshot.
    pub fn stats(&self) -> LogStats {
        self.open_writer().map(LogWriter::stats).unwrap_or_default()
    }
}

/// Returns the text of an error, and of what has caused it.
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
