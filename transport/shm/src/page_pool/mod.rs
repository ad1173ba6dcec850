//! Memory that one process fills and others read without a copy.
//!
//! A [`PagePool`] is a file in `/dev/shm`, divided into regions. Its owner allocates a [`PageMut`],
//! writes it, and freezes it to a read-only [`Page`]. It sends others the page's [`PageLocation`];
//! with a [`PageReader`] they map the page in place. When the pages of the owner and of all readers
//! are dropped, the region is reused ([`claim`]).
//!
//! # Trust
//! As everywhere in a segment, all processes run as one user and with this code: a page does not
//! change, because this code never writes to one. Locations from other processes are checked
//! against the file.
//!
//! A page that was returned before another process shortens the file reads as zeros where the file
//! ends ([`crate::sigbus`]), and says so afterwards ([`Page::is_lost`]); from then on the pool and
//! its readers give out no more pages, as for locations beyond the end of the file.

pub(crate) mod claim;
mod layout;
mod page;
mod pool_mapping;
mod reader;
mod regions;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

pub use layout::{PAGE_LOCATION_LEN, PageLocation};
pub use page::{Page, PageMut};
pub use reader::PageReader;

use crate::{AttachError, SegmentLost};
use regions::Owner;

/// Memory that this process fills and others read. Clones share the pool.
#[derive(Clone, Debug)]
pub struct PagePool(Arc<Owner>);

impl PagePool {
    /// Creates a pool under a name that no live pool has.
    ///
    /// # Errors
    /// [`AttachError`]: a live process has a pool of this name, or the kernel refuses.
    pub fn create(name: &str) -> Result<Self, AttachError> {
        Ok(Self(Arc::new(Owner::create(name)?)))
    }

    /// Removes the name: processes that have attached stay attached, no other process can attach,
    /// and nothing is left behind when all have ended, however they end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unlink(&self) -> io::Result<()> {
        self.0.unlink()
    }

    /// Why no page is allocated any more, if that is so: another process has shortened the file.
    pub fn loss(&self) -> Option<SegmentLost> {
        self.0.loss()
    }

    /// Allocates a page of the given length, with arbitrary contents. `None` when there is no
    /// memory: `/dev/shm` is full, or all regions are in use; and when another process has
    /// shortened the file ([`PagePool::loss`]).
    pub fn alloc(&self, bytes: usize) -> Option<PageMut> {
        PageMut::take(&self.0, bytes)
    }
}
