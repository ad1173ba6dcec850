//! The state machine of a replica: an image that applies the entries of the log.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

/// A position to be made durable, and the bytes of all changes that were applied so far.
type Request = (u64, u64);

/// The image of a replica, with what makes it durable.
pub struct ReplicaState {
    replica: usize,
    image: Image<Directory>,
    reader: ImageReader<std::fs::File>,
    reads: Arc<Reads>,
    /// What is to be made durable; the thread takes the last request.
    checkpoints: Option<Sender<Request>>,
    /// Bytes of the changes that were applied.
    applied_bytes: u64,
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
        let thread = thread::Builder::new().name("block-sync".into());
        let thread = thread
            .spawn(move || {
                let report = (&*of_thread, &*reads_of_thread, replica);
                make_durable(checkpointer, &requests, report);
            })
            .map_err(StateError::Thread)?;
        reads.add(replica, access);
        let (checkpoints, thread) = (Some(checkpoints), Some(thread));
        Ok(ReplicaState {
            replica,
            image,
            reader,
            reads,
            checkpoints,
            applied_bytes: 0,
            thread,
            durable,
            failure: None,
        })
    }

    fn fail(&mut self, action: &str, error: &std::io::Error) {
        let message = format!("cannot {action} the image of replica {}: {error}", self.replica);
        tracing::error!("{message}");
        self.failure.get_or_insert(message);
    }
}

/// Makes an image durable up to a position that is asked for, or a later one, at most once in each
/// interval.
fn make_durable(
    mut checkpointer: Checkpointer<std::fs::File>,
    requests: &Receiver<Request>,
    (durable, reads, replica): (&Durable, &Reads, usize),
) {
    let mut next = requests.recv().ok();
    while let Some((position, bytes)) = next.take() {
        // A copy of another replica may be as of a lower position than what was applied before.
        if position > checkpointer.durable() {
            if let Err(error) = checkpointer.run(position) {
                let message = format!("cannot make an image durable: {error}");
                *durable.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
                return;
            }
            durable.position.store(position, Ordering::Release);
            reads.set_durable(replica, position);
        }
        let until = Instant::now() + CHECKPOINT_INTERVAL;
        while next.is_none_or(|(_, later)| later - bytes < CHECKPOINT_BYTES) {
            match requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(request) => next = Some(request),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        next = next.or_else(|| requests.recv().ok());
    }
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
                self.applied_bytes += entry.payload.len() as u64;
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
        if let Some(checkpoints) = &self.checkpoints {
            // The thread has ended only after a failure, which it has reported.
            let _ = checkpoints.send((self.image.applied(), self.applied_bytes));
        }
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
        self.reads.count_part(self.replica);
        let installed = match bytes.split_first_chunk() {
            Some((as_of, copies)) => self.image.install(u64::from_be_bytes(*as_of), copies),
            None => Err(std::io::ErrorKind::InvalidData.into()),
        };
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
