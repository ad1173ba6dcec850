//! Window of objects: the active objects, and how far all objects are.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::active_object::ActiveObject;
use crate::Memory;
use crate::event::{Event, SendError, Unsent};
use crate::object::{BlockId, Object, Shape};

/// Own step of the schedule of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnStep {
    pub object: u32,
    pub blocks: u32,
    pub step: u64,
}

/// Active objects and the counts of all objects: stable ≤ complete ≤ resolved, complete ≤ known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectWindow<M> {
    is_root: bool,
    /// All objects before this one are complete at every survivor and have been released.
    stable: u32,
    /// Objects from `stable` on: always `objects_max` entries.
    active: VecDeque<ActiveObject<M>>,
    /// Digest of all objects before `stable`.
    digest: u64,
    /// All objects before this one are complete.
    complete: u32,
    /// All objects before this one are complete or lost.
    resolved: u32,
    /// All objects before this one are known to exist.
    known: u32,
    /// Number of all objects, once no more will be sent.
    total: Option<u32>,
    /// Object whose transfers are being queued.
    queueing: u32,
}

impl<M: Memory> ObjectWindow<M> {
    /// Creates a window of `objects_max` objects, of which none is known.
    pub fn new(objects_max: u32, is_root: bool) -> Self {
        Self {
            is_root,
            stable: 0,
            active: (0..objects_max).map(|_| ActiveObject::default()).collect(),
            digest: 0,
            complete: 0,
            resolved: 0,
            known: 0,
            total: None,
            queueing: 0,
        }
    }

    #[inline]
    pub fn stable(&self) -> u32 {
        self.stable
    }

    #[inline]
    pub fn complete(&self) -> u32 {
        self.complete
    }

    #[inline]
    pub fn resolved(&self) -> u32 {
        self.resolved
    }

    #[inline]
    pub fn known(&self) -> u32 {
        self.known
    }

    #[inline]
    pub fn total(&self) -> Option<u32> {
        self.total
    }

    /// Returns the numbers of all active objects, known or expected.
    #[inline]
    pub fn range(&self) -> Range<u32> {
        self.stable..self.stable + self.active.len() as u32
    }

