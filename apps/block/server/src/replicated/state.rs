//! The state machine of a replica: an image that applies the entries of the log.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onepipe::ProcessId;
use onepipe_block_replica::{Change, Checkpointer, Image, ImageError, ImageOptions, ImageReader};
use onepipe_journal::{Directory, OpenError};
use onepipe_log::{Entry, Part, PartRequest, State};

use super::reads::{Access, Reads};

/// Least time between two checkpoints of an image. Their synchronisations compete with those of the
/// logs, and a log that is longer by this time of writes costs little.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Why the image of a replica cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// The image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The system has no thread left.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// Bytes of changes after which a checkpoint does not wait for the interval.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// Bytes of changes after which the system is made to write them. A synchronisation of the log
/// waits for what the disk has to write before it, so a checkpoint must not have all at once. Of
/// 16 KiB to 4 MiB, smaller steps cost the median and larger ones the 99th percentile: with 16
/// writes in flight, 64 KiB gave 2.2 to 3.4 ms, 256 KiB 3.6 to 5.1 ms, and 1 MiB 8.2 ms.
const WRITE_OUT_BYTES: u64 = 64 << 10;

/// What the thread that makes an image durable does.
enum Request {
    /// Writes what was changed.
    WriteOut,
    /// Makes a position durable. The bytes are those of all changes that were applied so far.
    Checkpoint { position: u64, bytes: u64 },
}

/// The image of a replica, with what makes it durable.
pub struct ReplicaState {
    replica: usize,
    directory: PathBuf,
    image: Image<Directory>,
    reader: ImageReader<std::fs::File>,
    reads: Arc<Reads>,
    /// What is to be made durable; the thread takes the last request of each kind.
    checkpoints: Option<Sender<Request>>,
    /// Bytes of the changes that were applied or copied.
    applied_bytes: u64,
    /// How many of them there were when they were last written out.
    written_bytes: u64,
    thread: Option<JoinHandle<()>>,
    durable: Arc<Durable>,
    failure: Option<String>,
}

/// What the thread that makes an image durable reports.
#[derive(Default)]
struct Durable {
    position: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Durable {
    fn fail(&self, message: String) {
        tracing::error!("{message}");
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    }
}

impl ReplicaState {
    /// Opens the image of a replica in a directory, or creates it. Reads may use it from then on.
    pub fn open(
        directory: &Path,
        options: ImageOptions,
        (replica, reads): (usize, Arc<Reads>),
    ) -> Result<ReplicaState, StateError> {
        let image = Image::open(&Directory::open(directory)?, options)?;
        let access = Access { reader: image.reader()?, writer: Mutex::new(image.writer()?) };
        let (reader, checkpointer) = (image.reader()?, image.checkpointer()?);
        let durable = Arc::new(Durable::default());
        durable.position.store(image.applied(), Ordering::Release);
        let (checkpoints, requests) = channel();
        let (of_thread, reads_of_thread) = (Arc::clone(&durable), Arc::clone(&reads));
        let path = directory.to_path_buf();
        let thread = thread::Builder::new().name("block-sync".into());
        let thread = thread
            .spawn(move || {
                let report = (&*of_thread, &*reads_of_thread, replica);
                if let Err(error) = make_durable(checkpointer, &requests, report) {
                    of_thread.fail(describe("make durable", &path, &error));
                }
            })
            .map_err(StateError::Thread)?;
        reads.add(replica, access);
        let (checkpoints, thread) = (Some(checkpoints), Some(thread));
        Ok(ReplicaState {
            replica,
            directory: directory.to_path_buf(),
            image,
            reader,
            reads,
            checkpoints,
            applied_bytes: 0,
            written_bytes: 0,
            thread,
            durable,
            failure: None,
        })
    }

    /// Counts the bytes of a change.
    fn on_changed(&mut self, len: usize) {
        self.applied_bytes += len as u64;
        if self.applied_bytes - self.written_bytes >= WRITE_OUT_BYTES {
            self.written_bytes = self.applied_bytes;
            self.request(Request::WriteOut);
        }
    }

    fn request(&self, request: Request) {
        if let Some(checkpoints) = &self.checkpoints {
            // The thread has ended only after a failure, which it has reported.
            let _ = checkpoints.send(request);
        }
    }

    fn fail(&mut self, action: &str, error: &std::io::Error) {
        let message = describe(action, &self.directory, error);
        tracing::error!(replica = self.replica, "{message}");
        self.failure.get_or_insert(message);
    }
}

/// Returns what has failed, where, and what to do.
fn describe(action: &str, directory: &Path, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "nothing is lost: free space on this disk, then start the replica again; it gets from \
             the others what it lacks"
        }
        _ => "check the disk, then start the replica again, or replace it",
    };
    format!("cannot {action} the image in {}: {error}: {advice}", directory.display())
}

