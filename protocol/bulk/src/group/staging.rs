//! Staging: a piece that was received before its object has memory, and memory that was provided
//! before its object is known.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_wire::BulkPieceHeader;

use crate::Memory;

/// Piece received before its object had memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StagedPiece {
    pub from: u32,
    pub header: BulkPieceHeader,
}

/// A piece that waits for memory, and memory that waits for objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Staging<M> {
    piece: Option<StagedPiece>,
    /// Data of the piece; only its capacity matters if there is none.
    bytes: Vec<u8>,
    spare: VecDeque<M>,
}

impl<M: Memory> Staging<M> {
    /// Creates a stage for a piece of up to `piece_len` bytes.
    pub fn new(piece_len: usize) -> Self {
        Self { piece: None, bytes: Vec::with_capacity(piece_len), spare: VecDeque::new() }
    }

    /// Sets the maximum length of a piece, before the first piece.
    pub fn set_piece_len(&mut self, piece_len: usize) {
        debug_assert!(self.piece.is_none(), "no piece is staged before the group begins");
        debug_assert!(self.bytes.is_empty(), "no piece was staged before the group begins");
        self.bytes.reserve(piece_len);
    }

    pub fn offer_memory(&mut self, memory: M) {
        self.spare.push_back(memory);
    }

    /// Returns the memory that was offered first.
    pub fn take_spare(&mut self) -> Option<M> {
        self.spare.pop_front()
    }

    /// Returns the first memory of at least `bytes` bytes.
    pub fn take_fitting(&mut self, bytes: u64) -> Option<M> {
        let fits = |memory: &M| memory.bytes().len() as u64 >= bytes;
        self.spare.iter().position(fits).and_then(|at| self.spare.remove(at))
    }

    //= spec/bulk.md#R18
    /// Buffers a piece until its object has memory. Returns `false` if another piece is buffered.
    pub fn stage(&mut self, piece: StagedPiece, bytes: &[u8]) -> bool {
        if self.piece.is_some() {
            return false;
        }
        self.piece = Some(piece);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// Returns the piece of an object, and its data, which [`Self::return_buffer`] takes back.
    pub fn take_piece(&mut self, object: u32) -> Option<(StagedPiece, Vec<u8>)> {
        let piece = self.piece.take_if(|piece| piece.header.object == object)?;
        Some((piece, core::mem::take(&mut self.bytes)))
    }

    /// Returns the buffer of a piece for the next one.
    pub fn return_buffer(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.piece.is_none(), "there is one buffer");
        self.bytes = bytes;
    }

    pub fn piece(&self) -> Option<&StagedPiece> {
        self.piece.as_ref()
    }

    /// Panics if the piece is longer than `piece_len`, or comes from this member.
    pub fn check_invariants(&self, own: u32, piece_len: usize) {
        let Some(piece) = &self.piece else { return };
        assert!(piece.from != own, "no piece comes from this member");
        assert!(self.bytes.len() <= piece_len, "a piece at most");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use onepipe_wire::Extent;

    //= spec/bulk.md#R18
    #[test]
    fn one_piece_waits_for_memory_of_its_object() {
        let extent = Extent { bytes: 3, block_len: 3, has_digests: false };
        let header = BulkPieceHeader {
            object: 4,
            extent,
            digest: 0,
            block: 0,
            offset: 0,
            ordinal: 0,
            is_offer: false,
        };
        let mut staging = Staging::<Vec<u8>>::new(3);
        let piece = StagedPiece { from: 1, header };
        assert!(staging.stage(piece, &[1, 2, 3]) && !staging.stage(piece, &[4]));
        staging.check_invariants(0, 3);
        assert_eq!(staging.take_piece(5), None);
        let (staged, bytes) = staging.take_piece(4).expect("its object has memory");
        assert_eq!((staged, bytes.as_slice()), (piece, &[1, 2, 3][..]));
        staging.return_buffer(bytes);
        assert!(staging.stage(piece, &[5]), "the stage is free again");
    }

    #[test]
    fn first_fitting_memory_is_used() {
        let mut staging = Staging::new(3);
        for bytes in [2, 9, 5] {
            staging.offer_memory(vec![0; bytes]);
        }
        assert_eq!(staging.take_fitting(4).map(|memory| memory.len()), Some(9));
        assert_eq!(staging.take_fitting(6), None);
        assert_eq!(staging.take_spare().map(|memory| memory.len()), Some(2));
    }
}
