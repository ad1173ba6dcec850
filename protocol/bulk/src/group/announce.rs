//! An object is announced, gets its memory, and is filled.

use onepipe_wire::{BulkPieceHeader, Extent};

use super::place::Bytes;
use super::{Group, Staged};
use crate::Memory;
use crate::event::{Event, Reason};
use crate::object::{Object, Shape, Taken};

/// Blocks of an object that show whom a schedule brings together: all dimensions come round.
const SAMPLE_BLOCKS: u32 = 64;
/// Blocks that came before there was memory; there are tokens for one from each of two senders.
const MISSED_BLOCKS: usize = 8;

impl<M: Memory> Group<M> {
    /// Works out who may send us something, before anything is known of any object.
    pub(super) fn find_sources(&mut self) {
        let own = self.config.own;
        for blocks in [1, SAMPLE_BLOCKS] {
            if let Some(first) = self.schedule.first_block(own, blocks)
                && !self.firsts.contains(&first.from)
            {
                self.firsts.push(first.from);
            }
            for step in 0..self.schedule.steps(blocks) {
                if let Some(found) = self.schedule.incoming(own, blocks, step) {
                    self.sources.set(found.peer);
                }
            }
        }
    }

    /// An object is known from now on.
    pub(super) fn know(&mut self, object: u32, shape: Shape) {
        let steps = match self.schedule.relays(self.config.own) {
            true => self.schedule.steps(shape.blocks),
            false => 0,
        };
        let live = self.live_mut(object);
        (live.shape, live.steps) = (Some(shape), steps);
        // Those between are known to be, though nothing is known of them.
        let from = (object.min(self.known), 0);
        self.known = self.known.max(object + 1);
        self.tell_firsts();
        if !self.failures.is_empty() {
            // The others wait for word that we have nothing of it yet.
            for peer in &mut self.peers {
                peer.have_from = Some(peer.have_from.map_or(from, |told| told.min(from)));
            }
            self.tell_all();
        }
    }

    /// Whether an object under way is the one that `extent` tells of, and there may be memory for
    /// it. What is announced for the first time is asked for.
    pub(super) fn on_extent(&mut self, object: u32, extent: Extent) -> Option<Shape> {
        let live = self.get(object)?;
        if let Some(shape) = live.shape {
            let is_same = shape.extent == extent;
            self.stats.misbehaved += u64::from(!is_same);
            return is_same.then_some(shape);
        }
        if self.config.own == 0 {
            // Nobody knows of an object that the root has not sent.
            self.stats.misbehaved += 1;
            return None;
        }
        let fits = extent.bytes <= self.config.object_len_max;
        let Some(shape) = Shape::new(extent, self.config.piece_len()).filter(|_| fits) else {
            self.go(Reason::Memory);
            return None;
        };
        self.know(object, shape);
        let is_enough = |memory: &M| memory.bytes().len() as u64 >= extent.bytes;
        match self.spare.iter().position(is_enough).and_then(|at| self.spare.remove(at)) {
            Some(mut memory) => {
                memory.truncate(extent.bytes as usize);
                self.live_mut(object).object = Some(Object::empty(shape, memory));
                self.on_memory(object);
            }
            None => self.events.push_back(Event::Wanted { object, bytes: extent.bytes }),
        }
        Some(shape)
    }

    /// There is memory for an object.
    pub(super) fn on_memory(&mut self, object: u32) {
        for source in self.ranks() {
            if self.sources.has(source) {
                self.tell_tokens(source, object);
            }
        }
        if let Some(staged) = self.staged.take_if(|staged| staged.header.object == object) {
            let bytes = core::mem::take(&mut self.staged_bytes);
            self.fill(staged.from, &staged.header, Bytes::Here(&bytes));
            self.staged_bytes = bytes;
        }
        let missed = core::mem::take(&mut self.live_mut(object).missed);
        for (from, block) in missed {
            self.want(from, object, block);
        }
        self.ask();
    }

