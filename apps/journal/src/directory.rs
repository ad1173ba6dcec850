//! The file system as a disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::OpenError;

/// Name of the file whose lock the process holds that uses the directory.
pub const LOCK_NAME: &str = "lock";

/// A directory that this process alone uses. The lock is released when the last clone is dropped,
/// or when the process ends, however it ends.
#[derive(Clone, Debug)]
pub struct Directory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// The directory itself, for `fsync`.
    handle: File,
    /// Holds the lock.
    _lock: File,
}

impl Directory {
    /// Creates the directory at `path` if it does not exist, and locks it.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if another process, or another journal of this one, has the lock;
    /// [`OpenError::Io`] if the system returns an error.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let path = path.into();
        let failed = |source| OpenError::Io { path: path.clone(), source };
        create_durably(&path).map_err(failed)?;
        let handle = File::open(&path).map_err(failed)?;
        let lock = lock(&path.join(LOCK_NAME))?;
        Ok(Self { inner: Arc::new(Inner { path, handle, _lock: lock }) })
    }
}

/// Creates `path` and its parents. The entry of each new directory is made durable in its parent.
fn create_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_durably(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { path: path.to_path_buf(), source };
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(false).write(true).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(path).unwrap_or_default();
            let holder = holder.trim().parse().ok();
            return Err(OpenError::Locked { path: path.to_path_buf(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // The process id only helps messages: a full disk must not keep the journal from opening.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

impl Disk for Directory {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.inner.path)?;
        let mut listed = Vec::new();
        for entry in names {
            // No name of a journal's file has other characters than ASCII.
            listed.extend(entry?.file_name().into_string());
        }
        Ok(listed)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).read(true).write(true).open(self.path(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path(name))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    /// Frees the space in another thread, as its handle is the last one. That takes tens of
    /// milliseconds for a segment, in which the thread of the journal would write nothing.
    fn remove_later(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let file = File::open(&path)?;
        fs::remove_file(path)?;
        // Without a thread the file is closed here.
        let _ = std::thread::Builder::new().name("journal-free".into()).spawn(move || drop(file));
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.inner.handle.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.inner.path.join(name)
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }
}
