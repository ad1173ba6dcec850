//! An object: its division into blocks and pieces, and its reassembly.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use onepipe_wire::Extent;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::memory::Memory;
use crate::schedule::BLOCKS_MAX;
use onepipe_reliability::BitSet;

/// Block of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockId {
    pub object: u32,
    pub block: u32,
}

/// Word of the held blocks of an object, in the order in which words are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HaveWord {
    pub object: u32,
    pub word: u32,
}

impl HaveWord {
    /// Returns the first word of an object.
    pub fn first_of(object: u32) -> Self {
        Self { object, word: 0 }
    }
}

/// Division of an object into blocks, and of the blocks into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub extent: Extent,
    piece_len: u32,
    pub blocks: u32,
}

impl Shape {
    /// Returns `None` if there would be too many blocks.
    pub fn new(extent: Extent, piece_len: u32) -> Option<Self> {
        // An empty object has one empty block, so that a frame announces it.
        let blocks = extent.bytes.div_ceil(extent.block_len.into()).max(1);
        let pieces = extent.bytes.div_ceil(piece_len.into()).max(1) + blocks;
        debug_assert!(extent.block_len > 0 && piece_len > 0, "the wire refuses empty blocks");
        let is_possible = blocks <= BLOCKS_MAX.into() && u32::try_from(pieces).is_ok();
        is_possible.then_some(Self { extent, piece_len, blocks: blocks as u32 })
    }

    /// Returns the byte range of a block in the object.
    pub fn range(&self, block: u32) -> Range<usize> {
        let each = u64::from(self.extent.block_len);
        debug_assert!(block < self.blocks, "the object has the block");
        let at = |block: u64| (block * each).min(self.extent.bytes) as usize;
        at(block.into())..at(u64::from(block) + 1)
    }

    /// Returns the number of pieces of a block, at least one.
    pub fn pieces(&self, block: u32) -> u32 {
        (self.range(block).len() as u32).div_ceil(self.piece_len).max(1)
    }

    /// Returns the byte range of a piece in the object.
    pub fn piece(&self, block: u32, piece: u32) -> Range<usize> {
        let range = self.range(block);
        let at = |piece: usize| (range.start + piece * self.piece_len as usize).min(range.end);
        at(piece as usize)..at(piece as usize + 1)
    }

    /// Returns the length of the piece at `offset` of a block.
    pub fn piece_len_at(&self, block: u32, offset: u32) -> Option<usize> {
        (block < self.blocks).then(|| self.piece(block, offset / self.piece_len).len())
    }

    /// Returns the index of the piece at `offset` of a block if its length matches.
    pub fn piece_at(&self, block: u32, offset: u32, bytes: usize) -> Option<u32> {
        let piece = offset / self.piece_len;
        let is_known = block < self.blocks
            && offset.is_multiple_of(self.piece_len)
            && piece < self.pieces(block);
        (is_known && self.piece(block, piece).len() == bytes).then_some(piece)
    }

    /// Returns the index of a block's first piece among all pieces of the object.
    fn first_piece(&self, block: u32) -> u32 {
        block * self.extent.block_len.div_ceil(self.piece_len)
    }
}

/// Result of inserting a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceResult {
    /// The piece was there already, or is being written in place.
    Duplicate,
    /// The block lacks further pieces.
    Accepted,
    /// The block is complete.
    BlockComplete,
    /// The block was complete but its digest is wrong: all its pieces were dropped.
    Corrupt,
}

/// Object with memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object<M> {
    pub shape: Shape,
    pub memory: M,
    /// Complete blocks.
    pub held: BitSet,
    /// Number of incomplete blocks.
    pub missing: u32,
    /// Blocks requested from other members.
    pub requested: BitSet,
    /// Pieces, as block and index, that are being written in place.
    placements: Vec<(u32, u32)>,
    /// Pieces received.
    pieces: BitSet,
    /// Number of missing pieces by block.
    missing_pieces: Vec<u32>,
    /// Digest by block; at the root, only of the blocks in `is_digested`.
    digests: Vec<u64>,
    is_digested: BitSet,
}

