//! The reading side of a page pool.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, PoisonError};

use crate::mapping::{Access, Mapping};
use crate::page_pool::layout::{self, HEADER_LEN};
use crate::page_pool::page::{RefKind, RegionRef};
use crate::page_pool::{Page, PageLocation};
use crate::segment::path_of;
use crate::sync::Ordering;
use crate::{AttachError, lock};

/// Maximum number of mapped regions: as many as an owner keeps free, and some that are read.
const MAPPED_MAX: usize = 16;

/// Reads pages of another process's pool.
#[derive(Clone, Debug)]
pub struct PageReader(Arc<PoolMapping>);

#[derive(Debug)]
pub(super) struct PoolMapping {
    file: File,
    header: Mapping,
    /// Mappings by offset in the file, most recently used last. The offset and size of a region
    /// never change: a removed region leaves a hole.
    mapped: Mutex<Vec<(u64, Arc<Mapping>)>>,
}

impl PageReader {
    /// Attaches to the pool of this name under a `number` from 1 on that no other reader has.
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
            return Err(AttachError::Layout { version: 0 });
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
        Ok(Self(Arc::new(PoolMapping { file, header, mapped: Mutex::default() })))
    }

    /// Returns the page of the given length at a location. `None` when the region has been reused
    /// or never existed.
    pub fn page(&self, location: PageLocation, bytes: usize) -> Option<Page> {
        if bytes as u64 > location.capacity {
            return None;
        }
        let claim = layout::claim(&self.0.header, location.region as usize);
        if !claim.take(location.generation) {
            return None;
        }
        let Some(mapping) = self.0.map(location) else {
            claim.release();
            return None;
        };
        Some(Page::new(
            RegionRef { mapping, location, kind: RefKind::PageReader(Arc::clone(&self.0)) },
            bytes,
        ))
    }
}

impl PoolMapping {
    fn map(&self, location: PageLocation) -> Option<Arc<Mapping>> {
        // A thread that panicked while holding the lock changed one entry at a time.
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mapped.iter().position(|(at, mapping)| {
            (*at, mapping.bytes() as u64) == (location.at, location.capacity)
        });
        let entry = match known {
            Some(known) => mapped.remove(known),
            None => {
                // A location beyond the end of the file is invalid.
                let end = self.file.metadata().ok()?.len();
                if location.at + location.capacity > end {
                    return None;
                }
                let bytes = usize::try_from(location.capacity).ok()?;
                let mapping = Mapping::part(&self.file, location.at, bytes, Access::Read).ok()?;
                if mapped.len() >= MAPPED_MAX {
                    mapped.remove(0);
                }
                (location.at, Arc::new(mapping))
            }
        };
        let mapping = Arc::clone(&entry.1);
        mapped.push(entry);
        Some(mapping)
    }

    pub(super) fn release(&self, location: PageLocation) {
        layout::claim(&self.header, location.region as usize).release();
    }
}
