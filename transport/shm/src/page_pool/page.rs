//! Memory on a shelf: a sheet while it is written, a page from then on.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::page_pool::PageLocation;
use crate::page_pool::reader::PoolMapping;
use crate::page_pool::regions::Owner;

/// Memory of the owner's that is being written. Others cannot see it yet.
#[derive(Debug)]
pub struct PageMut {
    region_ref: RegionRef,
    bytes: usize,
}

/// A region, as long as somebody here uses it.
#[derive(Debug)]
pub(super) struct RegionRef {
    pub mapping: Arc<Mapping>,
    pub location: PageLocation,
    pub kind: RefKind,
}

/// Who uses it.
#[derive(Debug)]
pub(super) enum RefKind {
    Owner(Arc<Owner>),
    PageReader(Arc<PoolMapping>),
}

impl Drop for RegionRef {
    fn drop(&mut self) {
        match &self.kind {
            RefKind::Owner(owner) => owner.free(self.location.region),
            RefKind::PageReader(pool) => pool.release(self.location),
        }
    }
}

impl PageMut {
    pub(super) fn take(owner: &Arc<Owner>, bytes: usize) -> Option<Self> {
        let (location, mapping) = owner.take(bytes)?;
        let kind = RefKind::Owner(Arc::clone(owner));
        Some(Self { region_ref: RegionRef { mapping, location, kind }, bytes })
    }

    /// Nothing more is written: others may read it.
    pub fn freeze(self) -> Page {
        Page { region_ref: Arc::new(self.region_ref), bytes: self.bytes }
    }
}

impl Deref for PageMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the region is this sheet's alone: the owner hands out a free one only, in a
        // generation that no reader was told of, so nobody else touches it before `freeze`.
        unsafe { self.region_ref.mapping.read(0, self.bytes) }
    }
}

impl DerefMut for PageMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the sheet is borrowed mutably.
        unsafe { self.region_ref.mapping.bytes_mut(0, self.bytes) }
    }
}

/// Memory on a shelf that nobody writes any more. Clones are the same page.
#[derive(Clone)]
pub struct Page {
    region_ref: Arc<RegionRef>,
    bytes: usize,
}

impl Page {
    pub(super) fn new(region_ref: RegionRef, bytes: usize) -> Self {
        Self { region_ref: Arc::new(region_ref), bytes }
    }

    /// Where it is, for others.
    pub fn location(&self) -> PageLocation {
        self.region_ref.location
    }

    /// Forgets what stands behind the first `bytes`.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: nobody writes to the region as long as this hold on it lives. Of the owner's: it
        // is not free, so no sheet is made of it. Of a reader's: its claim was taken on the
        // generation that was told for this page, so the owner, whose `renew` sees the claim, makes
        // no sheet of it. (Other processes run this code: see the module.)
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
            .field("place", &self.region_ref.location)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