    pub(super) fn on_piece(&mut self, from: u32, header: &BulkPieceHeader, bytes: Bytes<'_>) {
        let Some(shape) = self.on_extent(header.object, header.extent) else { return };
        self.sources.set(from);
        if header.offers {
            return self.tell(from);
        }
        let at = shape.piece_at(header.block, header.offset, bytes.len());
        let has_memory = self.get(header.object).is_some_and(|live| live.object.is_some());
        match bytes {
            // It could not be placed yet: whoever has it says so again.
            Bytes::Here(_) if at.is_none() && self.config.is_shared => {
                self.miss(from, header.object, header.block);
            }
            _ if at.is_none() => self.stats.misbehaved += 1,
            bytes if has_memory => self.fill(from, header, bytes),
            Bytes::Here(bytes) => self.stage(from, *header, bytes),
            // Its memory is gone, and so is the object.
            Bytes::Placed(_) => {}
        }
    }

    /// Keeps one piece until there is memory. Of others the block is asked for then.
    fn stage(&mut self, from: u32, header: BulkPieceHeader, bytes: &[u8]) {
        if self.staged.is_none() {
            self.staged = Some(Staged { from, header });
            self.staged_bytes.clear();
            self.staged_bytes.extend_from_slice(bytes);
            return;
        }
        self.miss(from, header.object, header.block);
    }

    /// A block that came and could not be taken is asked for: when there is memory, if there is
    /// none yet.
    fn miss(&mut self, from: u32, object: u32, block: u32) {
        let live = self.live_mut(object);
        if live.object.is_some() {
            return self.want(from, object, block);
        }
        if live.missed.len() < MISSED_BLOCKS && !live.missed.contains(&(from, block)) {
            live.missed.push((from, block));
        }
    }

    /// Takes in a piece of an object for which there is memory.
    pub(super) fn fill(&mut self, from: u32, header: &BulkPieceHeader, bytes: Bytes<'_>) {
        let BulkPieceHeader { object, block, offset, digest, ordinal, .. } = *header;
        let Some(body) = self.object_mut(object) else { return };
        let Some(piece) = body.shape.piece_at(block, offset, bytes.len()) else { return };
        let taken = match bytes {
            Bytes::Here(bytes) => body.take(block, piece, digest, Some(bytes)),
            Bytes::Placed(_) if body.placed(block, piece) => body.take(block, piece, digest, None),
            Bytes::Placed(_) => return,
        };
        let is_through = body.held.has(block) || taken == Taken::Corrupt;
        match taken {
            Taken::Known => self.stats.pieces_known += 1,
            Taken::Part => self.stats.bytes_received += bytes.len() as u64,
            Taken::Whole => {
                self.stats.bytes_received += bytes.len() as u64;
                self.on_held(object, block);
            }
            Taken::Corrupt => {
                self.stats.blocks_corrupt += 1;
                // The root's copy is the original.
                let whom = if self.has_failed.has(0) { from } else { 0 };
                self.forget_asked(object, block);
                self.want(whom, object, block);
            }
        }
        if is_through && ordinal != BulkPieceHeader::REQUESTED {
            let flow = self.peer(from).flow(object);
            if flow.consumed <= ordinal {
                flow.consumed = ordinal + 1;
                self.tell_tokens(from, object);
            }
        }
    }

    /// A block is whole here.
    fn on_held(&mut self, object: u32, block: u32) {
        self.forget_asked(object, block);
        // Whoever waits for it may have it now; who does not is looked at in vain, once.
        for rank in self.ranks() {
            let peer = &self.peers[rank as usize];
            if !peer.queue.is_empty() || !peer.wanted.is_empty() {
                self.ready.set(rank);
            }
        }
        if !self.failures.is_empty() {
            self.tell_word(object, block / 64);
            self.ask();
        }
        if self.object_mut(object).is_some_and(|object| object.missing == 0) {
            self.settle();
        }
    }

    fn forget_asked(&mut self, object: u32, block: u32) {
        if let Some(body) = self.object_mut(object)
            && body.asked.has(block)
        {
            body.asked.clear(block);
            self.peers.iter_mut().for_each(|peer| peer.on_held(object, block));
        }
    }

    /// Asks a member for a block.
    pub(super) fn want(&mut self, rank: u32, object: u32, block: u32) {
        let is_missing = self.object_mut(object).is_some_and(|body| !body.held.has(block));
        if !is_missing || !self.is_other(rank) {
            return;
        }
        if let Some(body) = self.object_mut(object) {
            body.asked.set(block);
        }
        self.stats.blocks_asked += 1;
        self.peer(rank).ask((object, block));
        self.ready.set(rank);
    }
}
