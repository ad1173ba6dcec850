//! What a journal needs of a disk: a flat directory of files.

use std::io;
use std::path::PathBuf;

/// A flat directory of files. [`Directory`](crate::Directory) is the file system,
/// [`MemoryDisk`](crate::MemoryDisk) a simulated one that can crash.
pub trait Disk: Clone + Send + 'static {
    /// An open file.
    type File: DiskFile;

    /// Returns the names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates the file `name`, or makes an existing one empty. The name survives a crash after
    /// [`Disk::sync_directory`].
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens the existing file `name` for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Returns the bytes of the file `name`.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Renames a file at once. An existing file `to` is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes the file `name`.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes the file `name`, whose space may become free a little later.
    fn remove_later(&self, name: &str) -> io::Result<()> {
        self.remove(name)
    }

    /// Waits until creations, renames and removals survive a crash.
    fn sync_directory(&self) -> io::Result<()>;

    /// Returns the path of the file `name`, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + 'static {
    /// Writes all `bytes` at `offset`, which is at most the length of the file. After an error any
    /// part may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `bytes` with the bytes from `offset` on; an error if the file ends before.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Cuts the file to `len` bytes, or lengthens it to them with zeros.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Waits until the bytes and the length of the file survive a crash.
    fn sync_data(&mut self) -> io::Result<()>;
}
