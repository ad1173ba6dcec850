//! The files of a replica, and the one that changes them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onepipe_journal::{Disk, DiskFile};

use crate::change::{BLOCK_LEN, Change};
use crate::checkpoint::Checkpointer;
use crate::copy::Copied;
use crate::error::ImageError;
use crate::file::ImageFile;
use crate::header::Header;
use crate::image_reader::ImageReader;
use crate::image_writer::ImageWriter;
use crate::mark::MARK_LEN;
use crate::shared::Shared;

/// Names of the files.
pub(crate) const BLOCKS: &str = "blocks";
pub(crate) const MARKS: &str = "marks";
pub(crate) const HEADER: &str = "header";
/// Name of a header that does not count yet.
const NEW_HEADER: &str = "header-new";

/// What an image is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Identifies the device, so that no directory is taken for another one's.
    pub device: u128,
    /// Number of blocks, which never changes.
    pub blocks: u64,
}

/// The blocks of a device with their marks, on a disk. One thread changes them; others read with an
/// [`ImageReader`] and make them durable with a [`Checkpointer`] meanwhile.
#[derive(Debug)]
pub struct Image<D: Disk> {
    disk: D,
    writer: ImageWriter<D::File>,
    shared: Arc<Shared>,
    header: Header,
}

impl<D: Disk<File: ImageFile>> Image<D> {
    /// Opens the image on `disk`, or creates one of zeroes. The changes behind
    /// [`Image::applied`] are to be applied again.
    ///
    /// # Errors
    /// If the image is of another device or size, its header is damaged, or the system refuses.
    pub fn open(disk: &D, options: ImageOptions) -> Result<Image<D>, ImageError> {
        let header = match disk.open(HEADER) {
            Ok(file) => Header::read(&file).map_err(system(disk, "read", HEADER))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(create(disk, options)?),
            Err(error) => return Err(system(disk, "open", HEADER)(error)),
        };
        let path = disk.path(HEADER);
        let header = header.ok_or_else(|| ImageError::Damaged(path.clone()))?;
        if header.device != options.device {
            return Err(ImageError::OtherDevice(path));
        }
        if header.blocks != options.blocks {
            let (found, wanted) = (header.blocks, options.blocks);
            return Err(ImageError::Size { path, found, wanted });
        }
        let shared = Arc::new(Shared::default());
        shared.applied.store(header.applied, Ordering::Release);
        let reader = open_reader(disk, &shared, header.blocks)?;
        let writer = open_writer(disk, &shared, reader)?;
        Ok(Image { disk: disk.clone(), writer, shared, header })
    }

    /// Returns a reader, for another thread.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn reader(&self) -> Result<ImageReader<D::File>, ImageError> {
        open_reader(&self.disk, &self.shared, self.header.blocks)
    }

    /// Returns what installs copies of blocks, for another thread.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn writer(&self) -> Result<ImageWriter<D::File>, ImageError> {
        open_writer(&self.disk, &self.shared, self.reader()?)
    }

    /// Returns what makes the image durable, for another thread. There is to be only one.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn checkpointer(&self) -> Result<Checkpointer<D::File>, ImageError> {
        let open = |name| self.disk.open(name).map_err(system(&self.disk, "open", name));
        Ok(Checkpointer::new(open(BLOCKS)?, open(MARKS)?, open(HEADER)?, self.header))
    }

    /// Returns the position up to which all changes are applied.
    pub fn applied(&self) -> u64 {
        self.shared.applied.load(Ordering::Acquire)
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.header.blocks
    }

    /// Applies the change at a position of the log. After an error the same change is to be applied
    /// again before the next one.
    ///
    /// # Errors
    /// If the disk is full, or has failed.
    ///
    /// # Panics
    /// If the position was applied before, or the change goes beyond the device.
    pub fn apply(&mut self, position: u64, change: &Change<'_>) -> io::Result<()> {
        assert!(position > self.applied(), "changes are applied in the order of the log");
        let (first, count) = change.range();
        let end = first.checked_add(count);
        assert!(end.is_some_and(|end| end <= self.header.blocks), "a change is within the device");
        let _writing = self.shared.pause_writes();
        self.writer.apply(position, change)?;
        self.shared.applied.store(position, Ordering::Release);
        Ok(())
    }

    /// Notes that an entry of the log changes nothing.
    ///
    /// # Panics
    /// If the position was applied before.
    pub fn skip(&mut self, position: u64) {
        assert!(position > self.applied(), "changes are applied in the order of the log");
        self.shared.applied.store(position, Ordering::Release);
    }

    /// Notes that all blocks are as of a position or later: they were copied from other replicas.
    /// The changes behind it are applied next.
    pub fn finish_copy(&mut self, position: u64) {
        self.shared.applied.store(position, Ordering::Release);
    }

    /// Writes copies of blocks, as [`ImageWriter::install`] does.
    ///
    /// # Errors
    /// As [`ImageWriter::install`].
    pub fn install(&mut self, as_of: u64, bytes: &[u8]) -> io::Result<Copied> {
        self.writer.install(as_of, bytes)
    }
}

fn open_reader<D: Disk<File: ImageFile>>(
    disk: &D,
    shared: &Arc<Shared>,
    blocks: u64,
) -> Result<ImageReader<D::File>, ImageError> {
    let open = |name| disk.open(name).map_err(system(disk, "open", name));
    Ok(ImageReader::new(open(BLOCKS)?, open(MARKS)?, Arc::clone(shared), blocks))
}

fn open_writer<D: Disk<File: ImageFile>>(
    disk: &D,
    shared: &Arc<Shared>,
    reader: ImageReader<D::File>,
) -> Result<ImageWriter<D::File>, ImageError> {
    let open = |name| disk.open(name).map_err(system(disk, "open", name));
    Ok(ImageWriter::new((open(BLOCKS)?, open(MARKS)?), reader, Arc::clone(shared)))
}

/// Returns an error about the file `name`.
pub(crate) fn system<D: Disk>(
    disk: &D,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> ImageError {
    let path = disk.path(name);
    move |source| ImageError::System { action, path, source }
}

/// Creates the files of an image, of which the header comes last.
fn create<D: Disk>(disk: &D, options: ImageOptions) -> Result<Header, ImageError> {
    let ImageOptions { device, blocks } = options;
    let header = Header { device, blocks, sequence: 1, applied: 0 };
    for (name, unit) in [(BLOCKS, BLOCK_LEN), (MARKS, MARK_LEN)] {
        let created = disk.create(name).and_then(|mut file| {
            file.set_len(blocks * unit as u64)?;
            file.sync_data()
        });
        created.map_err(system(disk, "create", name))?;
    }
    let created = disk.create(NEW_HEADER).and_then(|mut file| {
        Header::reserve(&mut file)?;
        header.write(&mut file)?;
        // The names of the other files become durable before that of the header.
        disk.sync_directory()?;
        disk.rename(NEW_HEADER, HEADER)?;
        disk.sync_directory()
    });
    created.map_err(system(disk, "create", HEADER))?;
    Ok(header)
}
