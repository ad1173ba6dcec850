//! A device in a file of this machine.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onepipe_block::{BlockSizes, Command, ErrorCode, Failure, Outcome, Range};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;

use crate::blocks::{Blocks, Completion, Reply};
use crate::extents::extents;
use crate::sync_group::{SyncError, SyncGroup};
use crate::workers::Workers;

/// Unit in which zeroes are written where the file system cannot make them.
const ZEROES: &[u8] = &[0; 64 << 10];

/// How to open a file.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Size of the device in bytes. A new file needs it; an existing file must have it.
    pub size: Option<u64>,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Threads that read and write, which bounds the depth of the disk's queue. Default 8.
    pub threads: usize,
    /// Units of requests.
    pub block_sizes: BlockSizes,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            size: None,
            is_read_only: false,
            threads: 8,
            block_sizes: BlockSizes::default(),
        }
    }
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses.
    #[error("cannot {action} {}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A new device has no size.
    #[error("{} does not exist: give the size of a new device", .0.display())]
    NoSize(PathBuf),
    /// The device exists and has another size.
    #[error(
        "{} has {found} bytes, not {wanted}: a device cannot be resized; give its size or none, or \
         choose another file",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size that was given.
        wanted: u64,
    },
    /// The path names something else.
    #[error("{} is not a regular file: choose another path", .0.display())]
    NotAFile(PathBuf),
    /// Another program serves the file.
    #[error("{} is used by another server: stop that server, or choose another file", .0.display())]
    InUse(PathBuf),
}

/// A device in a file. One program at a time has it open.
///
/// All connections share the page cache of the file, and a flush synchronises the whole file: so a
/// flush on one connection covers the writes of all.
pub struct FileBlocks {
    disk: Arc<Disk>,
    workers: Workers,
    size: u64,
    options: FileOptions,
}

struct Disk {
    file: File,
    syncs: SyncGroup,
}

impl FileBlocks {
    /// Opens a device, or creates it.
    ///
    /// # Errors
    /// If the file has another size, is in use, or the system refuses.
    pub fn open(path: &Path, options: FileOptions) -> Result<FileBlocks, FileError> {
        let system =
            |action| move |source| FileError::System { action, path: path.to_path_buf(), source };
        let is_new = !path.try_exists().map_err(system("find"))?;
        if is_new && (options.size.is_none() || options.is_read_only) {
            return Err(FileError::NoSize(path.to_path_buf()));
        }
        if !is_new && !path.metadata().map_err(system("read"))?.is_file() {
            return Err(FileError::NotAFile(path.to_path_buf()));
        }
        let can_write = !options.is_read_only;
        let file = OpenOptions::new().read(true).write(can_write).create(is_new).open(path);
        let file = file.map_err(system("open"))?;
        // Readers share the file with each other, and a writer has it alone.
        let locked = if can_write { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FileError::InUse(path.to_path_buf())),
            Err(TryLockError::Error(source)) => return Err(system("lock")(source)),
        }
        let mut size = file.metadata().map_err(system("read"))?.len();
        match options.size {
            // A program that was killed while it created the device leaves an empty file.
            Some(wanted) if size == 0 && can_write => {
                create(&file, path, wanted).map_err(system("create"))?;
                size = wanted;
            }
            Some(wanted) if wanted != size => {
                return Err(FileError::Size { path: path.to_path_buf(), found: size, wanted });
            }
            _ => {}
        }
        let workers = Workers::start(options.threads).map_err(system("start threads for"))?;
        let disk = Arc::new(Disk { file, syncs: SyncGroup::default() });
        Ok(FileBlocks { disk, workers, size, options })
    }
}

/// Gives a new file its size, and makes its name durable.
fn create(file: &File, path: &Path, size: u64) -> io::Result<()> {
    file.set_len(size)?;
    file.sync_all()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

impl Blocks for FileBlocks {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.options.is_read_only
    }

    fn is_flush_shared(&self) -> bool {
        true
    }

    fn knows_allocation(&self) -> bool {
        true
    }

    fn block_sizes(&self) -> BlockSizes {
        self.options.block_sizes
    }

    fn begin(&self, command: Command, completion: Completion) {
        let disk = Arc::clone(&self.disk);
        self.workers.submit(move || completion.complete(disk.execute(command)));
    }
}

