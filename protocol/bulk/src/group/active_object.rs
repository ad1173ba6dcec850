//! Active object: its announcement, its memory, and its progress.

use alloc::vec::Vec;

use crate::Memory;
use crate::object::{Object, Shape};

/// Maximum number of blocks recorded that arrived before there was memory: two senders have a token
/// for one block each.
const MISSED_BLOCKS: usize = 8;

/// Block whose pieces were dropped before its object had memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MissedBlock {
    pub from: u32,
    pub block: u32,
}

/// State of an active object, known or expected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ActiveObject<M> {
    shape: Option<Shape>,
    body: Option<Object<M>>,
    is_delivered: bool,
    is_lost: bool,
    /// View in which the survivors together were found to hold all blocks.
    covered_in_view: Option<u64>,
    /// Digest of this object and all earlier ones, once computed.
    digest: Option<u64>,
    /// Next own step of the schedule, and the number of steps.
    step: u64,
    steps: u64,
    missed: Vec<MissedBlock>,
}

impl<M> Default for ActiveObject<M> {
    fn default() -> Self {
        Self {
            shape: None,
            body: None,
            is_delivered: false,
            is_lost: false,
            covered_in_view: None,
            digest: None,
            step: 0,
            steps: 0,
            missed: Vec::new(),
        }
    }
}

impl<M: Memory> ActiveObject<M> {
    /// Returns the shape once the object was announced.
    #[inline]
    pub fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Returns the content once the object has memory.
    #[inline]
    pub fn body(&self) -> Option<&Object<M>> {
        self.body.as_ref()
    }

    #[inline]
    pub fn body_mut(&mut self) -> Option<&mut Object<M>> {
        self.body.as_mut()
    }

    /// Returns whether the object was announced and has no memory.
    #[inline]
    pub fn awaits_memory(&self) -> bool {
        self.shape.is_some() && self.body.is_none()
    }

    #[inline]
    pub fn is_complete(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.missing == 0)
    }

    /// Returns whether the object has memory but is not complete.
    #[inline]
    pub fn lacks_blocks(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.missing > 0)
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Records the announcement. `steps`: length of the own schedule.
    pub fn announce(&mut self, shape: Shape, steps: u64) {
        debug_assert!(self.shape.is_none(), "an object has one shape");
        (self.shape, self.steps) = (Some(shape), steps);
    }

    /// Sets the memory of an announced object.
    pub fn set_body(&mut self, body: Object<M>) {
        debug_assert!(self.awaits_memory(), "an object gets memory once");
        self.body = Some(body);
    }

    //= spec/bulk.md#R18
    /// Records a block that is requested again as soon as there is memory.
    pub fn miss(&mut self, from: u32, block: u32) {
        debug_assert!(self.body.is_none(), "a block of an object with memory is received");
        let missed = MissedBlock { from, block };
        if self.missed.len() < MISSED_BLOCKS && !self.missed.contains(&missed) {
            self.missed.push(missed);
        }
    }

    pub fn take_missed(&mut self) -> Vec<MissedBlock> {
        core::mem::take(&mut self.missed)
    }

    /// Marks the object as delivered. Returns whether the object was not.
    pub fn deliver(&mut self) -> bool {
        debug_assert!(self.is_complete(), "only a complete object is delivered");
        !core::mem::replace(&mut self.is_delivered, true)
    }

    /// Marks the object as lost. Returns whether the object was not.
    pub fn lose(&mut self) -> bool {
        debug_assert!(!self.is_complete(), "a complete object is not lost");
        !core::mem::replace(&mut self.is_lost, true)
    }

    /// Returns whether the survivors of a view together hold all blocks.
    pub fn is_covered_in(&self, view: u64) -> bool {
        self.covered_in_view == Some(view)
    }

    pub fn cover_in(&mut self, view: u64) {
        self.covered_in_view = Some(view);
    }

    /// Returns the digest of this object and all earlier ones, whose digest is `before`.
    pub fn chain_digest(&mut self, before: u64) -> u64 {
        debug_assert!(!self.lacks_blocks(), "only a complete object has a digest");
        let all = match (self.digest, &mut self.body) {
            (Some(digest), _) => digest,
            (None, Some(body)) => body.chain_digest(before),
            (None, None) => before,
        };
        self.digest = Some(all);
        all
    }

    /// Returns the next own step of the schedule, if any is left.
    #[inline]
    pub fn next_step(&self) -> Option<u64> {
        (self.step < self.steps).then_some(self.step)
    }

    /// Passes to the next own step.
    #[inline]
    pub fn finish_step(&mut self) {
        debug_assert!(self.step < self.steps, "the schedule has as many steps");
        self.step += 1;
    }

    /// Removes the memory.
    pub fn take_memory(&mut self) -> Option<M> {
        self.body.take().map(|body| body.memory)
    }

    /// Returns whether the object was delivered to the application.
    pub fn is_delivered(&self) -> bool {
        self.is_delivered
    }

    /// Panics if the object contradicts itself. Takes time linear in the blocks.
    pub fn check_invariants(&self) {
        assert!(self.step <= self.steps, "the schedule has as many steps");
        assert!(self.missed.len() <= MISSED_BLOCKS, "missed blocks are bounded");
        assert!(self.missed.is_empty() || self.body.is_none(), "missed blocks wait for memory");
        let Some(body) = &self.body else { return };
        assert_eq!(self.shape, Some(body.shape), "memory is of the announced object");
        let is_complete = body.missing == 0;
        assert!(is_complete || !self.is_delivered, "only a complete object is delivered");
        assert!(is_complete || self.digest.is_none(), "only a complete object has a digest");
        body.check_invariants();
    }
}
