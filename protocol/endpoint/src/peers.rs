//! State of each peer, found by process id without hashing and without a slot for every process.

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::ProcessId;

const PAGE: usize = 64;
const VACANT: u32 = u32::MAX;

/// A table from process id to `T` whose entries are dense.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerTable<T> {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    entries: Vec<T>,
}

impl<T> PeerTable<T> {
    /// Creates a table for ids below `processes_max`.
    pub fn new(processes_max: u32) -> Self {
        let mut pages = Vec::new();
        pages.resize_with((processes_max as usize).div_ceil(PAGE), || None);
        Self { pages, entries: Vec::new() }
    }

    /// Returns the index of the entry of `process`.
    #[inline]
    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        let page = self.pages.get(process.index() / PAGE)?.as_ref()?;
        let slot = page[process.index() % PAGE];
        (slot != VACANT).then_some(slot as usize)
    }

    /// Returns the index of the entry of `process`, inserting `new` if there is none. `process`
    /// must be below `processes_max`.
    #[inline]
    pub fn index_or_insert(&mut self, process: ProcessId, new: impl FnOnce() -> T) -> usize {
        if let Some(index) = self.index_of(process) {
            return index;
        }
        let page =
            self.pages[process.index() / PAGE].get_or_insert_with(|| Box::new([VACANT; PAGE]));
        page[process.index() % PAGE] = self.entries.len() as u32;
        self.entries.push(new());
        self.entries.len() - 1
    }

    #[inline]
    pub fn get_mut(&mut self, index: usize) -> &mut T {
        &mut self.entries[index]
    }

    #[inline]
    pub fn get(&self, index: usize) -> &T {
        &self.entries[index]
    }

    /// Checks that each entry is found by one process id.
    pub fn check_invariants(&self) {
        let pages = self.pages.iter().flatten();
        let used = pages.map(|page| page.iter().filter(|slot| **slot != VACANT).count());
        assert_eq!(used.sum::<usize>(), self.entries.len(), "an entry has one process id");
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter()
    }
}