impl Disk {
    fn execute(&self, command: Command) -> Reply {
        match command {
            Command::Read(Range { offset, length }) => {
                let mut data = vec![0; length as usize];
                self.file.read_exact_at(&mut data, offset).map_err(|error| failure(&error))?;
                return Ok(Outcome::Data(data));
            }
            Command::Status(range) => {
                let extents = extents(&self.file, range).map_err(|error| failure(&error.into()))?;
                return Ok(Outcome::Extents(extents));
            }
            Command::Cache(Range { offset, length }) => {
                // A hint: without effect, reads are as fast as without.
                let _ = fadvise(
                    &self.file,
                    offset,
                    u64::from(length).try_into().ok(),
                    Advice::WillNeed,
                );
            }
            Command::Flush => self.sync()?,
            Command::Write { offset, data, is_durable } => {
                self.check()?;
                self.file.write_all_at(&data, offset).map_err(|error| failure(&error))?;
                self.sync_if(is_durable)?;
            }
            Command::Trim { range, is_durable } => {
                self.check()?;
                match self.deallocate(range) {
                    // A hint: a file system without holes has nothing to discard.
                    Ok(()) | Err(Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(failure(&error.into())),
                }
                self.sync_if(is_durable)?;
            }
            Command::WriteZeroes { range, is_durable, may_deallocate, must_be_fast } => {
                self.check()?;
                self.write_zeroes(range, may_deallocate, must_be_fast)?;
                self.sync_if(is_durable)?;
            }
        }
        Ok(Outcome::Done)
    }

    fn deallocate(&self, Range { offset, length }: Range) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, offset, u64::from(length))
    }

    fn write_zeroes(
        &self,
        range: Range,
        may_deallocate: bool,
        must_be_fast: bool,
    ) -> Result<(), Failure> {
        let Range { offset, length } = range;
        let zeroed = match may_deallocate {
            true => self.deallocate(range),
            false => fallocate(
                &self.file,
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                offset,
                u64::from(length),
            ),
        };
        match zeroed {
            Err(Errno::OPNOTSUPP) if must_be_fast => Err(Failure::new(
                ErrorCode::NotSupported,
                "the file system writes zeroes as slowly as other data",
            )),
            Err(Errno::OPNOTSUPP) => {
                let mut written = 0;
                while written < u64::from(length) {
                    let count = (u64::from(length) - written).min(ZEROES.len() as u64);
                    let zeroes = &ZEROES[..count as usize];
                    let result = self.file.write_all_at(zeroes, offset + written);
                    result.map_err(|error| failure(&error))?;
                    written += count;
                }
                Ok(())
            }
            other => other.map_err(|error| failure(&error.into())),
        }
    }

    fn sync_if(&self, is_durable: bool) -> Result<(), Failure> {
        if is_durable { self.sync() } else { Ok(()) }
    }

    /// Makes all completed writes durable.
    fn sync(&self) -> Result<(), Failure> {
        self.syncs.sync(|| self.file.sync_data()).map_err(|error| match error {
            SyncError::Now(error) => {
                tracing::error!(%error, "cannot make writes of a block device durable");
                failure(&error)
            }
            SyncError::Earlier => not_durable(),
        })
    }

    /// Refuses writes that could not become durable.
    fn check(&self) -> Result<(), Failure> {
        if self.syncs.has_failed() { Err(not_durable()) } else { Ok(()) }
    }
}

fn not_durable() -> Failure {
    let advice = "writes could not be made durable: check the disk, and start the server again";
    Failure::new(ErrorCode::Io, advice)
}

/// Translates an error of the system (NBD's specification, section "Error values").
fn failure(error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorCode::NoSpace
        }
        _ => ErrorCode::Io,
    };
    Failure::new(code, error.to_string())
}