/// Makes an image durable up to a position that is asked for, or a later one, at most once in each
/// interval, until no more requests can come.
fn make_durable(
    mut checkpointer: Checkpointer<std::fs::File>,
    requests: &Receiver<Request>,
    (durable, reads, replica): (&Durable, &Reads, usize),
) -> std::io::Result<()> {
    let (mut next, mut due, mut bytes_before) = (None, Instant::now(), 0);
    loop {
        let received = match next {
            Some(_) => requests.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if matches!(received, Err(RecvTimeoutError::Disconnected)) {
            return Ok(());
        }
        let mut is_writing_out = false;
        for request in received.into_iter().chain(requests.try_iter()) {
            match request {
                Request::WriteOut => is_writing_out = true,
                Request::Checkpoint { position, bytes } => next = Some((position, bytes)),
            }
        }
        let is_due = |(_, bytes): &mut (u64, u64)| {
            Instant::now() >= due || *bytes - bytes_before >= CHECKPOINT_BYTES
        };
        match next.take_if(is_due) {
            Some((position, bytes)) => {
                bytes_before = bytes;
                checkpoint(&mut checkpointer, position, (durable, reads, replica))?;
                due = Instant::now() + CHECKPOINT_INTERVAL;
            }
            None if is_writing_out => checkpointer.write_out()?,
            None => {}
        }
    }
}

/// Makes an image durable up to a position, and reports that.
fn checkpoint(
    checkpointer: &mut Checkpointer<std::fs::File>,
    position: u64,
    (durable, reads, replica): (&Durable, &Reads, usize),
) -> std::io::Result<()> {
    // A copy of another replica may be as of a lower position than what was applied before.
    if position > checkpointer.durable() {
        checkpointer.run(position)?;
        durable.position.store(position, Ordering::Release);
        reads.set_durable(replica, position);
    }
    Ok(())
}

impl State for ReplicaState {
    fn apply(&mut self, index: u64, entry: &Entry) {
        if self.failure.is_some() {
            return;
        }
        let position = index + 1;
        match Change::parse(&entry.payload, self.image.blocks()) {
            Ok(change) => {
                if let Err(error) = self.image.apply(position, &change) {
                    return self.fail("change", &error);
                }
                self.on_changed(entry.payload.len());
            }
            // Every replica finds the same, and changes nothing. An empty entry is no fault.
            Err(error) => {
                if !entry.payload.is_empty() {
                    tracing::error!(%error, index, "an entry of the log was skipped");
                }
                self.image.skip(position);
            }
        }
        self.reads.set_applied(self.replica, Some(position));
    }

    fn begin_sync(&mut self) {
        let (position, bytes) = (self.image.applied(), self.applied_bytes);
        self.request(Request::Checkpoint { position, bytes });
    }

    fn durable_len(&self) -> u64 {
        self.durable.position.load(Ordering::Acquire)
    }

    fn read_part(&mut self, request: &PartRequest) -> Option<Part> {
        let PartRequest { since, cursor, bytes_max, .. } = *request;
        if cursor >= self.image.blocks() {
            return None;
        }
        let as_of = self.image.applied();
        match self.reader.stale(since, cursor, bytes_max) {
            Ok(stale) => {
                let mut bytes = as_of.to_be_bytes().to_vec();
                bytes.extend(stale.bytes);
                Some(Part { len: as_of, next: stale.next, bytes })
            }
            Err(error) => {
                self.fail("read", &error);
                None
            }
        }
    }

    fn install_part(&mut self, _: u64, _: u64, bytes: &[u8]) {
        // Blocks are as of different moments from here on, so no read is answered.
        self.reads.set_applied(self.replica, None);
        self.on_changed(bytes.len());
        let installed = match bytes.split_first_chunk() {
            Some((as_of, copies)) => self.image.install(u64::from_be_bytes(*as_of), copies),
            None => Err(std::io::ErrorKind::InvalidData.into()),
        };
        let blocks = installed.as_ref().map_or(0, |one| one.written + one.damaged + one.outdated);
        self.reads.count_part(self.replica, blocks);
        match installed {
            Ok(copied) if copied.damaged > 0 => tracing::error!(
                replica = self.replica,
                blocks = copied.damaged,
                "blocks are damaged in the replica that they were copied from: scrub the device"
            ),
            Ok(_) => {}
            Err(error) => self.fail("copy blocks to", &error),
        }
    }

    fn finish_install(&mut self, len: u64) {
        self.image.finish_copy(len);
        self.reads.set_applied(self.replica, Some(len));
        self.begin_sync();
    }

    fn on_message(&mut self, from: ProcessId, payload: &[u8]) {
        self.reads.repairer().on_message(from, payload);
    }

    fn failure(&self) -> Option<String> {
        let of_thread = self.durable.failure.lock().unwrap_or_else(PoisonError::into_inner);
        self.failure.clone().or_else(|| of_thread.clone())
    }
}

impl Drop for ReplicaState {
    fn drop(&mut self) {
        self.reads.remove(self.replica);
        // The thread has the files, which another program may open from here on.
        self.checkpoints = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that makes an image durable has panicked");
        }
    }
}
