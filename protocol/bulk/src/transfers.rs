//! Transfers of blocks to a peer: lost pieces first, then requested blocks, then the schedule.

use alloc::collections::VecDeque;

use onepipe_wire::BulkPieceHeader;

use crate::config::SHARED_BLOCKS_MAX;
use crate::object::BlockId;
use crate::session::Piece;

/// Maximum number of scheduled blocks queued for a peer. A slow peer may lag by this many blocks
/// before it delays the others.
pub(crate) const QUEUE_BLOCKS: usize = 64;
/// Maximum number of blocks that a peer may request at a time. More violates the protocol.
const PEER_REQUESTS_MAX: usize = 64;

/// Position of a transfer in the order of all transfers of this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Order {
    pub object: u32,
    pub step: u64,
}

impl Order {
    /// Order of lost pieces and requested blocks: before all scheduled ones.
    const FIRST: Self = Self { object: 0, step: 0 };
}

/// Transfer of a block to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockTransfer {
    pub order: Order,
    pub block: BlockId,
    /// Ordinal among the scheduled blocks of the object for this peer.
    pub ordinal: u32,
    /// Next piece to be sent.
    next_piece: u32,
}

impl BlockTransfer {
    pub fn new(order: Order, block: BlockId, ordinal: u32) -> Self {
        Self { order, block, ordinal, next_piece: 0 }
    }
}

/// Transfers to a peer, in progress and pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Transfers {
    /// Pieces of lost frames.
    lost: VecDeque<Piece>,
    /// Transfer in progress.
    current: Option<BlockTransfer>,
    /// Blocks requested by the peer.
    wanted: VecDeque<BlockId>,
    /// Scheduled transfers.
    queue: VecDeque<BlockTransfer>,
}

impl Transfers {
    /// Returns the number of scheduled transfers.
    #[inline]
    pub fn scheduled(&self) -> usize {
        self.queue.len()
    }

    /// Returns the next scheduled transfer.
    #[inline]
    pub fn next_scheduled(&self) -> Option<&BlockTransfer> {
        self.queue.front()
    }

    /// Returns whether a block that is completed here may be due to the peer.
    #[inline]
    pub fn awaits_block(&self) -> bool {
        !self.queue.is_empty() || !self.wanted.is_empty()
    }

    /// Adds a scheduled transfer.
    #[inline]
    pub fn schedule(&mut self, transfer: BlockTransfer) {
        debug_assert_eq!(transfer.next_piece, 0, "a transfer begins with its first piece");
        if self.queue.capacity() == 0 {
            self.queue.reserve(QUEUE_BLOCKS);
        }
        self.queue.push_back(transfer);
    }

    /// Handles a request for a block.
    pub fn on_request(&mut self, wanted: BlockId) {
        if self.wanted.len() < PEER_REQUESTS_MAX && !self.wanted.contains(&wanted) {
            self.wanted.push_back(wanted);
        }
    }

    /// Handles the loss of a piece.
    pub fn on_lost(&mut self, piece: Piece) {
        self.lost.push_back(piece);
    }

    //= spec/bulk.md#R19
    /// Chooses the next piece, and returns its order. `stable` is the first active object. `holds`
    /// returns whether this member holds a block; `has_token`, whether a scheduled block may go.
    pub fn choose(
        &mut self,
        stable: u32,
        holds: impl Fn(BlockId) -> bool,
        has_token: impl FnMut(&BlockTransfer) -> bool,
    ) -> Option<Order> {
        while let Some(piece) = self.lost.front() {
            if holds(piece.block) {
                return Some(Order::FIRST);
            }
            self.lost.pop_front();
        }
        self.current.take_if(|due| !holds(due.block));
        if self.current.is_none() {
            self.current = self
                .take_requested(stable, &holds)
                .or_else(|| self.take_scheduled(stable, &holds, has_token));
        }
        self.current.map(|due| due.order)
    }

    /// Returns the next requested block that this member holds.
    fn take_requested(
        &mut self,
        stable: u32,
        holds: impl Fn(BlockId) -> bool,
    ) -> Option<BlockTransfer> {
        self.wanted.retain(|wanted| wanted.object >= stable);
        let at = self.wanted.iter().position(|wanted| holds(*wanted))?;
        let block = self.wanted.remove(at)?;
        Some(BlockTransfer::new(Order::FIRST, block, BulkPieceHeader::REQUESTED))
    }