impl<M: Memory> Object<M> {
    /// Creates an object without any blocks. `memory` has the length of the object.
    pub fn empty(shape: Shape, memory: M) -> Self {
        let blocks = shape.blocks;
        debug_assert_eq!(memory.bytes().len() as u64, shape.extent.bytes, "memory of its length");
        let pieces = shape.first_piece(blocks - 1) + shape.pieces(blocks - 1);
        Self {
            memory,
            held: BitSet::new(blocks),
            missing: blocks,
            requested: BitSet::new(blocks),
            placements: Vec::new(),
            pieces: BitSet::new(pieces),
            missing_pieces: (0..blocks).map(|block| shape.pieces(block)).collect(),
            digests: vec![0; blocks as usize],
            is_digested: BitSet::new(blocks),
            shape,
        }
    }

    /// Creates a complete object.
    pub fn complete(shape: Shape, memory: M) -> Self {
        debug_assert_eq!(memory.bytes().len() as u64, shape.extent.bytes, "memory of its length");
        let mut held = BitSet::new(shape.blocks);
        held.set_all();
        Self {
            memory,
            held,
            missing: 0,
            requested: BitSet::default(),
            placements: Vec::new(),
            pieces: BitSet::default(),
            missing_pieces: Vec::new(),
            digests: vec![0; shape.blocks as usize],
            is_digested: BitSet::new(shape.blocks),
            shape,
        }
    }

    /// Starts the placement of a piece: the caller writes it to [`Self::placement_mut`] until
    /// [`Self::end_placement`]. Returns `false` if the piece is there already, is being placed, or
    /// has another digest.
    pub fn begin_placement(&mut self, block: u32, piece: u32, digest: u64) -> bool {
        let is_known =
            self.held.has(block) || self.pieces.has(self.shape.first_piece(block) + piece);
        let is_other = self.is_digested.has(block) && self.digests[block as usize] != digest;
        if is_known || is_other || self.placements.contains(&(block, piece)) {
            return false;
        }
        self.placements.push((block, piece));
        true
    }

    /// Returns the memory of a piece that is being placed.
    pub fn placement_mut(&mut self, block: u32, piece: u32) -> Option<&mut [u8]> {
        let is_placing = self.placements.contains(&(block, piece));
        let range = self.shape.piece(block, piece);
        self.memory.bytes_mut().filter(|_| is_placing)?.get_mut(range)
    }

    /// Ends the placement of a piece. Returns whether the piece was being placed.
    pub fn end_placement(&mut self, block: u32, piece: u32) -> bool {
        let at = self.placements.iter().position(|placed| *placed == (block, piece));
        at.is_some_and(|at| self.placements.swap_remove(at) == (block, piece))
    }

    /// Inserts a piece. `bytes` is `None` if the piece was placed.
    pub fn insert_piece(
        &mut self,
        block: u32,
        piece: u32,
        digest: u64,
        bytes: Option<&[u8]>,
    ) -> PieceResult {
        debug_assert!(piece < self.shape.pieces(block), "the block has the piece");
        // A piece that is being placed is awaited: either its link delivers it, or it is abandoned.
        if self.held.has(block) || self.placements.contains(&(block, piece)) {
            return PieceResult::Duplicate;
        }
        let is_first = self.is_digested.set(block);
        let known = &mut self.digests[block as usize];
        if core::mem::replace(known, digest) != digest && !is_first {
            // Two senders disagree, so none of the pieces received before can be trusted.
            self.reset_block(block);
            self.is_digested.set(block);
        }
        if !self.pieces.set(self.shape.first_piece(block) + piece) {
            return PieceResult::Duplicate;
        }
        let piece_len = self.shape.piece(block, piece).len();
        debug_assert!(bytes.is_none_or(|bytes| bytes.len() == piece_len), "a piece is whole");
        if let Some(bytes) = bytes
            && let Some(memory) = self.memory.bytes_mut()
        {
            memory[self.shape.piece(block, piece)].copy_from_slice(bytes);
        }
        let left = &mut self.missing_pieces[block as usize];
        debug_assert!(*left > 0, "a complete block accepts no piece");
        *left -= 1;
        if *left > 0 {
            return PieceResult::Accepted;
        }
        //= spec/bulk.md#R11
        if self.shape.extent.has_digests && self.hash(block) != digest {
            self.reset_block(block);
            return PieceResult::Corrupt;
        }
        let is_new = self.held.set(block);
        debug_assert!(is_new && self.missing > 0, "a block is completed once");
        self.missing -= 1;
        PieceResult::BlockComplete
    }

