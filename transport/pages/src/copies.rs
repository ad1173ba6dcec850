//! Objects of the root's that lie in its own memory: others read a copy.

use onepipe_transport_shm::{Page, Place, Shelf};

use crate::Bytes;

/// Copies of objects under way.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<(u32, Page)>);

impl Copies {
    /// Where others can read an object. `None` when there is no memory for a copy.
    pub(crate) fn place(&mut self, shelf: &Shelf, object: u32, bytes: &Bytes) -> Option<Place> {
        let bytes = match bytes {
            Bytes::Shared(page) => return Some(page.place()),
            Bytes::Private(bytes) => bytes,
        };
        let at = match self.0.iter().position(|(copied, _)| *copied == object) {
            Some(at) => at,
            None => {
                let mut sheet = shelf.sheet(bytes.len())?;
                sheet.copy_from_slice(bytes);
                self.0.push((object, sheet.into_page()));
                self.0.len() - 1
            }
        };
        Some(self.0[at].1.place())
    }

    /// An object is through.
    pub(crate) fn forget(&mut self, object: u32) {
        self.0.retain(|(copied, _)| *copied != object);
    }
}