    //= spec/bulk.md#R16
    /// Returns the next scheduled block, if this member holds it and has a token for it.
    fn take_scheduled(
        &mut self,
        stable: u32,
        holds: impl Fn(BlockId) -> bool,
        mut has_token: impl FnMut(&BlockTransfer) -> bool,
    ) -> Option<BlockTransfer> {
        while self.queue.front().is_some_and(|due| due.block.object < stable) {
            self.queue.pop_front();
        }
        self.queue.pop_front_if(|due| holds(due.block) && has_token(due))
    }

    /// Returns the piece that [`Self::choose`] has chosen. `pieces` returns the number of pieces of
    /// a block.
    pub fn take(&mut self, pieces: impl FnOnce(BlockId) -> Option<u32>) -> Option<Piece> {
        if let Some(piece) = self.lost.pop_front() {
            return Some(piece);
        }
        let due = self.current.as_mut()?;
        let piece = Piece { block: due.block, piece: due.next_piece, ordinal: due.ordinal };
        due.next_piece += 1;
        let pieces = pieces(due.block)?;
        debug_assert!(piece.piece < pieces, "a transfer ends with its last piece");
        if due.next_piece == pieces {
            self.current = None;
        }
        Some(piece)
    }

    /// Drops scheduled transfers; requested ones go on.
    pub fn drop_schedule(&mut self) {
        self.queue.clear();
        self.current = self.current.filter(|due| due.ordinal == BulkPieceHeader::REQUESTED);
    }

    /// Drops all transfers.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.current = None;
        self.lost.clear();
        self.wanted.clear();
    }

    /// Panics if the queues contradict their limits. `is_shared`: blocks are queued in their own
    /// order, not in that of the schedule. `has_failed`: nothing is sent to the peer.
    pub fn check_invariants(&self, is_shared: bool, has_failed: bool) {
        let blocks_max = if is_shared { SHARED_BLOCKS_MAX } else { QUEUE_BLOCKS };
        assert!(self.queue.len() <= blocks_max, "a full queue stops the schedule");
        let has_order = self.queue.iter().is_sorted_by(|one, next| one.order < next.order);
        assert!(is_shared || has_order, "scheduled blocks leave in the order of their steps");
        assert!(self.wanted.len() <= PEER_REQUESTS_MAX, "a peer's requests are bounded");
        let is_empty = self.queue.is_empty() && self.current.is_none();
        assert!(!has_failed || is_empty, "nothing is sent to a failed member");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const fn block(block: u32) -> BlockId {
        BlockId { object: 3, block }
    }

    fn scheduled(step: u64) -> BlockTransfer {
        BlockTransfer::new(Order { object: 3, step }, block(step as u32), step as u32)
    }

    //= spec/bulk.md#R19
    #[test]
    fn lost_pieces_and_requests_precede_the_schedule() {
        let mut transfers = Transfers::default();
        transfers.schedule(scheduled(1));
        let lost = Piece { block: block(7), piece: 2, ordinal: 0 };
        transfers.on_lost(lost);
        transfers.on_request(block(9));
        transfers.on_request(block(9));
        let mut sent = Vec::new();
        while transfers.choose(0, |_| true, |_| true).is_some() {
            sent.extend(transfers.take(|_| Some(2)).map(|piece| (piece.block.block, piece.piece)));
        }
        assert_eq!(sent, [(7, 2), (9, 0), (9, 1), (1, 0), (1, 1)]);
        transfers.check_invariants(false, true);
    }

    //= spec/bulk.md#R16
    #[test]
    fn scheduled_block_waits_for_content_and_token() {
        let mut transfers = Transfers::default();
        transfers.schedule(scheduled(1));
        assert_eq!(transfers.choose(0, |_| false, |_| true), None);
        assert_eq!(transfers.choose(0, |_| true, |_| false), None);
        assert!(transfers.awaits_block());
        assert_eq!(transfers.choose(0, |_| true, |_| true), Some(scheduled(1).order));
        assert!(!transfers.awaits_block(), "the transfer is in progress");
        transfers.drop_schedule();
        transfers.schedule(scheduled(2));
        assert_eq!(transfers.choose(4, |_| true, |_| true), None, "the object is stable");
    }
}