    /// Returns whether no further object can be active.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.known - self.stable >= self.active.len() as u32
    }

    /// Returns an object if it is active.
    #[inline]
    pub fn get(&self, object: u32) -> Option<&ActiveObject<M>> {
        self.active.get(object.checked_sub(self.stable)? as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, object: u32) -> Option<&mut ActiveObject<M>> {
        self.active.get_mut(object.checked_sub(self.stable)? as usize)
    }

    /// Returns the shape of an active object that was announced.
    #[inline]
    pub fn shape(&self, object: u32) -> Option<Shape> {
        self.get(object)?.shape()
    }

    /// Returns the content of an active object that has memory.
    #[inline]
    pub fn body(&self, object: u32) -> Option<&Object<M>> {
        self.get(object)?.body()
    }

    #[inline]
    pub fn body_mut(&mut self, object: u32) -> Option<&mut Object<M>> {
        self.get_mut(object)?.body_mut()
    }

    /// Returns whether this member holds a block of an active object.
    #[inline]
    pub fn holds(&self, BlockId { object, block }: BlockId) -> bool {
        self.body(object).is_some_and(|body| body.held.has(block))
    }

    pub fn is_complete(&self, object: u32) -> bool {
        self.get(object).is_some_and(ActiveObject::is_complete)
    }

    /// Records the announcement of an active object. Returns the first object that has become
    /// known: objects before this one are known to exist now, although they were not announced.
    pub fn add(&mut self, object: u32, shape: Shape, steps: u64) -> u32 {
        let first = object.min(self.known);
        if let Some(active) = self.get_mut(object) {
            active.announce(shape, steps);
            self.known = self.known.max(object + 1);
        }
        debug_assert!(first < self.known, "an active object is known");
        first
    }

    /// Sets the content of an announced object at the root.
    pub fn insert(&mut self, object: u32, body: Object<M>) {
        debug_assert!(self.is_root && body.missing == 0, "the root has all it sends");
        if let Some(active) = self.get_mut(object) {
            active.set_body(body);
        }
    }

    /// Sets the memory of an announced object at a receiver.
    ///
    /// # Errors
    /// [`Unsent`] with the memory if the object does not wait for memory, or does not fit.
    pub fn provide(&mut self, object: u32, mut memory: M) -> Result<(), Unsent<M>> {
        let Some((active, shape)) = self
            .get_mut(object)
            .filter(|active| active.body().is_none())
            .and_then(|active| active.shape().map(|shape| (active, shape)))
        else {
            return Err(Unsent { error: SendError::NotAnnounced, memory });
        };
        if (memory.bytes().len() as u64) < shape.extent.bytes {
            return Err(Unsent { error: SendError::TooSmall, memory });
        }
        memory.truncate(shape.extent.bytes as usize);
        active.set_body(Object::empty(shape, memory));
        Ok(())
    }

    /// Ends the sequence of objects at the root. Returns `false` if it had ended before.
    pub fn close(&mut self) -> bool {
        debug_assert!(self.is_root, "only the root closes the group");
        let is_first = self.total.is_none();
        self.total.get_or_insert(self.known);
        is_first
    }

    /// Records the number of all objects, as reported by another member.
    pub fn on_total(&mut self, total: Option<u32>) {
        if !self.is_root {
            self.total = self.total.or(total);
        }
    }

    /// Advances over complete objects.
    pub fn advance_complete(&mut self) {
        debug_assert!(self.complete <= self.resolved, "a complete object is resolved");
        while self.is_complete(self.complete) {
            self.complete += 1;
        }
    }

    /// Advances over an object that is complete or lost.
    pub fn resolve(&mut self) {
        let is_resolved = |active: &ActiveObject<M>| active.is_complete() || active.is_lost();
        debug_assert!(self.get(self.resolved).is_some_and(is_resolved), "its outcome is known");
        self.resolved += 1;
    }

    //= spec/bulk.md#R10
    /// Marks an object as delivered. Returns whether the application is to be notified: the root
    /// needs no event for its own objects.
    pub fn deliver(&mut self, object: u32) -> bool {
        debug_assert!(self.is_complete(object), "only a complete object is delivered");
        self.get_mut(object).is_some_and(ActiveObject::deliver) && !self.is_root
    }

    /// Releases the first active object, which is complete at every survivor. Returns its memory.
    pub fn release_first(&mut self) -> Option<M> {
        debug_assert!(self.is_complete(self.stable), "only a complete object is released");
        self.digest = self.digest_before(self.stable + 1);
        let first = self.active.pop_front();
        self.active.push_back(ActiveObject::default());
        self.stable += 1;
        first?.take_memory()
    }

    /// Releases the memory of an object at the end of the group, as stable or lost.
    pub fn release(&mut self, object: u32) -> Option<Event<M>> {
        let is_root = self.is_root;
        let active = self.get_mut(object)?;
        let is_stable = active.is_complete() && (active.is_delivered() || is_root);
        let memory = active.take_memory()?;
        match is_stable {
            true => Some(Event::Stable { object, memory }),
            false => (!active.is_lost()).then_some(Event::Lost { object }),
        }
    }

    /// Returns the digest of all objects before `object`, which must be complete.
    pub fn digest_before(&mut self, object: u32) -> u64 {
        debug_assert!(object <= self.complete, "only complete objects have a digest");
        debug_assert!(object >= self.stable, "digests of stable objects are in one");
        let active = self.active.iter_mut().take((object - self.stable) as usize);
        active.fold(self.digest, |all, active| active.chain_digest(all))
    }

    /// Returns the next own step of the schedule that was not queued, if its object is known.
    #[inline]
    pub fn next_step(&mut self) -> Option<OwnStep> {
        self.queueing = self.queueing.max(self.stable);
        loop {
            let active = self.get(self.queueing)?;
            let blocks = active.shape()?.blocks;
            if let Some(step) = active.next_step() {
                return Some(OwnStep { object: self.queueing, blocks, step });
            }
            self.queueing += 1;
        }
    }

    /// Passes to the step after the one that [`Self::next_step`] returned.
    #[inline]
    pub fn finish_step(&mut self) {
        if let Some(active) = self.get_mut(self.queueing) {
            active.finish_step();
        }
    }

    /// Drops all requests, so that blocks may be requested from other members.
    pub fn clear_requests(&mut self) {
        for body in self.active.iter_mut().filter_map(ActiveObject::body_mut) {
            body.requested.clear_all();
        }
    }

    /// Panics if the counts contradict each other.
    pub fn check_counts(&self, objects_max: u32) {
        assert_eq!(self.active.len(), objects_max as usize, "active objects have a slot each");
        assert!(self.stable <= self.complete, "a stable object is complete here, too");
        assert!(self.complete <= self.resolved, "a complete object is not lost");
        assert!(self.resolved - self.stable <= objects_max, "only active objects are resolved");
        assert!(self.complete <= self.known, "a complete object is known");
        assert!(self.known - self.stable <= objects_max, "only active objects are known");
        assert!(self.queueing <= self.known, "only known objects are queued");
        if self.is_root {
            assert!(self.total.is_none_or(|total| total == self.known), "none follows the last");
            assert_eq!(self.complete, self.known, "the root has all it has sent");
        }
    }

    /// Panics if an object contradicts itself or the counts. Takes time linear in the blocks.
    pub fn check_invariants(&self) {
        // An object may have become known by its successor.
        let is_announced = |object: u32| self.shape(object).is_some();
        let has_all = (self.stable..self.known).all(is_announced);
        for (object, active) in self.range().zip(&self.active) {
            let is_known = object < self.known;
            assert!(is_announced(object) == is_known || !has_all, "known in order");
            let is_complete = active.is_complete() || active.body().is_none();
            assert!(is_complete || object >= self.complete, "objects before `complete` are");
            active.check_invariants();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use onepipe_wire::Extent;

    fn shape() -> Shape {
        let extent = Extent { bytes: 6, block_len: 3, has_digests: true };
        Shape::new(extent, 3).expect("two blocks")
    }

    #[test]
    fn objects_pass_in_order() {
        let mut window = ObjectWindow::<Vec<u8>>::new(2, false);
        assert_eq!(window.add(1, shape(), 0), 0, "object 0 exists, too");
        assert!(window.is_full() && window.get(2).is_none() && !window.is_complete(0));
        let small = window.provide(1, vec![0; 5]).expect_err("too small");
        assert_eq!((small.error, small.memory.len()), (SendError::TooSmall, 5));
        assert_eq!(
            window.provide(0, vec![0; 9]).map_err(|unsent| unsent.error),
            Err(SendError::NotAnnounced)
        );
        window.add(0, shape(), 0);
        for object in [1, 0] {
            window.advance_complete();
            assert_eq!(window.complete(), 0);
            window.provide(object, vec![0; 9]).expect("announced");
            let body = window.body_mut(object).expect("with memory");
            let mut other = Object::complete(body.shape, vec![7; 6]);
            for block in 0..2 {
                body.insert_piece(block, 0, other.digest(block), Some(&[7; 3]));
            }
        }
        window.advance_complete();
        window.resolve();
        assert_eq!((window.complete(), window.resolved()), (2, 1));
        assert!(window.deliver(0) && !window.deliver(0), "once");
        let both = window.digest_before(2);
        assert_eq!(window.release_first(), Some(vec![7; 6]));
        assert_eq!((window.stable(), window.digest_before(2)), (1, both));
        window.resolve();
        window.check_counts(2);
        window.check_invariants();
        assert_eq!(window.release(1), Some(Event::Lost { object: 1 }), "not delivered");
    }

    #[test]
    fn own_steps_follow_each_other() {
        let mut window = ObjectWindow::new(2, true);
        window.add(0, shape(), 2);
        window.insert(0, Object::complete(shape(), vec![1; 6]));
        for step in 0..2 {
            assert_eq!(window.next_step(), Some(OwnStep { object: 0, blocks: 2, step }));
            window.finish_step();
        }
        assert_eq!(window.next_step(), None);
        assert!(window.close() && !window.close());
        assert_eq!((window.total(), window.known()), (Some(1), 1));
    }
}
