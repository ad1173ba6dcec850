//! Recovery after a failure: survivors report the blocks that they hold, and request missing ones
//! from each other.
//!
//! The set of blocks that the survivors hold together does not change, because they only receive
//! blocks from each other. Once all survivors have reported what they held after the last failure,
//! a block that is in no report is lost, and all survivors reach the same conclusion.

use onepipe_wire::BulkHaveView;

use super::Group;
use crate::Memory;
use crate::peer::{ObjectFlow, REQUESTED_BLOCKS_MAX};
use onepipe_reliability::BitSet;

impl<M: Memory> Group<M> {
    pub(super) fn on_have(&mut self, from: u32, view: &BulkHaveView<'_>) {
        let have = view.have;
        if self.get(have.object).is_none() {
            return;
        }
        let shape = match have.extent {
            None => None,
            Some(extent) => match self.on_extent(have.object, extent) {
                None => return,
                shape => shape,
            },
        };
        if self.get(have.object).is_none() || self.outcome.is_some() {
            return;
        }
        let (failed, blocks) =
            (self.peer(from).advertised_failed, shape.map_or(0, |shape| shape.blocks));
        let flow = self.peer(from).flow(have.object);
        if flow.words_view.is_none_or(|(count, known)| failed >= count && known != have.view) {
            // The previous report may predate the shape. Blocks held then are still held.
            let known = core::mem::replace(&mut flow.holds, BitSet::new(blocks));
            for (word, bits) in known.words().iter().enumerate() {
                flow.holds.merge(word, *bits);
            }
            flow.words_received = BitSet::new(blocks.div_ceil(64));
            flow.words_view = Some((failed, have.view));
        }
        if flow.words_view == Some((failed, have.view)) {
            for (ahead, bits) in (0..).zip(view.words()) {
                let Some(word) = have.first.checked_add(ahead) else { break };
                flow.holds.merge(word as usize, bits);
                flow.words_received.set(word);
            }
        }
        self.advance();
        self.request_missing();
    }

    //= spec/bulk.md#R26
    /// Requests missing blocks from each survivor. Members start at different blocks, so that they
    /// soon have blocks to exchange.
    pub(super) fn request_missing(&mut self) {
        if self.failures.is_empty() || self.outcome.is_some() {
            return;
        }
        for object in self.stable..self.known {
            let lacks = |active: &super::ActiveObject<M>| {
                !active.is_lost && active.object.as_ref().is_some_and(|object| object.missing > 0)
            };
            if !self.get(object).is_some_and(lacks) {
                continue;
            }
            for rank in self.ranks() {
                while self.is_live_peer(rank)
                    && self.peers[rank as usize].requested.len() < REQUESTED_BLOCKS_MAX
                    && let Some(block) = self.find_missing(rank, object)
                {
                    self.request_block(rank, object, block);
                }
            }
        }
    }

    /// Returns a block that `rank` holds and that is neither held here nor requested.
    fn find_missing(&self, rank: u32, object: u32) -> Option<u32> {
        let body = self.get(object)?.object.as_ref()?;
        let peer = &self.peers[rank as usize];
        let words = body.held.words().len();
        debug_assert!(words > 0, "an object has blocks");
        let begin = words * self.config.own as usize / self.peers.len();
        let holds = peer.get_flow(object).map(|flow| flow.holds.words());
        (0..words).map(|at| (begin + at) % words).find_map(|word| {
            let reported = holds.and_then(|holds| holds.get(word)).copied().unwrap_or(0);
            let has = if object < peer.complete { u64::MAX } else { reported };
            let lacks = !(body.held.words()[word] | body.requested.words()[word]);
            // Members start at different bits within a word, too.
            let shift = self.config.own * 64 / self.peers.len() as u32;
            let rotated = (has & lacks & body.held.mask(word)).rotate_right(shift);
            let bit = (rotated != 0).then(|| (rotated.trailing_zeros() + shift) % 64)?;
            Some(word as u32 * 64 + bit)
        })
    }

    //= spec/bulk.md#R27
    /// Returns whether all survivors have reported their blocks of an object since the last
    /// failure.
    fn is_reported(&self, object: u32) -> bool {
        self.live_peers().all(|peer| {
            let is_current = peer.view.1 == self.view;
            let has_reported = |flow: &ObjectFlow| flow.is_reported_in(self.view);
            is_current
                && (object < peer.complete
                    || object >= peer.known
                    || peer.get_flow(object).is_some_and(has_reported))
        })
    }

    //= spec/bulk.md#R27
    /// Returns whether no survivor can ever complete an object that is incomplete here.
    pub(super) fn is_unrecoverable(&mut self, object: u32) -> bool {
        let view = self.view;
        let is_covered = self.get(object).is_none_or(|active| active.covered_in_view == Some(view));
        if self.failures.is_empty() || is_covered || !self.is_reported(object) {
            return false;
        }
        if self.live_peers().any(|peer| object < peer.complete) {
            self.active_mut(object).covered_in_view = Some(view);
            return false;
        }
        let Some(shape) = self.get(object).and_then(|active| active.shape) else { return true };
        let mut all = BitSet::new(shape.blocks);
        let own = self.get(object).and_then(|active| active.object.as_ref());
        let live_peers =
            self.live_peers().filter_map(|peer| peer.get_flow(object)).map(|flow| &flow.holds);
        for holds in live_peers.chain(own.map(|object| &object.held)) {
            for (word, bits) in holds.words().iter().enumerate() {
                all.merge(word, *bits);
            }
        }
        let mut full = BitSet::new(shape.blocks);
        full.set_all();
        if all == full {
            self.active_mut(object).covered_in_view = Some(view);
        }
        all != full
    }
}
