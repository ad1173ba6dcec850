//! Output: control frames first, then pieces in the order of the schedule.

use onepipe_base::Now;
use onepipe_wire::BulkPieceHeader;

use super::Group;
use super::control::Output;
use super::placement::Gathered;
use crate::Memory;
use crate::config::PIECE_FRONT_LEN;
use crate::object::BlockId;
use crate::session::{Item, Piece};
use crate::transfers::Order;

impl<M: Memory> Group<M> {
    //= spec/bulk.md#R19
    /// Returns the next frame. With `may_gather` the data of a piece is left in its object.
    pub(super) fn transmit(
        &mut self,
        now: Now,
        slot: &mut [u8],
        may_gather: bool,
    ) -> Option<Gathered> {
        if let Some(sent) = self.write_refusal(slot) {
            return Some(sent.into());
        }
        self.fill_queues();
        let mut best: Option<(Order, u32)> = None;
        for word in 0..self.peers.ready().words().len() {
            let mut left = self.peers.ready().words()[word];
            while left != 0 {
                let rank = word as u32 * 64 + left.trailing_zeros();
                left &= left - 1;
                if self.peers[rank].has_failed {
                    self.peers.clear_ready(rank);
                    continue;
                }
                if self.peers[rank].is_blocked {
                    continue;
                }
                if let Some(sent) = self.write_control(Output { now, rank, slot: &mut *slot }) {
                    return Some(sent.into());
                }
                match self.next_transfer(rank) {
                    Some(order) if best.is_none_or(|(least, _)| order < least) => {
                        best = Some((order, rank));
                    }
                    Some(_) => {}
                    // Any change that enables a transfer sets the bit again.
                    None => self.peers.clear_ready(rank),
                }
            }
        }
        let (_, rank) = best?;
        debug_assert!(self.membership.is_live_peer(rank), "pieces go to live members");
        self.write_piece(Output { now, rank, slot }, may_gather)
    }

    //= spec/bulk.md#R19
    /// Returns the order of the next piece for a member, if one may be sent.
    fn next_transfer(&mut self, rank: u32) -> Option<Order> {
        let bytes = PIECE_FRONT_LEN + self.config.frame_data_max();
        let (peer, window) = (&mut self.peers[rank], &self.window);
        peer.next_transfer(bytes, window.stable(), |block| window.holds(block))
    }

    /// Writes the piece that [`Group::next_transfer`] has chosen.
    fn write_piece(&mut self, output: Output<'_>, may_gather: bool) -> Option<Gathered> {
        let Output { now, rank, slot } = output;
        let pieces = |block: BlockId| Some(self.window.shape(block.object)?.pieces(block.block));
        let piece = self.peers[rank].transfers.take(pieces)?;
        let (item, Piece { block: BlockId { object, block }, piece, ordinal }) =
            (Item::Piece(piece), piece);
        debug_assert!(object >= self.window.stable(), "transfers of stable objects are dropped");
        let body = self.window.body_mut(object)?;
        debug_assert!(body.held.has(block), "a block is sent after it was received");
        let (shape, digest) = (body.shape, body.digest(block));
        let range = shape.piece(block, piece);
        debug_assert!(piece < shape.pieces(block), "a transfer ends with its last piece");
        let header = BulkPieceHeader {
            object,
            extent: shape.extent,
            digest,
            block,
            offset: (range.start - shape.range(block).start) as u32,
            ordinal,
            is_offer: false,
        };
        self.stats.pieces_sent += 1;
        //= spec/bulk.md#R15
        let is_detached = may_gather || self.config.is_shared;
        let detached_len = if self.config.is_shared { 0 } else { range.len() };
        let write = |_: &Self, space: &mut [u8]| {
            header.write(space).map(|_| onepipe_wire::BULK_PIECE_HEADER_LEN)
        };
        let output = Output { now, rank, slot: &mut *slot };
        let mut sent = self.write_detached(output, Some(item), Some(detached_len), write)?;
        if is_detached {
            return Some(Gathered { header: sent, payload: Some((object, range)) });
        }
        // The frame's check only covers its headers; the digest of the block covers the data, as
        // for data that is placed.
        let bytes = &self.window.body(object)?.memory.bytes()[range];
        slot.get_mut(sent.bytes..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        sent.bytes += bytes.len();
        Some(sent.into())
    }

    /// Schedules the retransmission of the content of lost frames.
    pub(super) fn on_lost(&mut self, rank: u32) {
        if self.lost.is_empty() {
            return;
        }
        self.stats.frames_lost += self.lost.len() as u64;
        self.peers.set_ready(rank);
        let peer = &mut self.peers[rank];
        self.lost.drain(..).for_each(|item| peer.on_lost(item));
    }

    /// Adds the next deadline of the link to `rank`.
    pub(super) fn update_deadline(&mut self, rank: u32) {
        self.timers.lower_to(self.peers[rank].due_at());
    }
}
