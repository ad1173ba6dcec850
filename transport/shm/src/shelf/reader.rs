//! The side of those who read.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, PoisonError};

use crate::mapping::{Access, Mapping};
use crate::segment::path_of;
use crate::shelf::layout::{self, HEADER_LEN};
use crate::shelf::page::{By, Hold};
use crate::shelf::{Page, Place};
use crate::sync::Ordering;
use crate::{AttachError, lock};

/// Regions that are kept mapped: as many as an owner keeps free, and some that are read.
const MAPPED_MAX: usize = 16;

/// Reads on the shelf of another process.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Visit>);

#[derive(Debug)]
pub(super) struct Visit {
    file: File,
    header: Mapping,
    /// By where they begin in the file, the last used at the end. Their place and size never
    /// change: a region that is gone leaves a hole.
    mapped: Mutex<Vec<(u64, Arc<Mapping>)>>,
}

impl Reader {
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
        if about.uid() != lock::user() {
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
        if !lock::take(&file, number as usize).map_err(AttachError::io("take a place"))? {
            return Err(AttachError::Taken { process: number, pid: 0 });
        }
        Ok(Self(Arc::new(Visit { file, header, mapped: Mutex::default() })))
    }

    /// The page at a place, with so many bytes. `None` when it is there no more, or never was.
    pub fn page(&self, place: Place, bytes: usize) -> Option<Page> {
        if bytes as u64 > place.capacity {
            return None;
        }
        let claim = layout::claim(&self.0.header, place.region as usize);
        if !claim.take(place.generation) {
            return None;
        }
        let Some(mapping) = self.0.map(place) else {
            claim.release();
            return None;
        };
        Some(Page::new(Hold { mapping, place, by: By::Reader(Arc::clone(&self.0)) }, bytes))
    }
}

impl Visit {
    fn map(&self, place: Place) -> Option<Arc<Mapping>> {
        // Whoever panicked with it had changed one entry at a time.
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mapped
            .iter()
            .position(|(at, mapping)| (*at, mapping.bytes() as u64) == (place.at, place.capacity));
        let entry = match known {
            Some(known) => mapped.remove(known),
            None => {
                // Behind the end of the file there is nothing that could be read.
                let end = self.file.metadata().ok()?.len();
                if place.at + place.capacity > end {
                    return None;
                }
                let bytes = usize::try_from(place.capacity).ok()?;
                let mapping = Mapping::part(&self.file, place.at, bytes, Access::Read).ok()?;
                if mapped.len() >= MAPPED_MAX {
                    mapped.remove(0);
                }
                (place.at, Arc::new(mapping))
            }
        };
        let mapping = Arc::clone(&entry.1);
        mapped.push(entry);
        Some(mapping)
    }

    pub(super) fn release(&self, place: Place) {
        layout::claim(&self.header, place.region as usize).release();
    }
}
