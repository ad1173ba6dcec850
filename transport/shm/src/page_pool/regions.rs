//! The owning side of a page pool: allocation of regions.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mapping::{Access, Mapping};
use crate::page_pool::PageLocation;
use crate::page_pool::layout::{self, HEADER_LEN, PAGE_BYTES, REGIONS_MAX};
use crate::segment::{open_locked, path_of};
use crate::sync::Ordering;
use crate::{AttachError, SegmentLost, lock, memory};

/// Maximum number of free regions that keep their memory. Beyond that, the smallest ones return
/// theirs to the system.
const FREE_MAX: usize = 8;

/// The file of a pool and its regions.
#[derive(Debug)]
pub(super) struct Owner {
    file: File,
    path: PathBuf,
    header: Mapping,
    regions: Mutex<Regions>,
}

#[derive(Debug)]
struct Regions {
    all: Vec<Region>,
    /// Length of the file, where the next region is appended.
    end: u64,
    has_name: bool,
    /// Another process has shortened the file.
    is_lost: bool,
}

#[derive(Debug)]
struct Region {
    at: u64,
    /// `None` once the memory has returned to the system: then the index may be reused.
    mapping: Option<Arc<Mapping>>,
    is_free: bool,
}

impl Owner {
    pub(super) fn create(name: &str) -> Result<Self, AttachError> {
        let what = "create the page pool";
        let path = path_of(name)?;
        let file = open_locked(&path, lock::SETUP_WAIT)?;
        if lock::has_live_process(&file).map_err(AttachError::io("check for live processes"))? {
            return Err(AttachError::Taken { process: 0, pid: 0 });
        }
        // Contents left by a crash are dropped: everything starts as zeros.
        file.set_len(0).map_err(AttachError::io(what))?;
        file.set_len(HEADER_LEN as u64).map_err(AttachError::io(what))?;
        memory::preallocate(&file, (0, HEADER_LEN)).map_err(AttachError::io("allocate memory"))?;
        let header = Mapping::new(&file, HEADER_LEN).map_err(AttachError::io(what))?;
        lock::lock_process(&file, 0).map_err(AttachError::io("claim a process id"))?;
        header.word(layout::MAGIC_AT).store(layout::MAGIC, Ordering::Release);
        lock::unlock_setup(&file).map_err(AttachError::io("unlock the page pool"))?;
        let regions =
            Regions { all: Vec::new(), end: HEADER_LEN as u64, has_name: true, is_lost: false };
        Ok(Self { file, path, header, regions: Mutex::new(regions) })
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        // A thread that panicked while holding the lock changed one region at a time.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn unlink(&self) -> io::Result<()> {
        match std::mem::replace(&mut self.regions().has_name, false) {
            true => std::fs::remove_file(&self.path),
            false => Ok(()),
        }
    }

    /// Why no region is allocated any more, if that is so.
    pub(super) fn loss(&self) -> Option<SegmentLost> {
        let is_lost = self.is_lost(&self.regions());
        is_lost.then(|| SegmentLost { path: self.path.clone() })
    }

    fn is_lost(&self, regions: &Regions) -> bool {
        let is_region_lost =
            |region: &Region| region.mapping.as_ref().is_some_and(|mapping| mapping.is_lost());
        regions.is_lost || layout::is_lost(&self.header) || regions.all.iter().any(is_region_lost)
    }

    //= spec/ordering.md#R84
    /// Allocates a region of at least the given size.
    pub(super) fn take(&self, bytes: usize) -> Option<(PageLocation, Arc<Mapping>)> {
        let capacity = bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let mut regions = self.regions();
        if self.is_lost(&regions) {
            return None;
        }
        self.take_free(&mut regions, capacity).or_else(|| self.append(&mut regions, capacity))
    }

    /// Takes the smallest free region that is large enough and not read any more.
    fn take_free(
        &self,
        regions: &mut Regions,
        capacity: usize,
    ) -> Option<(PageLocation, Arc<Mapping>)> {
        let fits = |region: &Region| region.is_free && region.bytes() >= capacity;
        let mut free: Vec<usize> =
            (0..regions.all.len()).filter(|index| fits(&regions.all[*index])).collect();
        // A new region must be mapped and faulted in by every reader, which costs more than a copy
        // of the bytes. So any free region that is not read will do, however large it is.
        free.sort_by_key(|index| regions.all[*index].bytes());
        for index in free {
            let Some(generation) = layout::claim(&self.header, index).renew() else { continue };
            let region = &mut regions.all[index];
            region.is_free = false;
            let mapping = region.mapping.clone()?;
            let capacity = mapping.bytes() as u64;
            let location =
                PageLocation { region: index as u64, generation, at: region.at, capacity };
            return Some((location, mapping));
        }
        None
    }

    /// Appends a new region.
    fn append(
        &self,
        regions: &mut Regions,
        capacity: usize,
    ) -> Option<(PageLocation, Arc<Mapping>)> {
        if self.file.metadata().ok()?.len() != regions.end {
            // Extended again, the file would have zeros where others read pages.
            regions.is_lost = true;
            return None;
        }
        self.trim_free(regions);
        let vacant = regions.all.iter().position(|region| region.mapping.is_none());
        let index = vacant.unwrap_or(regions.all.len());
        if index >= REGIONS_MAX {
            return None;
        }
        let generation = layout::claim(&self.header, index).renew()?;
        let (at, end) = (regions.end, regions.end.checked_add(capacity as u64)?);
        self.file.set_len(end).ok()?;
        let part = (usize::try_from(at).ok()?, capacity);
        let mapping = memory::preallocate(&self.file, part)
            .and_then(|()| Mapping::part(&self.file, at, capacity, Access::Write));
        let Ok(mapping) = mapping else {
            // Nothing was allocated: restore the length of the file.
            let _ = self.file.set_len(at);
            return None;
        };
        regions.end = end;
        let mapping = Arc::new(mapping);
        let region = Region { at, mapping: Some(Arc::clone(&mapping)), is_free: false };
        match vacant {
            Some(vacant) => regions.all[vacant] = region,
            None => regions.all.push(region),
        }
        let location =
            PageLocation { region: index as u64, generation, at, capacity: capacity as u64 };
        Some((location, mapping))
    }

    /// Returns the memory of the smallest free regions to the system while there are too many.
    fn trim_free(&self, regions: &mut Regions) {
        loop {
            let is_free = |index: &usize| regions.all[*index].is_free;
            let free: Vec<usize> = (0..regions.all.len()).filter(is_free).collect();
            let smallest = free.iter().copied().min_by_key(|index| regions.all[*index].bytes());
            let Some(index) = smallest.filter(|_| free.len() >= FREE_MAX) else { return };
            let region = &mut regions.all[index];
            region.is_free = false;
            if layout::claim(&self.header, index).renew().is_none() {
                // A reader holds it and may do so for long: it is never allocated again.
                continue;
            }
            let bytes = region.bytes();
            region.mapping = None;
            // If the system does not take it back, the memory stays allocated until the end.
            let _ = memory::punch_hole(&self.file, (region.at as usize, bytes));
        }
    }

    /// Marks a region as no longer used by this process.
    pub(super) fn free(&self, region: u64) {
        self.regions().all[region as usize].is_free = true;
    }
}

impl Region {
    fn bytes(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| mapping.bytes())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The name may be gone already.
        let _ = self.unlink();
    }
}
