//! Reception of objects: announcement, memory and pieces.

use onepipe_wire::{BulkPieceHeader, Extent};

use super::placement::Payload;
use super::{Group, Staged};
use crate::Memory;
use crate::event::{Event, Reason};
use crate::object::{BlockId, HaveWord, Object, PieceResult, Shape};

/// Number of blocks of a sample object whose schedule shows all senders of a member: enough for all
/// dimensions of the hypercube.
const SAMPLE_BLOCKS: u32 = 64;
/// Maximum number of blocks recorded that arrived before there was memory: two senders have a token
/// for one block each.
pub(super) const MISSED_BLOCKS: usize = 8;

impl<M: Memory> Group<M> {
    /// Determines the possible senders to this member, before any object is known.
    pub(super) fn find_sources(&mut self) {
        let own = self.config.own;
        for blocks in [1, SAMPLE_BLOCKS] {
            if let Some(first) = self.schedule.first_block(own, blocks)
                && !self.first_senders.contains(&first.from)
            {
                self.first_senders.push(first.from);
            }
            for step in 0..self.schedule.steps(blocks) {
                if let Some(found) = self.schedule.incoming(own, blocks, step) {
                    self.sources.set(found.peer);
                }
            }
        }
    }

    /// Records an object that has become known.
    pub(super) fn add_object(&mut self, object: u32, shape: Shape) {
        let steps = match self.schedule.relays(self.config.own) {
            true => self.schedule.steps(shape.blocks),
            false => 0,
        };
        let active = self.active_mut(object);
        debug_assert!(active.shape.is_none(), "an object has one shape");
        (active.shape, active.steps) = (Some(shape), steps);
        // Objects before this one are known to exist now, although they were not announced.
        let from = HaveWord::first_of(object.min(self.known));
        self.known = self.known.max(object + 1);
        self.queue_first_tokens();
        if !self.failures.is_empty() {
            // The survivors wait for a report of the blocks that this member holds, even if none.
            self.peers.iter_mut().for_each(|peer| peer.report_from(from));
            self.queue_state_to_all();
        }
    }

    //= spec/bulk.md#R9
    //= spec/bulk.md#R14
    /// Checks the extent of an active object and returns its shape if the object may have memory. A
    /// new object is announced to the application.
    pub(super) fn on_extent(&mut self, object: u32, extent: Extent) -> Option<Shape> {
        let active = self.get(object)?;
        if let Some(shape) = active.shape {
            let is_same = shape.extent == extent;
            self.stats.violations += u64::from(!is_same);
            return is_same.then_some(shape);
        }
        if self.config.own == 0 {
            // A peer cannot know an object that the root has not sent.
            self.stats.violations += 1;
            return None;
        }
        let fits = extent.bytes <= self.config.object_len_max;
        let Some(shape) = Shape::new(extent, self.config.piece_len()).filter(|_| fits) else {
            self.leave_with(Reason::Memory);
            return None;
        };
        self.add_object(object, shape);
        let is_enough = |memory: &M| memory.bytes().len() as u64 >= extent.bytes;
        match self.spare.iter().position(is_enough).and_then(|at| self.spare.remove(at)) {
            Some(mut memory) => {
                memory.truncate(extent.bytes as usize);
                self.active_mut(object).object = Some(Object::empty(shape, memory));
                self.on_memory(object);
            }
            None => self.events.push_back(Event::Announced { object, bytes: extent.bytes }),
        }
        Some(shape)
    }

    /// Starts the reception of an object that has got memory.
    pub(super) fn on_memory(&mut self, object: u32) {
        debug_assert!(self.object_mut(object).is_some(), "the object has memory");
        for source in self.ranks() {
            if self.sources.has(source) {
                self.queue_tokens(source, object);
            }
        }
        if let Some(staged) = self.staged.take_if(|staged| staged.header.object == object) {
            let bytes = core::mem::take(&mut self.staged_bytes);
            self.fill(staged.from, &staged.header, Payload::InFrame(&bytes));
            self.staged_bytes = bytes;
        }
        let missed = core::mem::take(&mut self.active_mut(object).missed);
        for (from, block) in missed {
            self.request_block(from, object, block);
        }
        self.request_missing();
    }

