//! Shared copies of objects that lie in the root's private memory.

use onepipe_transport_shm::{Page, PageLocation, PagePool};

use crate::ObjectBytes;

/// Copies of objects in flight.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<(u32, Page)>);

impl Copies {
    /// Returns where other members can read an object. `None` if there is no memory for a copy.
    pub(crate) fn location(
        &mut self,
        page_pool: &PagePool,
        object: u32,
        bytes: &ObjectBytes,
    ) -> Option<PageLocation> {
        let bytes = match bytes {
            ObjectBytes::Shared(page) => return Some(page.location()),
            ObjectBytes::Private(bytes) => bytes,
        };
        let at = match self.0.iter().position(|(copied, _)| *copied == object) {
            Some(at) => at,
            None => {
                let mut page_mut = page_pool.alloc(bytes.len())?;
                page_mut.copy_from_slice(bytes);
                self.0.push((object, page_mut.freeze()));
                self.0.len() - 1
            }
        };
        Some(self.0[at].1.location())
    }

    /// Drops the copy of a finished object.
    pub(crate) fn remove(&mut self, object: u32) {
        self.0.retain(|(copied, _)| *copied != object);
    }
}
