//! A thread that writes the log, so that its caller never waits for the disk.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::{Failure, JournalError};
use crate::journal::{Journal, Progress, check};
use crate::options::{Options, SyncPolicy};
use crate::recovered::Record;
use crate::snapshot::{FinishedSnapshot, SnapshotWriter};

/// The longest time that [`SyncPolicy::EverySecond`] waits when no record arrives.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// What a [`Writer`] reports after each turn of its thread that changed anything.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// How far the log is.
    pub progress: Progress,
    /// The failure of the disk that keeps records from becoming durable until
    /// [`Writer::reopen`].
    pub failure: Option<Failure>,
    /// Position of the last snapshot; 0 if there is none.
    pub snapshot: u64,
    /// Number of snapshots that this writer has tried to install.
    pub installations: u64,
    /// Why the last one of them failed. If it counts all the same, a file that it replaces could
    /// not be removed.
    pub snapshot_error: Option<JournalError>,
}

/// A journal with a thread of its own. Whatever is queued is written and synchronised at once.
///
/// Dropping it writes what is queued, without reporting errors; [`Writer::close`] reports them.
pub struct Writer<D: Disk = Directory> {
    shared: Arc<Shared>,
    disk: D,
    options: Options,
    thread: Option<JoinHandle<Journal<D>>>,
}

/// What the caller and the thread share.
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    written: AtomicU64,
    durable: AtomicU64,
    /// Payload bytes that the thread has taken and not secured.
    taken_bytes: AtomicUsize,
    status: Mutex<Status>,
}

#[derive(Default)]
struct Queue {
    requests: Vec<Request>,
    /// Payload bytes in `requests`.
    bytes: usize,
    /// Position of the last record or snapshot.
    last: u64,
    is_closed: bool,
    /// Whether the thread has ended, also by a panic.
    is_stopped: bool,
}

enum Request {
    Append(Record),
    Install(FinishedSnapshot),
    Sync,
    Reopen,
}

impl<D: Disk> Writer<D> {
    /// Starts the thread. It calls `on_change` after each turn that changed the status: to wake the
    /// caller's loop. `on_change` must not wait.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        journal: Journal<D>,
        on_change: impl FnMut(&Status) + Send + 'static,
    ) -> io::Result<Self> {
        let (disk, options) = (journal.disk().clone(), *journal.options());
        let progress = journal.progress();
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { last: journal.last(), ..Queue::default() }),
            wake: Condvar::new(),
            written: AtomicU64::new(progress.written),
            durable: AtomicU64::new(progress.durable),
            taken_bytes: AtomicUsize::new(journal.buffered_bytes()),
            status: Mutex::new(Status {
                progress,
                snapshot: journal.last_snapshot(),
                ..Status::default()
            }),
        });
        let worker_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("journal".to_string()).spawn(move || {
            let stopped = StopGuard(Arc::clone(&worker_shared));
            let worker = Worker { shared: worker_shared, journal, on_change: Box::new(on_change) };
            let journal = worker.run();
            drop(stopped);
            journal
        })?;
        Ok(Self { shared, disk, options, thread: Some(thread) })
    }

    /// Returns the disk, which has the lock of the directory.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Queues a record.
    ///
    /// # Errors
    /// [`JournalError::NotAscending`], [`JournalError::TooLong`], [`JournalError::BufferFull`] or
    /// [`JournalError::Stopped`]; the record is not queued. A failure of the disk is in
    /// [`Writer::status`]; records are queued all the same, until the buffer is full.
    pub fn append(&self, position: u64, payload: Vec<u8>) -> Result<(), JournalError> {
        let mut queue = self.open_queue()?;
        let buffered = queue.bytes + self.shared.taken_bytes.load(Ordering::Relaxed);
        check(&self.options, queue.last, buffered, position, payload.len())?;
        queue.last = position;
        queue.bytes += payload.len();
        queue.requests.push(Request::Append(Record { position, payload }));
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Returns the position up to which records survive a crash of the machine.
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// Returns the position up to which records survive a crash of the process.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Acquire)
    }

    /// Returns the position up to which replies may be sent under the policy of the journal.
    pub fn acknowledged(&self) -> u64 {
        let progress = Progress { written: self.written(), durable: self.durable() };
        progress.acknowledged(self.options.policy)
    }

    /// Returns the status as of the last turn of the thread.
    pub fn status(&self) -> Status {
        lock(&self.shared.status).clone()
    }

    /// Begins a snapshot of the state at `position`. It writes to the disk in the caller: hand the
    /// result to a thread that may wait.
    ///
    /// # Errors
    /// See [`Journal::snapshot`].
    pub fn begin_snapshot(&self, position: u64) -> Result<SnapshotWriter<D>, JournalError> {
        SnapshotWriter::begin(self.disk.clone(), self.options.store, position)
    }

    /// Queues the installation of a snapshot; see [`Journal::install`]. The outcome is in
    /// [`Writer::status`].
    ///
    /// # Errors
    /// [`JournalError::Stopped`].
    pub fn install(&self, snapshot: FinishedSnapshot) -> Result<(), JournalError> {
        let mut queue = self.open_queue()?;
        queue.last = queue.last.max(snapshot.position);
        self.push(queue, Request::Install(snapshot));
        Ok(())
    }

    /// Queues an `fdatasync` of all that was queued before, whatever the policy is.
    ///
    /// # Errors
    /// [`JournalError::Stopped`].
    pub fn request_sync(&self) -> Result<(), JournalError> {
        let queue = self.open_queue()?;
        self.push(queue, Request::Sync);
        Ok(())
    }

    /// Tries again after a failure of the disk; see [`Journal::reopen`]. The outcome is in
    /// [`Writer::status`].
    ///
    /// # Errors
    /// [`JournalError::Stopped`].
    pub fn reopen(&self) -> Result<(), JournalError> {
        let queue = self.open_queue()?;
        self.push(queue, Request::Reopen);
        Ok(())
    }

    /// Waits until all that is queued is durable, ends the thread, and returns the journal.
    ///
    /// # Errors
    /// [`JournalError::Failed`] if the disk has failed; records that are not durable are lost.
    pub fn close(mut self) -> Result<Journal<D>, JournalError> {
        let mut journal = self.stop().ok_or(JournalError::Stopped)?;
        journal.sync()?;
        Ok(journal)
    }

    fn stop(&mut self) -> Option<Journal<D>> {
        lock(&self.shared.queue).is_closed = true;
        self.shared.wake.notify_one();
        self.thread.take()?.join().ok()
    }

    fn open_queue(&self) -> Result<MutexGuard<'_, Queue>, JournalError> {
        let queue = lock(&self.shared.queue);
        if queue.is_stopped { Err(JournalError::Stopped) } else { Ok(queue) }
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, request: Request) {
        queue.requests.push(request);
        drop(queue);
        self.shared.wake.notify_one();
    }
}

impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.stop().map(|mut journal| journal.sync());
        }
    }
}

impl<D: Disk> fmt::Debug for Writer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// Marks the thread as ended, however it ends.
struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        lock(&self.0.queue).is_stopped = true;
    }
}

/// The thread's side.
struct Worker<D: Disk> {
    shared: Arc<Shared>,
    journal: Journal<D>,
    on_change: Box<dyn FnMut(&Status) + Send>,
}

impl<D: Disk> Worker<D> {
    fn run(mut self) -> Journal<D> {
        let start = Instant::now();
        let mut status = lock(&self.shared.status).clone();
        loop {
            let (requests, is_closed) = self.next_requests();
            let needs_sync = self.take(requests, &mut status) || is_closed;
            let now_ns = start.elapsed().as_nanos() as u64;
            // A failure is in the journal.
            let _ = if needs_sync { self.journal.sync() } else { self.journal.commit(now_ns) };
            self.publish(&mut status);
            if is_closed {
                return self.journal;
            }
        }
    }

    /// Waits for requests, or for the time of the next `fdatasync`.
    fn next_requests(&self) -> (Vec<Request>, bool) {
        let mut queue = lock(&self.shared.queue);
        let progress = self.journal.progress();
        let has_deadline = self.journal.options().policy == SyncPolicy::EverySecond
            && progress.durable < progress.written
            && self.journal.failure().is_none();
        while queue.requests.is_empty() && !queue.is_closed {
            if has_deadline {
                let waited = self.shared.wake.wait_timeout(queue, SYNC_INTERVAL);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                break;
            }
            queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.shared
            .taken_bytes
            .store(self.journal.buffered_bytes() + queue.bytes, Ordering::Relaxed);
        queue.bytes = 0;
        (std::mem::take(&mut queue.requests), queue.is_closed)
    }

    /// Does what was requested, except writing. Returns whether an `fdatasync` is requested.
    fn take(&mut self, requests: Vec<Request>, status: &mut Status) -> bool {
        let mut needs_sync = false;
        for request in requests {
            match request {
                Request::Append(Record { position, payload }) => {
                    // A record at or below a snapshot of a peer was queued after it, or refused.
                    self.journal.push(position, payload);
                }
                Request::Install(snapshot) => {
                    status.snapshot_error = self.journal.install(snapshot).err();
                    status.snapshot = self.journal.last_snapshot();
                    status.installations += 1;
                }
                Request::Sync => needs_sync = true,
                // A failure is in the journal.
                Request::Reopen => drop(self.journal.reopen()),
            }
        }
        needs_sync
    }

    fn publish(&mut self, status: &mut Status) {
        let (before, had_failed) = (status.progress, status.failure.is_some());
        let installations_before = lock(&self.shared.status).installations;
        status.progress = self.journal.progress();
        status.failure = self.journal.failure().cloned();
        self.shared.taken_bytes.store(self.journal.buffered_bytes(), Ordering::Relaxed);
        self.shared.written.store(status.progress.written, Ordering::Release);
        self.shared.durable.store(status.progress.durable, Ordering::Release);
        *lock(&self.shared.status) = status.clone();
        let has_changed = before != status.progress
            || had_failed != status.failure.is_some()
            || installations_before != status.installations;
        if has_changed {
            (self.on_change)(status);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