    fn reset_block(&mut self, block: u32) {
        debug_assert!(!self.held.has(block), "a verified block is never dropped");
        let (first, count) = (self.shape.first_piece(block), self.shape.pieces(block));
        (first..first + count).for_each(|piece| self.pieces.clear(piece));
        self.missing_pieces[block as usize] = count;
        self.is_digested.clear(block);
    }

    fn hash(&self, block: u32) -> u64 {
        xxh3_64_with_seed(&self.memory.bytes()[self.shape.range(block)], block.into())
    }

    /// Returns the digest of a complete block. The root computes it on first use.
    pub fn digest(&mut self, block: u32) -> u64 {
        debug_assert!(self.held.has(block), "only a complete block has a digest");
        if self.shape.extent.has_digests && self.is_digested.set(block) {
            self.digests[block as usize] = self.hash(block);
        }
        self.digests[block as usize]
    }

    /// Returns a digest of the complete object, chained to the digest of all earlier objects.
    pub fn chain_digest(&mut self, before: u64) -> u64 {
        let mut all = xxh3_64_with_seed(&self.shape.extent.bytes.to_be_bytes(), before);
        debug_assert_eq!(self.missing, 0, "only a complete object has a digest");
        for block in 0..self.shape.blocks {
            // An odd factor and a rotation make the result depend on the order of the digests.
            all = (all ^ self.digest(block)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        all
    }

    /// Panics if the counts of blocks and pieces contradict their bit sets. Takes time linear in
    /// the blocks.
    pub fn check_invariants(&self) {
        let blocks = self.shape.blocks;
        assert_eq!(self.missing, blocks - self.held.count_ones(), "missing blocks are not held");
        let bytes = self.memory.bytes().len() as u64;
        assert_eq!(bytes, self.shape.extent.bytes, "the memory has the announced length");
        if self.missing_pieces.is_empty() {
            assert_eq!(self.missing, 0, "an own object is complete");
            return;
        }
        let missing_pieces = |block: u32| self.missing_pieces[block as usize];
        let pieces: u32 = (0..blocks).map(|block| self.shape.pieces(block)).sum();
        let missing: u32 = (0..blocks).map(missing_pieces).sum();
        assert_eq!(self.pieces.count_ones(), pieces - missing, "a piece is missing or received");
        for block in 0..blocks {
            let is_held = self.held.has(block);
            assert_eq!(is_held, missing_pieces(block) == 0, "a block is held with all its pieces");
            assert!(!is_held || self.is_digested.has(block), "a held block has a digest");
        }
        for (block, piece) in &self.placements {
            assert!(*piece < self.shape.pieces(*block), "a placement is in its block");
            let at = self.shape.first_piece(*block) + piece;
            assert!(!self.pieces.has(at), "a piece that is being placed was not received");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(bytes: u64, block_len: u32, piece_len: u32) -> Shape {
        let extent = Extent { bytes, block_len, has_digests: true };
        Shape::new(extent, piece_len).expect("few blocks")
    }

    #[test]
    fn pieces_cover_the_object_once() {
        for (bytes, block, piece) in
            [(0, 7, 3), (1, 7, 3), (6, 7, 3), (7, 7, 3), (8, 7, 3), (100, 10, 10), (100, 9, 64)]
        {
            let shape = shape(bytes, block, piece);
            let mut next = 0;
            for at in 0..shape.blocks {
                for piece in 0..shape.pieces(at) {
                    let range = shape.piece(at, piece);
                    assert_eq!(range.start, next);
                    let offset = (range.start - shape.range(at).start) as u32;
                    assert_eq!(shape.piece_at(at, offset, range.len()), Some(piece));
                    assert_eq!(shape.piece_at(at, offset, range.len() + 1), None);
                    next = range.end;
                }
                assert_eq!(shape.piece_at(at, block, 0), None);
            }
            assert_eq!((next as u64, shape.piece_at(shape.blocks, 0, 0)), (bytes, None));
        }
    }

    #[test]
    fn corrupt_block_is_dropped_with_last_piece() {
        let shape = shape(20, 8, 3);
        let memory: Vec<u8> = (0..20).collect();
        let mut root = Object::complete(shape, memory.clone());
        let mut copy = Object::empty(shape, vec![0; 20]);
        let digest = root.digest(1);
        let piece = |at| Some(&memory[shape.piece(1, at)]);
        assert_eq!(copy.insert_piece(1, 2, digest, piece(2)), PieceResult::Accepted);
        assert_eq!(copy.insert_piece(1, 2, digest, piece(2)), PieceResult::Duplicate);
        assert_eq!(copy.insert_piece(1, 0, digest, Some(&[9, 9, 9])), PieceResult::Accepted);
        assert_eq!(copy.insert_piece(1, 1, digest, piece(1)), PieceResult::Corrupt);
        // A piece with another digest drops the pieces before.
        assert_eq!(copy.insert_piece(1, 0, digest ^ 1, piece(0)), PieceResult::Accepted);
        for at in [1, 0] {
            assert_eq!(copy.insert_piece(1, at, digest, piece(at)), PieceResult::Accepted);
        }
        assert_eq!(copy.insert_piece(1, 2, digest, piece(2)), PieceResult::BlockComplete);
        assert_eq!(
            (copy.missing, copy.insert_piece(1, 2, digest, piece(2))),
            (2, PieceResult::Duplicate)
        );
        for block in [0, 2] {
            let digest = root.digest(block);
            for at in 0..shape.pieces(block) {
                copy.insert_piece(block, at, digest, Some(&memory[shape.piece(block, at)]));
            }
        }
        assert_eq!((copy.missing, &copy.memory), (0, &memory));
        assert_eq!(copy.chain_digest(5), root.chain_digest(5));
        assert_ne!(copy.chain_digest(5), root.chain_digest(6));
    }

    #[test]
    fn piece_has_one_placement_at_a_time() {
        let shape = shape(20, 8, 3);
        let memory: Vec<u8> = (0..20).collect();
        let mut root = Object::complete(shape, memory.clone());
        let mut copy = Object::empty(shape, vec![0; 20]);
        let digest = root.digest(2);
        assert!(copy.begin_placement(2, 0, digest) && !copy.begin_placement(2, 0, digest));
        let piece = |at| Some(&memory[shape.piece(2, at)]);
        assert_eq!(
            copy.insert_piece(2, 0, digest, piece(0)),
            PieceResult::Duplicate,
            "being placed"
        );
        assert_eq!(copy.insert_piece(2, 1, digest, piece(1)), PieceResult::Accepted);
        assert!(
            !copy.begin_placement(2, 1, digest) && copy.placement_mut(2, 1).is_none(),
            "received already"
        );
        copy.placement_mut(2, 0).expect("being placed").copy_from_slice(&memory[16..19]);
        assert!(
            copy.end_placement(2, 0)
                && !copy.end_placement(2, 0)
                && copy.placement_mut(2, 0).is_none()
        );
        assert_eq!(copy.insert_piece(2, 0, digest, None), PieceResult::BlockComplete);
        assert!(
            !copy.begin_placement(2, 0, digest) && !copy.begin_placement(1, 0, digest ^ 1)
                || copy.end_placement(1, 0)
        );
        // An abandoned placement can be repeated. Pieces with different digests are not mixed.
        let digest = root.digest(0);
        assert!(
            copy.begin_placement(0, 0, digest)
                && copy.end_placement(0, 0)
                && copy.begin_placement(0, 0, digest)
        );
        assert_eq!(copy.insert_piece(0, 1, digest, Some(&memory[3..6])), PieceResult::Accepted);
        assert!(!copy.begin_placement(0, 2, digest ^ 1));
    }
}
