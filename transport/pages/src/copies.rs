//! Objects of the root's that lie in its own memory: others read a copy.

use onepipe_transport_shm::{Page, PageLocation, PagePool};

use crate::ObjectBytes;

/// Copies of objects under way.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<(u32, Page)>);

impl Copies {
    /// Where others can read an object. `None` when there is no memory for a copy.
    pub(crate) fn place(
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

    /// An object is through.
    pub(crate) fn remove(&mut self, object: u32) {
        self.0.retain(|(copied, _)| *copied != object);
    }
}
