//! Reception of objects: announcement, memory and pieces.

use onepipe_wire::{BulkPieceHeader, Extent};

use super::Group;
use super::active_object::{ActiveObject, MissedBlock};
use super::placement::Payload;
use super::staging::StagedPiece;
use crate::Memory;
use crate::event::{Event, Reason};
use crate::object::{BlockId, HaveWord, PieceResult, Shape};

impl<M: Memory> Group<M> {
    /// Records an object that has become known.
    pub(super) fn add_object(&mut self, object: u32, shape: Shape) {
        let steps = match self.schedule.relays(self.config.own) {
            true => self.schedule.steps(shape.blocks),
            false => 0,
        };
        let from = HaveWord::first_of(self.window.add(object, shape, steps));
        self.queue_first_tokens();
        if self.membership.has_failures() {
            // The survivors wait for a report of the blocks that this member holds, even if none.
            self.peers.iter_mut().for_each(|peer| peer.control.queue_haves_from(from));
            self.peers.queue_state_to_all();
        }
    }

    //= spec/bulk.md#R9
    //= spec/bulk.md#R14
    /// Checks the extent of an active object and returns its shape if the object may have memory. A
    /// new object is announced to the application.
    pub(super) fn on_extent(&mut self, object: u32, extent: Extent) -> Option<Shape> {
        let active = self.window.get(object)?;
        if let Some(shape) = active.shape() {
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
        match self.staging.take_fitting(extent.bytes) {
            Some(memory) => {
                let result = self.window.provide(object, memory);
                debug_assert!(result.is_ok(), "the announced object has no memory yet");
                self.on_memory(object);
            }
            None => self.events.push_back(Event::Announced { object, bytes: extent.bytes }),
        }
        Some(shape)
    }

    /// Starts the reception of an object that has got memory.
    pub(super) fn on_memory(&mut self, object: u32) {
        debug_assert!(self.window.body(object).is_some(), "the object has memory");
        for source in self.peers.ranks() {
            if self.senders.has(source) {
                self.peers.queue_tokens(source, object);
            }
        }
        if let Some((staged, bytes)) = self.staging.take_piece(object) {
            self.fill(staged.from, &staged.header, Payload::InFrame(&bytes));
            self.staging.return_buffer(bytes);
        }
        let missed = self.window.get_mut(object).map(ActiveObject::take_missed);
        for MissedBlock { from, block } in missed.unwrap_or_default() {
            self.request_block(from, BlockId { object, block });
        }
        self.request_missing();
    }

    pub(super) fn on_piece(&mut self, from: u32, header: &BulkPieceHeader, bytes: Payload<'_>) {
        let Some(shape) = self.on_extent(header.object, header.extent) else { return };
        self.senders.add(from);
        if header.is_offer {
            return self.peers.queue_state(from);
        }
        if header.block >= shape.blocks {
            // A piece without data may lie at the end of the object.
            self.stats.violations += 1;
            return;
        }
        let at = shape.piece_at(header.block, header.offset, bytes.len());
        let has_memory = self.window.body(header.object).is_some();
        let block = BlockId { object: header.object, block: header.block };
        match bytes {
            // The block could not be placed yet: request it again from its sender.
            Payload::InFrame(_) if at.is_none() && self.config.is_shared => {
                self.request_missed(from, block);
            }
            _ if at.is_none() => self.stats.violations += 1,
            bytes if has_memory => self.fill(from, header, bytes),
            Payload::InFrame(bytes) => {
                debug_assert!(bytes.len() <= self.config.piece_len() as usize, "a piece at most");
                if !self.staging.stage(StagedPiece { from, header: *header }, bytes) {
                    self.request_missed(from, block);
                }
            }
            // The object has been released, and its memory with it.
            Payload::Placed(_) => {}
        }
    }

    //= spec/bulk.md#R18
    /// Requests a block that could not be received, as soon as there is memory.
    fn request_missed(&mut self, from: u32, missed: BlockId) {
        match self.window.get_mut(missed.object) {
            Some(active) if active.body().is_none() => active.miss(from, missed.block),
            _ => self.request_block(from, missed),
        }
    }

    /// Adds a piece to an object that has memory.
    pub(super) fn fill(&mut self, from: u32, header: &BulkPieceHeader, bytes: Payload<'_>) {
        let BulkPieceHeader { object, block, offset, digest, ordinal, .. } = *header;
        let Some(body) = self.window.body_mut(object) else { return };
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
                self.on_block_complete(BlockId { object, block });
            }
            //= spec/bulk.md#R11
            PieceResult::Corrupt => {
                self.stats.blocks_corrupt += 1;
                // The root has the original.
                let source = if self.membership.has_failed(0) { from } else { 0 };
                self.clear_requested(BlockId { object, block });
                self.request_block(source, BlockId { object, block });
            }
        }
        if is_done && ordinal != BulkPieceHeader::REQUESTED {
            let flow = self.peers[from].flows.get_mut(object);
            if flow.consumed <= ordinal {
                flow.consumed = ordinal + 1;
                self.peers.queue_tokens(from, object);
            }
        }
    }

    /// Handles the completion of a block.
    fn on_block_complete(&mut self, complete: BlockId) {
        debug_assert!(self.window.holds(complete), "the block is here");
        self.clear_requested(complete);
        self.peers.set_ready_with_work();
        if self.membership.has_failures() {
            self.queue_have(HaveWord { object: complete.object, word: complete.block / 64 });
            self.request_missing();
        }
        if self.window.is_complete(complete.object) {
            self.advance();
        }
    }

    fn clear_requested(&mut self, requested: BlockId) {
        if let Some(body) = self.window.body_mut(requested.object)
            && body.requested.has(requested.block)
        {
            body.requested.clear(requested.block);
            self.peers.iter_mut().for_each(|peer| peer.on_block_complete(requested));
        }
    }

    /// Requests a block from a member.
    pub(super) fn request_block(&mut self, rank: u32, missing: BlockId) {
        let body = self.window.body_mut(missing.object);
        let Some(body) = body.filter(|body| !body.held.has(missing.block)) else { return };
        if self.membership.is_live_peer(rank) {
            body.requested.set(missing.block);
            self.stats.blocks_requested += 1;
            self.peers[rank].request(missing);
            self.peers.set_ready(rank);
        }
    }
}