    pub(super) fn on_piece(&mut self, from: u32, header: &BulkPieceHeader, bytes: Payload<'_>) {
        let Some(shape) = self.on_extent(header.object, header.extent) else { return };
        self.sources.set(from);
        if header.is_offer {
            return self.queue_state(from);
        }
        if header.block >= shape.blocks {
            // A piece without data may lie at the end of the object.
            self.stats.violations += 1;
            return;
        }
        let at = shape.piece_at(header.block, header.offset, bytes.len());
        let has_memory = self.get(header.object).is_some_and(|active| active.object.is_some());
        match bytes {
            // The block could not be placed yet: request it again from its sender.
            Payload::InFrame(_) if at.is_none() && self.config.is_shared => {
                self.request_missed(from, header.object, header.block);
            }
            _ if at.is_none() => self.stats.violations += 1,
            bytes if has_memory => self.fill(from, header, bytes),
            Payload::InFrame(bytes) => self.stage_piece(from, *header, bytes),
            // The object has been released, and its memory with it.
            Payload::Placed(_) => {}
        }
    }

    //= spec/bulk.md#R18
    /// Buffers one piece until there is memory. Further blocks are requested again then.
    fn stage_piece(&mut self, from: u32, header: BulkPieceHeader, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.config.piece_len() as usize, "a piece at most");
        if self.staged.is_none() {
            self.staged = Some(Staged { from, header });
            self.staged_bytes.clear();
            self.staged_bytes.extend_from_slice(bytes);
            return;
        }
        self.request_missed(from, header.object, header.block);
    }

    //= spec/bulk.md#R18
    /// Requests a block that could not be received, as soon as there is memory.
    fn request_missed(&mut self, from: u32, object: u32, block: u32) {
        let active = self.active_mut(object);
        if active.object.is_some() {
            return self.request_block(from, object, block);
        }
        if active.missed.len() < MISSED_BLOCKS && !active.missed.contains(&(from, block)) {
            active.missed.push((from, block));
        }
    }

    /// Adds a piece to an object that has memory.
    pub(super) fn fill(&mut self, from: u32, header: &BulkPieceHeader, bytes: Payload<'_>) {
        let BulkPieceHeader { object, block, offset, digest, ordinal, .. } = *header;
        let Some(body) = self.object_mut(object) else { return };
        let Some(piece) = body.shape.piece_at(block, offset, bytes.len()) else { return };
        let result = match bytes {
            Payload::InFrame(bytes) => body.insert_piece(block, piece, digest, Some(bytes)),
            Payload::Placed(_) if body.end_placement(block, piece) => {
                body.insert_piece(block, piece, digest, None)
            }
            Payload::Placed(_) => return,
        };
        let is_done = body.held.has(block) || result == PieceResult::Corrupt;
        match result {
            PieceResult::Duplicate => self.stats.pieces_duplicate += 1,
            PieceResult::Accepted => self.stats.bytes_received += bytes.len() as u64,
            PieceResult::BlockComplete => {
                self.stats.bytes_received += bytes.len() as u64;
                self.on_block_complete(object, block);
            }
            //= spec/bulk.md#R11
            PieceResult::Corrupt => {
                self.stats.blocks_corrupt += 1;
                // The root has the original.
                let source = if self.has_failed.has(0) { from } else { 0 };
                self.clear_requested(object, block);
                self.request_block(source, object, block);
            }
        }
        if is_done && ordinal != BulkPieceHeader::REQUESTED {
            let flow = self.peer(from).flow(object);
            if flow.consumed <= ordinal {
                flow.consumed = ordinal + 1;
                self.queue_tokens(from, object);
            }
        }
    }

    /// Handles the completion of a block.
    fn on_block_complete(&mut self, object: u32, block: u32) {
        debug_assert!(self.holds(object, block), "the block is here");
        self.clear_requested(object, block);
        // The block may be due to any member with queued work. `transmit` clears the others.
        for rank in self.ranks() {
            let peer = &self.peers[rank as usize];
            if !peer.queue.is_empty() || !peer.wanted.is_empty() {
                self.ready.set(rank);
            }
        }
        if !self.failures.is_empty() {
            self.queue_have(HaveWord { object, word: block / 64 });
            self.request_missing();
        }
        if self.object_mut(object).is_some_and(|object| object.missing == 0) {
            self.advance();
        }
    }

    fn clear_requested(&mut self, object: u32, block: u32) {
        if let Some(body) = self.object_mut(object)
            && body.requested.has(block)
        {
            body.requested.clear(block);
            self.peers
                .iter_mut()
                .for_each(|peer| peer.on_block_complete(BlockId { object, block }));
        }
    }

    /// Requests a block from a member.
    pub(super) fn request_block(&mut self, rank: u32, object: u32, block: u32) {
        let is_missing = self.object_mut(object).is_some_and(|body| !body.held.has(block));
        if !is_missing || !self.is_live_peer(rank) {
            return;
        }
        if let Some(body) = self.object_mut(object) {
            body.requested.set(block);
        }
        self.stats.blocks_requested += 1;
        self.peer(rank).request(BlockId { object, block });
        self.ready.set(rank);
    }
}
