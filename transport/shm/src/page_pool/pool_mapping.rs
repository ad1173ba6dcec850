//! The mapped regions of another process's pool.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::SegmentLost;
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
    path: PathBuf,
    header: Mapping,
    /// Mappings by offset in the file, most recently used last. They do not become invalid unless
    /// the whole pool is lost: the offset and size of a region do not change, and a removed region
    /// leaves a hole.
    mapped: Mutex<Vec<(u64, Arc<Mapping>)>>,
}

impl PoolMapping {
    pub(super) fn new(file: File, path: PathBuf, header: Mapping) -> Self {
        Self { file, path, header, mapped: Mutex::default() }
    }

    /// Why no page can be read any more, if that is so.
    pub(super) fn loss(&self) -> Option<SegmentLost> {
        let is_lost = layout::is_lost(&self.header) || has_lost(&self.mapped());
        is_lost.then(|| SegmentLost { path: self.path.clone() })
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<(u64, Arc<Mapping>)>> {
        // A thread that panicked while holding the lock changed one entry at a time.
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn header(&self) -> &Mapping {
        &self.header
    }

    //= spec/ordering.md#R84
    /// Returns the mapping of the region at `location`, mapped now if it was not. `None` if the
    /// location lies beyond the end of the file, the kernel refuses, or the file was shortened.
    pub(super) fn map(&self, location: PageLocation) -> Option<Arc<Mapping>> {
        let mut mapped = self.mapped();
        if layout::is_lost(&self.header) || has_lost(&mapped) {
            return None;
        }
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

fn has_lost(mapped: &[(u64, Arc<Mapping>)]) -> bool {
    mapped.iter().any(|(_, mapping)| mapping.is_lost())
}
