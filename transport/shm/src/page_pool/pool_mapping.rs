//! The mapped regions of another process's pool.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::mapping::{Access, Mapping};
use crate::page_pool::PageLocation;
use crate::page_pool::layout;

/// Maximum number of regions that stay mapped: those that the owner keeps free for reuse, and some
/// that hold pages in use.
const MAPPED_MAX: usize = 16;

/// The file of another process's pool, and the regions that are mapped.
#[derive(Debug)]
pub(super) struct PoolMapping {
    file: File,
    header: Mapping,
    /// Mappings by offset in the file, most recently used last. They never become invalid: the
    /// offset and size of a region do not change, and a removed region leaves a hole.
    mapped: Mutex<Vec<(u64, Arc<Mapping>)>>,
}

impl PoolMapping {
    pub(super) fn new(file: File, header: Mapping) -> Self {
        Self { file, header, mapped: Mutex::default() }
    }

    pub(super) fn header(&self) -> &Mapping {
        &self.header
    }

    /// Returns the mapping of the region at `location`, mapped now if it was not. `None` if the
    /// location lies beyond the end of the file, or the kernel refuses.
    pub(super) fn map(&self, location: PageLocation) -> Option<Arc<Mapping>> {
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
