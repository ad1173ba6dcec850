//! Memory that one process fills and others read, without a copy.
//!
//! A [`PagePool`] is a file in `/dev/shm`, cut into regions. Its owner takes a [`PageMut`] from it,
//! writes, and makes a [`Page`] of it, which nobody writes any more. It tells others the page's
//! [`PageLocation`]; with a [`PageReader`] they map the page where it lies. When the owner's page and those of
//! all readers are gone, the region serves again ([`claim`]).
//!
//! # Trust
//! As everywhere in a segment, all processes run as one user and with this code: what is on a page
//! does not change, because nobody here writes to one. Places told by others are checked against
//! the file.

pub(crate) mod claim;
mod layout;
mod page;
mod reader;
mod regions;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

pub use layout::{PAGE_LOCATION_LEN, PageLocation};
pub use page::{Page, PageMut};
pub use reader::PageReader;

use crate::AttachError;
use regions::Owner;

/// Memory that this process fills and others read. Clones are the same shelf.
#[derive(Clone, Debug)]
pub struct PagePool(Arc<Owner>);

impl PagePool {
    /// Makes a shelf of this name, which nobody may have yet.
    ///
    /// # Errors
    /// [`AttachError`]: a living process has such a shelf, or the kernel refuses.
    pub fn create(name: &str) -> Result<Self, AttachError> {
        Ok(Self(Arc::new(Owner::create(name)?)))
    }

    /// Takes the name away: who has come may stay, nobody else comes, and nothing is left when all
    /// have gone, however they go.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unlink(&self) -> io::Result<()> {
        self.0.unlink()
    }

    /// Memory to write so many bytes into. `None` when there is not so much: `/dev/shm` is full,
    /// or pages take up all regions. What stands in it is of no meaning.
    pub fn alloc(&self, bytes: usize) -> Option<PageMut> {
        PageMut::take(&self.0, bytes)
    }
}
