//! Replaces the log of a replica by the state of another replica of its shard.

#[cfg(test)]
mod tests;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::JoinHandle;

use onepipe_journal::{Directory, Journal, JournalError, OpenError, Options};
use onepipe_transaction::Record;

use super::error::StorageError;
use super::exchange::{finish_replacement, previous, rename, replacement};
use super::recovery::append;

/// Bytes of a state that are written between two looks at whether the replica has ended.
const PIECE_LEN: usize = 1 << 20;

/// A thread that stores the state of another replica as the new log of a replica. The old log
/// remains until the new one is durable as a whole. A replacement that is dropped is stopped, and
/// waited for.
pub(crate) struct Replacement {
    thread: Option<JoinHandle<()>>,
    is_cancelled: Arc<AtomicBool>,
    /// `None` when the result was taken.
    finished: Option<Receiver<Result<Journal, StorageError>>>,
    directory: PathBuf,
}

impl Replacement {
    /// Starts to replace the log in `directory` by one with what `contents` returns. The journal of
    /// the old log must have been dropped by then, with its disk: it has the lock, and writes to
    /// paths that become those of the new log. `bell` is called when [`Replacement::take_finished`]
    /// has a result.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        directory: PathBuf,
        options: Options,
        contents: impl FnOnce() -> Result<Contents, StorageError> + Send + 'static,
        bell: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_cancelled);
        let of_task = directory.clone();
        let (sender, finished) = channel();
        let run = move || {
            // Variables are dropped in reverse order, after a panic, too: the channel first.
            let _bell = Bell(Some(bell));
            let sender = sender;
            let result = contents().and_then(|contents| {
                let task = Task { directory: of_task, options, contents };
                task.run(&mut || !of_thread.load(Ordering::Relaxed))
            });
            // A replacement that was dropped needs no result.
            let _ = sender.send(result);
        };
        let thread = std::thread::Builder::new().name("kv-replacement".into()).spawn(run)?;
        Ok(Self { thread: Some(thread), is_cancelled, finished: Some(finished), directory })
    }

    /// Returns the new log once it has replaced the old one, or why it cannot be used; once. After
    /// an error the log in the directory is the old one, or the new one if the system failed when
    /// the old one was renamed. Never waits.
    pub fn take_finished(&mut self) -> Option<Result<Journal, StorageError>> {
        let result = match self.finished.as_ref()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                let (directory, path) = (self.directory.clone(), self.directory.clone());
                let error = io::Error::other("the thread that writes it has panicked");
                Err(StorageError::Replace { directory, bytes: 0, path, error })
            }
        };
        self.finished = None;
        Some(result)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

/// Rings when it is dropped.
struct Bell<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Bell<F> {
    fn drop(&mut self) {
        if let Some(ring) = self.0.take() {
            ring();
        }
    }
}

/// What a new log holds.
pub(crate) struct Contents {
    /// Number of the last record that the image includes.
    pub number: u64,
    /// The state after that record.
    pub image: Vec<u8>,
    /// The records that follow.
    pub records: Vec<Record>,
}

impl Contents {
    /// Returns the contents of a log that begins with an image.
    pub fn of_image(number: u64, image: Vec<u8>) -> Self {
        Self { number, image, records: Vec::new() }
    }
}

/// A log, and what replaces it.
struct Task {
    directory: PathBuf,
    options: Options,
    contents: Contents,
}

impl Task {
    /// Replaces the log, and opens the new one. `proceeds` is asked before each step.
    fn run(self, proceeds: &mut dyn FnMut() -> bool) -> Result<Journal, StorageError> {
        let (directory, options) = (self.directory.clone(), self.options);
        let bytes = self.contents.image.len();
        let replaced = self.replace(proceeds);
        // Paths of the journal that was written are those before the renaming.
        let opened = replaced.and_then(|()| Ok(Journal::open(&directory, options)?.0));
        let (store, name) = divide(&directory);
        if let Err(error) = finish_replacement(store, &name) {
            let error = &error as &dyn Error;
            tracing::warn!(
                error,
                "what a replacement leaves remains until the log is opened again"
            );
        }
        opened.map_err(|error| explain(directory, bytes, error))
    }

    /// Replaces the log. However this ends, [`finish_replacement`] makes the old log as it was, or
    /// the new one, of what is there.
    fn replace(self, proceeds: &mut dyn FnMut() -> bool) -> Result<(), StorageError> {
        let Self { directory, options, contents } = self;
        let Contents { number, image, records } = contents;
        let io = |path: &Path, source| {
            let path = path.into();
            StorageError::Open(OpenError::Io { path, source })
        };
        let mut step = || match proceeds() {
            true => Ok(()),
            false => Err(io(&directory, io::ErrorKind::Interrupted.into())),
        };
        let (store, name) = divide(&directory);
        let (replacement, previous) = (replacement(store, &name), previous(store, &name));
        finish_replacement(store, &name)?;
        // A replacement without a log is taken for whole, so there must be a log meanwhile. Its
        // lock says that no other program uses it.
        let _lock = Directory::open(&directory)?;
        step()?;
        let (mut journal, _) = Journal::open(&replacement, options)?;
        let failed = |error| StorageError::Write { directory: replacement.clone(), error };
        // Before the first write there is nothing that a log could begin with.
        if number > 0 {
            let mut snapshot = journal.begin_snapshot(number).map_err(failed)?;
            for piece in image.chunks(PIECE_LEN) {
                step()?;
                snapshot.append(piece).map_err(failed)?;
            }
            let finished = snapshot.finish().map_err(failed)?;
            journal.install(finished).map_err(failed)?;
        }
        append(&mut journal, &records).map_err(failed)?;
        step()?;
        rename(store, &directory, &previous).map_err(|error| io(&directory, error))?;
        step()?;
        rename(store, &replacement, &directory).map_err(|error| io(&replacement, error))?;
        step()
    }
}

/// Returns the directory of the store, and the name in it of a replica's directory.
fn divide(directory: &Path) -> (&Path, String) {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (directory.parent().unwrap_or(directory), name)
}

/// Names the log that is not replaced by a state of `bytes`, if the system has failed.
fn explain(directory: PathBuf, bytes: usize, error: StorageError) -> StorageError {
    let (path, error) = match error {
        StorageError::Open(OpenError::Io { path, source }) => (path, source),
        StorageError::Write { error: JournalError::Snapshot { path, source, .. }, .. } => {
            (path, io::Error::new(source.kind(), source))
        }
        other => return other,
    };
    StorageError::Replace { directory, bytes, path, error }
}
