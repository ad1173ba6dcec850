//! The side of those who read.

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

/// Regions that are kept mapped: as many as an owner keeps free, and some that are read.
const MAPPED_MAX: usize = 16;

/// Reads on the shelf of another process.
#[derive(Clone, Debug)]
pub struct PageReader(Arc<PoolMapping>);

#[derive(Debug)]
pub(super) struct PoolMapping {
    file: File,
    header: Mapping,
    /// By where they begin in the file, the last used at the end. Their place and size never
    /// change: a region that is gone leaves a hole.
    mapped: Mutex<Vec<(u64, Arc<Mapping>)>>,
}

impl PageReader {
    /// Comes to the shelf of this name, as somebody whose `number` no other reader has, from 1 on.
    ///
    /// # Errors
    /// [`AttachError`]: there is no such shelf, or the kernel refuses.
    pub fn open(name: &str, number: u32) -> Result<Self, AttachError> {
        let what = "open the shelf";
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
        if !lock::lock_process(&file, number as usize).map_err(AttachError::io("take a place"))? {
            return Err(AttachError::Taken { process: number, pid: 0 });
        }
        Ok(Self(Arc::new(PoolMapping { file, header, mapped: Mutex::default() })))
    }

    /// The page at a place, with so many bytes. `None` when it is there no more, or never was.
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
        // Whoever panicked with it had changed one entry at a time.
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mapped.iter().position(|(at, mapping)| {
            (*at, mapping.bytes() as u64) == (location.at, location.capacity)
        });
        let entry = match known {
            Some(known) => mapped.remove(known),
            None => {
                // Behind the end of the file there is nothing that could be read.
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
