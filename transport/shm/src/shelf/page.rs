//! Memory on a shelf: a sheet while it is written, a page from then on.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::shelf::Place;
use crate::shelf::reader::Visit;
use crate::shelf::regions::Owner;

/// Memory of the owner's that is being written. Others cannot see it yet.
#[derive(Debug)]
pub struct Sheet {
    hold: Hold,
    bytes: usize,
}

/// A region, as long as somebody here uses it.
#[derive(Debug)]
pub(super) struct Hold {
    pub mapping: Arc<Mapping>,
    pub place: Place,
    pub by: By,
}

/// Who uses it.
#[derive(Debug)]
pub(super) enum By {
    Owner(Arc<Owner>),
    Reader(Arc<Visit>),
}

impl Drop for Hold {
    fn drop(&mut self) {
        match &self.by {
            By::Owner(owner) => owner.free(self.place.region),
            By::Reader(visit) => visit.release(self.place),
        }
    }
}

impl Sheet {
    pub(super) fn take(owner: &Arc<Owner>, bytes: usize) -> Option<Self> {
        let (place, mapping) = owner.take(bytes)?;
        let by = By::Owner(Arc::clone(owner));
        Some(Self { hold: Hold { mapping, place, by }, bytes })
    }

    /// Nothing more is written: others may read it.
    pub fn into_page(self) -> Page {
        Page { hold: Arc::new(self.hold), bytes: self.bytes }
    }
}

impl Deref for Sheet {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the region is this sheet's alone: the owner hands out a free one only, in a
        // generation that no reader was told of, so nobody else touches it before `into_page`.
        unsafe { self.hold.mapping.read(0, self.bytes) }
    }
}

impl DerefMut for Sheet {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the sheet is borrowed mutably.
        unsafe { self.hold.mapping.bytes_mut(0, self.bytes) }
    }
}

/// Memory on a shelf that nobody writes any more. Clones are the same page.
#[derive(Clone)]
pub struct Page {
    hold: Arc<Hold>,
    bytes: usize,
}

impl Page {
    pub(super) fn new(hold: Hold, bytes: usize) -> Self {
        Self { hold: Arc::new(hold), bytes }
    }

    /// Where it is, for others.
    pub fn place(&self) -> Place {
        self.hold.place
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
        unsafe { self.hold.mapping.read(0, self.bytes) }
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
            .field("place", &self.hold.place)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
