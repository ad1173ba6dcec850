//! The reading side of a page pool.

use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::page_pool::layout::{self, HEADER_LEN};
use crate::page_pool::page::{RefKind, RegionRef};
use crate::page_pool::pool_mapping::PoolMapping;
use crate::page_pool::{Page, PageLocation};
use crate::segment::path_of;
use crate::sync::Ordering;
use crate::{AttachError, SegmentLost, lock};

/// Reads pages of another process's pool.
#[derive(Clone, Debug)]
pub struct PageReader(Arc<PoolMapping>);

impl PageReader {
    /// Attaches to the pool of this name as reader `number`: at least 1, and different from the
    /// number of every other reader.
    ///
    /// # Errors
    /// [`AttachError`]: there is no such pool, or the kernel refuses.
    pub fn open(name: &str, number: u32) -> Result<Self, AttachError> {
        let what = "open the page pool";
        let path = path_of(name)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(&path).map_err(AttachError::io(what))?;
        let about = file.metadata().map_err(AttachError::io(what))?;
        if about.uid() != lock::effective_uid() {
            let path = path.display().to_string();
            return Err(AttachError::Foreign { path, owner: about.uid() });
        }
        if about.len() < HEADER_LEN as u64 {
            return Err(SegmentLost { path }.into());
        }
        let header = Mapping::new(&file, HEADER_LEN).map_err(AttachError::io(what))?;
        let magic = header.word(layout::MAGIC_AT).load(Ordering::Acquire);
        if magic != layout::MAGIC {
            return Err(AttachError::Layout { version: magic });
        }
        if !lock::lock_process(&file, number as usize)
            .map_err(AttachError::io("claim a process id"))?
        {
            return Err(AttachError::Taken { process: number, pid: 0 });
        }
        Ok(Self(Arc::new(PoolMapping::new(file, path, header))))
    }

    /// Why no page is returned any more, if that is so: another process has shortened the file. It
    /// is noticed when a missing part of the file is read.
    pub fn loss(&self) -> Option<SegmentLost> {
        self.0.loss()
    }

    /// Returns the page of the given length at a location. `None` when the region has been reused
    /// or never existed, or when another process has shortened the file. Of a page that was
    /// returned before, [`Page::is_lost`] says so.
    pub fn page(&self, location: PageLocation, bytes: usize) -> Option<Page> {
        if bytes as u64 > location.capacity {
            return None;
        }
        let claim = layout::claim(self.0.header(), location.region as usize);
        if !claim.take(location.generation) {
            return None;
        }
        let Some(mapping) = self.0.map(location) else {
            claim.release();
            return None;
        };
        Some(Page::new(
            RegionRef { mapping, location, kind: RefKind::Reader(Arc::clone(&self.0)) },
            bytes,
        ))
    }
}
