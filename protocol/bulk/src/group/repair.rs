//! Recovery after a failure: survivors report the blocks that they hold, and request missing ones
//! from each other.
//!
//! The set of blocks that the survivors hold together does not change, because they only receive
//! blocks from each other. Once all survivors have reported what they held after the last failure,
//! a block that is in no report is lost, and all survivors reach the same conclusion.

use onepipe_wire::BulkHaveView;

use super::{ActiveObject, Group};
use crate::Memory;
use crate::object::BlockId;
use crate::object_flow::ObjectFlow;
use crate::peer::REQUESTED_BLOCKS_MAX;
use onepipe_reliability::BitSet;

impl<M: Memory> Group<M> {
    pub(super) fn on_have(&mut self, from: u32, view: &BulkHaveView<'_>) {
        let have = view.have;
        if self.window.get(have.object).is_none() {
            return;
        }
        let shape = match have.extent {
            None => None,
            Some(extent) => match self.on_extent(have.object, extent) {
                None => return,
                shape => shape,
            },
        };
        if self.window.get(have.object).is_none() || self.membership.is_over() {
            return;
        }
        let blocks = shape.map_or(0, |shape| shape.blocks);
        let peer = &mut self.peers[from];
        let failed = peer.advertised_failed;
        peer.flows.get_mut(have.object).on_have(failed, blocks, view);
        self.advance();
        self.request_missing();
    }

    //= spec/bulk.md#R26
    /// Requests missing blocks from each survivor. Members start at different blocks, so that they
    /// soon have blocks to exchange.
    pub(super) fn request_missing(&mut self) {
        if !self.membership.has_failures() || self.membership.is_over() {
            return;
        }
        for object in self.window.stable()..self.window.known() {
            let lacks = |active: &ActiveObject<M>| !active.is_lost() && active.lacks_blocks();
            if !self.window.get(object).is_some_and(lacks) {
                continue;
            }
            for rank in self.peers.ranks() {
                while self.membership.is_live_peer(rank)
                    && self.peers[rank].requested.len() < REQUESTED_BLOCKS_MAX
                    && let Some(block) = self.find_missing(rank, object)
                {
                    self.request_block(rank, BlockId { object, block });
                }
            }
        }
    }

    /// Returns a block that `rank` holds and that is neither held here nor requested.
    fn find_missing(&self, rank: u32, object: u32) -> Option<u32> {
        let body = self.window.body(object)?;
        let peer = &self.peers[rank];
        let words = body.held.words().len();
        debug_assert!(words > 0, "an object has blocks");
        let begin = words * self.config.own as usize / self.peers.len() as usize;
        let holds = peer.flows.get(object).map(|flow| flow.holds().words());
        (0..words).map(|at| (begin + at) % words).find_map(|word| {
            let reported = holds.and_then(|holds| holds.get(word)).copied().unwrap_or(0);
            let has = if object < peer.complete { u64::MAX } else { reported };
            let lacks = !(body.held.words()[word] | body.requested.words()[word]);
            // Members start at different bits within a word, too.
            let shift = self.config.own * 64 / self.peers.len();
            let rotated = (has & lacks & body.held.mask(word)).rotate_right(shift);
            let bit = (rotated != 0).then(|| (rotated.trailing_zeros() + shift) % 64)?;
            Some(word as u32 * 64 + bit)
        })
    }

    //= spec/bulk.md#R27
    /// Returns whether all survivors have reported their blocks of an object since the last
    /// failure.
    fn is_reported(&self, object: u32) -> bool {
        self.peers.live(&self.membership).all(|peer| {
            let is_current = peer.view.1 == self.membership.view();
            let has_reported = |flow: &ObjectFlow| flow.is_reported_in(self.membership.view());
            is_current
                && (object < peer.complete
                    || object >= peer.known
                    || peer.flows.get(object).is_some_and(has_reported))
        })
    }

    //= spec/bulk.md#R27
    /// Returns whether no survivor can ever complete an object that is incomplete here.
    pub(super) fn is_unrecoverable(&mut self, object: u32) -> bool {
        let view = self.membership.view();
        let is_covered = self.window.get(object).is_none_or(|active| active.is_covered_in(view));
        if !self.membership.has_failures() || is_covered || !self.is_reported(object) {
            return false;
        }
        if self.peers.live(&self.membership).any(|peer| object < peer.complete) {
            self.cover(object);
            return false;
        }
        let Some(shape) = self.window.shape(object) else { return true };
        let mut all = BitSet::new(shape.blocks);
        let own = self.window.body(object).map(|body| &body.held);
        let live_peers = self.peers.live(&self.membership);
        let reported = live_peers.filter_map(|peer| peer.flows.get(object)).map(ObjectFlow::holds);
        for holds in reported.chain(own) {
            for (word, bits) in holds.words().iter().enumerate() {
                all.merge(word, *bits);
            }
        }
        let mut full = BitSet::new(shape.blocks);
        full.set_all();
        if all == full {
            self.cover(object);
        }
        all != full
    }

    /// Records that the survivors together hold all blocks of an object.
    fn cover(&mut self, object: u32) {
        if let Some(active) = self.window.get_mut(object) {
            active.cover_in(self.membership.view());
        }
    }
}
