//! What is known of each peer, found by process id without hashing and without a slot for every
//! process that exists.

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::ProcessId;

const PAGE: usize = 64;
const NOBODY: u32 = u32::MAX;

/// A table from process id to `T`, dense in the peers that were met.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peers<T> {
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    met: Vec<T>,
}

impl<T> Peers<T> {
    /// A table for ids below `processes_max`.
    pub fn new(processes_max: u32) -> Self {
        let mut pages = Vec::new();
        pages.resize_with((processes_max as usize).div_ceil(PAGE), || None);
        Self { pages, met: Vec::new() }
    }

    /// The index of `process` among the peers met.
    #[inline]
    pub fn find(&self, process: ProcessId) -> Option<usize> {
        let page = self.pages.get(process.index() / PAGE)?.as_ref()?;
        let slot = page[process.index() % PAGE];
        (slot != NOBODY).then_some(slot as usize)
    }

    /// The index of `process`, which is met now if it was not yet. `process` must be below
    /// `processes_max`.
    #[inline]
    pub fn meet(&mut self, process: ProcessId, first: impl FnOnce() -> T) -> usize {
        if let Some(at) = self.find(process) {
            return at;
        }
        let page =
            self.pages[process.index() / PAGE].get_or_insert_with(|| Box::new([NOBODY; PAGE]));
        page[process.index() % PAGE] = self.met.len() as u32;
        self.met.push(first());
        self.met.len() - 1
    }

    #[inline]
    pub fn at(&mut self, index: usize) -> &mut T {
        &mut self.met[index]
    }

    #[inline]
    pub fn peek(&self, index: usize) -> &T {
        &self.met[index]
    }

    pub fn len(&self) -> usize {
        self.met.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.met.iter()
    }
}
