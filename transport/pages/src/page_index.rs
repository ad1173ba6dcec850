//! Locations of the objects in transit to this member.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onepipe_bulk::OBJECTS_MAX;
use onepipe_transport_shm::{Page, PageLocation, PageReader, SegmentLost};

/// The locations of objects that were announced to this member. An application that is asked for
/// memory may respond with the page of the object itself. Clones share their state.
#[derive(Clone, Debug)]
pub struct PageIndex {
    reader: PageReader,
    entries: Arc<Mutex<Vec<Entry>>>,
}

/// An object in transit.
#[derive(Debug)]
struct Entry {
    object: u32,
    location: PageLocation,
    /// Claimed on first use and until the object is finished, so that its bytes stay unchanged even
    /// if the other members count this one as failed.
    page: Option<Page>,
}

impl PageIndex {
    pub(crate) fn new(reader: PageReader) -> Self {
        let entries = Vec::with_capacity(OBJECTS_MAX as usize);
        Self { reader, entries: Arc::new(Mutex::new(entries)) }
    }

    /// Returns the page with the first bytes of an object in transit. `None` if its location is
    /// unknown or no longer valid.
    pub fn page(&self, object: u32, bytes: usize) -> Option<Page> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| entry.object == object)?;
        if entry.page.as_ref().is_none_or(|page| page.len() < bytes) {
            entry.page = Some(self.reader.page(entry.location, bytes)?);
        }
        let mut page = entry.page.clone()?;
        page.truncate(bytes);
        Some(page)
    }

    /// Why no page can be read any more, if that is so.
    pub(crate) fn loss(&self) -> Option<SegmentLost> {
        self.reader.loss()
    }

    /// Records the location of an object.
    pub(crate) fn insert(&self, object: u32, location: PageLocation) {
        let mut entries = self.entries();
        match entries.iter_mut().find(|entry| entry.object == object) {
            Some(entry) if entry.location == location => {}
            Some(entry) => (entry.location, entry.page) = (location, None),
            None => {
                if entries.len() >= OBJECTS_MAX as usize {
                    // The number of objects in flight is limited: the oldest entry is stale.
                    let least =
                        (0..entries.len()).min_by_key(|at| entries[*at].object).unwrap_or(0);
                    entries.swap_remove(least);
                }
                entries.push(Entry { object, location, page: None });
            }
        }
    }

    /// Returns the location of an object.
    pub(crate) fn location(&self, object: u32) -> Option<PageLocation> {
        self.entries().iter().find(|entry| entry.object == object).map(|entry| entry.location)
    }

    /// Removes a finished object.
    pub(crate) fn remove(&self, object: u32) {
        self.entries().retain(|entry| entry.object != object);
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        // A thread that panicked while holding the lock changed one entry at a time.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
