//! The log of a replica that runs, with its snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use onepipe_journal::{FinishedSnapshot, JournalError, Status, SyncPolicy, Writer};
use onepipe_transaction::{Record, Replica, State};

use super::layout::encode;
use super::schedule::{Image, Schedule};
use crate::shared::LogStats;

/// Bytes of an image that are written between two looks at whether the replica has ended.
const PIECE_LEN: usize = 1 << 20;

/// Appends to the log of a replica, and replaces its beginning by snapshots.
pub(crate) struct LogWriter {
    /// Ends before the writer: the thread has a part in it.
    task: Option<SnapshotTask>,
    /// A snapshot that is on the disk, and does not count yet.
    written: Option<FinishedSnapshot>,
    /// How many snapshots had been tried when the last one was handed over.
    tried: u64,
    writer: Arc<Writer>,
    policy: SyncPolicy,
    appended: u64,
    /// The last record that [`LogWriter::store_all`] has asked for.
    sync_requested: u64,
    schedule: Schedule,
}

impl LogWriter {
    pub fn new(writer: Writer, (policy, appended): (SyncPolicy, u64), schedule: Schedule) -> Self {
        let (task, written, tried, writer) = (None, None, 0, Arc::new(writer));
        Self { task, written, tried, writer, policy, appended, sync_requested: 0, schedule }
    }

    /// Appends a record; the disk is written by another thread.
    pub fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        let bytes = encode(record);
        let len = bytes.len() as u64;
        self.writer.append(record.number, bytes)?;
        self.appended = record.number;
        self.schedule.on_appended(len);
        Ok(())
    }

    /// Returns the number of the last record after which replies may be sent.
    pub fn acknowledged(&self) -> u64 {
        self.writer.acknowledged()
    }

    /// Returns the number of the last record that survives a loss of power.
    pub fn stored(&self) -> u64 {
        self.writer.durable()
    }

    /// Returns whether all records survive a loss of power, and has them stored if not.
    pub fn store_all(&mut self) -> bool {
        let is_stored = self.writer.durable() >= self.appended;
        if !is_stored && self.sync_requested < self.appended {
            self.sync_requested = self.appended;
            // A writer that has stopped is reported by `append`.
            let _ = self.writer.request_sync();
        }
        is_stored
    }

    /// Returns the number of the last record that was appended.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns why the disk does not take what is appended, if it does not, and tries again.
    pub fn retry(&self) -> Option<String> {
        let failure = self.writer.status().failure?;
        // An error is the failure that is reported the next time.
        let _ = self.writer.reopen();
        let (operation, path) = (failure.operation, failure.path.display());
        Some(format!("{} (cannot {operation} {path})", failure.source))
    }

    /// Syncs the log if a snapshot of any replica waits for that, and advances the snapshots of
    /// `replica`. Its owner calls this about ten times a second, when all records of the replica
    /// are appended.
    pub fn advance<S: State>(&mut self, now: Instant, replica: &mut Replica<S>) {
        // Without this a snapshot would wait for the next write of this replica, or forever.
        if self.policy != SyncPolicy::Always && replica.is_sync_awaited() {
            // A writer that has stopped is reported by `append`.
            let _ = self.writer.request_sync();
        }
        if self.schedule.is_due(now) && self.writer.status().failure.is_none() {
            self.take(now, replica);
        }
        if let Some(finished) = self.task.take_if(|task| task.is_finished()) {
            match finished.result() {
                Ok(written) => {
                    self.written = Some(written);
                    self.schedule.on_written();
                }
                Err(reason) => self.on_failed(now, &reason),
            }
        }
        if let Some(at) = self.schedule.awaited() {
            replica.await_stored(at);
        }
        self.install(now, replica);
    }

    /// Encodes the state, and lets a thread write it.
    fn take<S: State>(&mut self, now: Instant, replica: &Replica<S>) {
        let Some(at) = replica.executed() else { return };
        let began = Instant::now();
        // A state is hardly longer than what it was made of: the buffer need not grow meanwhile.
        let LogStats { snapshot_bytes, log_bytes, .. } = self.schedule.stats();
        let mut bytes = Vec::with_capacity((snapshot_bytes + log_bytes) as usize);
        let number = replica.save(&mut bytes);
        self.schedule.on_taken(Image { number, at, bytes: bytes.len() as u64 });
        tracing::debug!(
            number,
            bytes = bytes.len(),
            stopped_us = began.elapsed().as_micros(),
            "encoded a snapshot"
        );
        match SnapshotTask::start(Arc::clone(&self.writer), number, bytes) {
            Ok(task) => self.task = Some(task),
            Err(error) => self.on_failed(now, &error.to_string()),
        }
    }

    /// Lets the snapshot count when it may, and notes whether it does.
    fn install<S: State>(&mut self, now: Instant, replica: &Replica<S>) {
        if self.schedule.install(|last| replica.stored_by_all(last))
            && let Some(written) = self.written.take()
        {
            self.tried = self.writer.status().installations;
            if let Err(error) = self.writer.install(written) {
                self.on_failed(now, &error.to_string());
            }
        }
        if !self.schedule.is_installing() {
            return;
        }
        let Status { snapshot, installations, snapshot_error, .. } = self.writer.status();
        if installations == self.tried {
            return;
        }
        let reason = snapshot_error.map(|error| error.to_string());
        if self.schedule.on_installed(snapshot) {
            tracing::debug!(number = snapshot, "a snapshot replaces the beginning of the log");
            if let Some(reason) = reason {
                tracing::warn!("a file that a snapshot replaces remains: {reason}");
            }
        } else {
            self.on_failed(now, reason.as_deref().unwrap_or("the log has a later snapshot"));
        }
    }

    fn on_failed(&mut self, now: Instant, reason: &str) {
        if self.schedule.on_failed(now) {
            tracing::warn!("the log grows, as a snapshot cannot be stored: {reason}");
        }
    }

    /// Returns the lengths of the log and of its snapshot.
    pub fn stats(&self) -> LogStats {
        self.schedule.stats()
    }
}

/// A thread that writes a snapshot. It is stopped, and waited for, when this is dropped.
struct SnapshotTask {
    thread: Option<JoinHandle<Result<FinishedSnapshot, String>>>,
    is_cancelled: Arc<AtomicBool>,
}

impl SnapshotTask {
    fn start(writer: Arc<Writer>, number: u64, image: Vec<u8>) -> std::io::Result<Self> {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_cancelled);
        let run = move || {
            let mut snapshot = writer.begin_snapshot(number).map_err(|error| error.to_string())?;
            for piece in image.chunks(PIECE_LEN) {
                if of_thread.load(Ordering::Relaxed) {
                    return Err("the replica has ended".into());
                }
                snapshot.append(piece).map_err(|error| error.to_string())?;
            }
            snapshot.finish().map_err(|error| error.to_string())
        };
        let thread = std::thread::Builder::new().name("kv-snapshot".into()).spawn(run)?;
        Ok(Self { thread: Some(thread), is_cancelled })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end of the thread.
    fn result(mut self) -> Result<FinishedSnapshot, String> {
        let thread = self.thread.take().expect("it is taken once, by value");
        thread.join().unwrap_or_else(|_| Err("its thread has panicked".into()))
    }
}

impl Drop for SnapshotTask {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}
