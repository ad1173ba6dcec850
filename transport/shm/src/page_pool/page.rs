//! Pages of a pool: mutable while they are written, frozen from then on.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::page_pool::PageLocation;
use crate::page_pool::pool_mapping::PoolMapping;
use crate::page_pool::regions::Owner;
use crate::sync::{Ordering, fence};

/// A page that its owner is writing. Invisible to other processes.
#[derive(Debug)]
pub struct PageMut {
    region_ref: RegionRef,
    bytes: usize,
}

/// A region in use by this process; dropping it ends the use.
#[derive(Debug)]
pub(super) struct RegionRef {
    pub mapping: Arc<Mapping>,
    pub location: PageLocation,
    pub kind: RefKind,
}

/// The side that uses a region.
#[derive(Debug)]
pub(super) enum RefKind {
    Owner(Arc<Owner>),
    Reader(Arc<PoolMapping>),
}

impl Drop for RegionRef {
    fn drop(&mut self) {
        match &self.kind {
            RefKind::Owner(owner) => owner.free(self.location.region),
            RefKind::Reader(pool) => pool.release(self.location),
        }
    }
}

impl PageMut {
    pub(super) fn take(owner: &Arc<Owner>, bytes: usize) -> Option<Self> {
        let (location, mapping) = owner.take(bytes)?;
        let kind = RefKind::Owner(Arc::clone(owner));
        Some(Self { region_ref: RegionRef { mapping, location, kind }, bytes })
    }

    /// Ends writing: the page may be read by others.
    pub fn freeze(self) -> Page {
        Page { region_ref: Arc::new(self.region_ref), bytes: self.bytes }
    }
}

impl Deref for PageMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the region is exclusively this page's: the owner only hands out free regions, in
        // a generation that no reader knows, so no other process accesses it before `freeze`.
        unsafe { self.region_ref.mapping.read(0, self.bytes) }
    }
}

impl DerefMut for PageMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { self.region_ref.mapping.bytes_mut(0, self.bytes) }
    }
}

/// A read-only page of a pool. Clones share the page.
#[derive(Clone)]
pub struct Page {
    region_ref: Arc<RegionRef>,
    bytes: usize,
}

impl Page {
    pub(super) fn new(region_ref: RegionRef, bytes: usize) -> Self {
        Self { region_ref: Arc::new(region_ref), bytes }
    }

    /// The location of the page, to be sent to readers.
    pub fn location(&self) -> PageLocation {
        self.region_ref.location
    }

    /// Whether the page reads as zeros from now on, because another process has shortened the file
    /// of the pool. What was read before a call that returns false is what the owner has written.
    pub fn is_lost(&self) -> bool {
        fence(Ordering::Acquire);
        self.region_ref.mapping.is_lost()
    }

    /// Shortens the page to the first bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: no process writes to the region as long as this reference exists. If this process
        // owns it: the region is not free, so it is not allocated again. If this process reads it:
        // its claim was taken on the generation of this page's location, so the owner, whose
        // `renew` sees the claim, does not allocate it. (Other processes run this code: see the
        // module.)
        unsafe { self.region_ref.mapping.read(0, self.bytes) }
    }
}

impl PartialEq for Page {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Page {}

impl Hash for Page {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page")
            .field("location", &self.region_ref.location)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
