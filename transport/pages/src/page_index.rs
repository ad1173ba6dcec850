//! Where the objects lie that are on their way to us.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onepipe_bulk::OBJECTS_MAX;
use onepipe_transport_shm::{Page, PageLocation, PageReader};

/// What a member has been told of objects' places. It lends the pages: an application that is asked
/// for memory may answer with one. Clones are the same.
#[derive(Clone, Debug)]
pub struct PageIndex {
    reader: PageReader,
    entries: Arc<Mutex<Vec<Entry>>>,
}

/// An object on its way.
#[derive(Debug)]
struct Entry {
    object: u32,
    place: PageLocation,
    /// Claimed when it is first used, and until the object is through: so it stays as it is even
    /// where the others count us as failed.
    page: Option<Page>,
}

impl PageIndex {
    pub(crate) fn new(reader: PageReader) -> Self {
        let entries = Vec::with_capacity(OBJECTS_MAX as usize);
        Self { reader, entries: Arc::new(Mutex::new(entries)) }
    }

    /// The page that an object of so many bytes lies on, which is on its way. `None` when nobody
    /// has said where that is.
    pub fn page(&self, object: u32, bytes: usize) -> Option<Page> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| entry.object == object)?;
        if entry.page.as_ref().is_none_or(|page| page.len() < bytes) {
            entry.page = Some(self.reader.page(entry.place, bytes)?);
        }
        let mut page = entry.page.clone()?;
        page.truncate(bytes);
        Some(page)
    }

    /// Somebody says where an object lies.
    pub(crate) fn insert(&self, object: u32, place: PageLocation) {
        let mut entries = self.entries();
        match entries.iter_mut().find(|entry| entry.object == object) {
            Some(entry) if entry.place == place => {}
            Some(entry) => (entry.place, entry.page) = (place, None),
            None => {
                if entries.len() >= OBJECTS_MAX as usize {
                    // No more are under way: the first is of one that was through long ago.
                    let least =
                        (0..entries.len()).min_by_key(|at| entries[*at].object).unwrap_or(0);
                    entries.swap_remove(least);
                }
                entries.push(Entry { object, place, page: None });
            }
        }
    }

    /// Where an object lies.
    pub(crate) fn place(&self, object: u32) -> Option<PageLocation> {
        self.entries().iter().find(|entry| entry.object == object).map(|entry| entry.place)
    }

    /// An object is through.
    pub(crate) fn remove(&self, object: u32) {
        self.entries().retain(|entry| entry.object != object);
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Whoever panicked with it had changed one loan at a time.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
