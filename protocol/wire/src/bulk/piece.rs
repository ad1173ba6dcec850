//! Pieces of blocks.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{check, layout, read};
use crate::DecodeError;

/// Bytes of a piece's header, behind the front.
pub const BULK_PIECE_HEADER_LEN: usize = 40;

/// What there is to know of an object before its first byte has come. It travels with everything
/// that speaks of the object, so that whatever comes first announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Bytes of the object, possibly none.
    pub bytes: u64,
    /// Bytes of each of its blocks but the last, at least 1.
    pub block_len: u32,
    /// Whether each block has a digest: XXH3-64, with the block's number as seed.
    pub has_digests: bool,
}

impl Extent {
    pub(super) const DIGESTS: u8 = 1;

    pub(super) fn kind(&self) -> u8 {
        if self.has_digests { Self::DIGESTS } else { 0 }
    }

    pub(super) fn read(bytes: U64, block_len: U32, kind: u8) -> Result<Self, DecodeError> {
        check(kind <= Self::DIGESTS, "digest plan", kind.into())?;
        check(block_len.get() > 0, "bytes of a block", 0)?;
        let has_digests = kind == Self::DIGESTS;
        Ok(Self { bytes: bytes.get(), block_len: block_len.get(), has_digests })
    }
}

layout!(Layout, 40 {
    bytes: U64,
    digest: U64,
    object: U32,
    block_len: U32,
    block: U32,
    offset: U32,
    ordinal: U32,
    kind: u8,
    offers: u8,
    reserved: [u8; 2],
});

/// What stands before the bytes of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkPieceHeader {
    /// The object, numbered from 0 in the order in which the root sends.
    pub object: u32,
    /// How large it is.
    pub extent: Extent,
    /// Digest of the whole block, as the root has made it; 0 without digests.
    pub digest: u64,
    /// Which block.
    pub block: u32,
    /// Where in the block this piece begins.
    pub offset: u32,
    /// The block's place among those that the sender has for the receiver by the schedule;
    /// [`BulkPieceHeader::REQUESTED`] if the receiver has asked for it.
    pub ordinal: u32,
    /// Nothing but an announcement: the sender has a block, and no token to send it.
    pub offers: bool,
}

impl BulkPieceHeader {
    /// Stands for no place in the schedule.
    pub const REQUESTED: u32 = u32::MAX;

    /// Writes it to the front of `buf`. Answers what is left, or `None` when `buf` is too small.
    pub fn write<'a>(&self, buf: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let layout = Layout {
            bytes: U64::new(self.extent.bytes),
            digest: U64::new(self.digest),
            object: U32::new(self.object),
            block_len: U32::new(self.extent.block_len),
            block: U32::new(self.block),
            offset: U32::new(self.offset),
            ordinal: U32::new(self.ordinal),
            kind: self.extent.kind(),
            offers: self.offers.into(),
            reserved: [0; 2],
        };
        let (front, rest) = buf.split_at_mut_checked(BULK_PIECE_HEADER_LEN)?;
        front.copy_from_slice(layout.as_bytes());
        Some(rest)
    }
}

/// A piece, still where it was read from.
#[derive(Clone, Copy, Debug)]
pub struct BulkPiece<'a> {
    /// What it is.
    pub header: BulkPieceHeader,
    /// Its bytes; none of an offer, or of an object without any.
    pub bytes: &'a [u8],
}

impl<'a> BulkPiece<'a> {
    /// Reads what stands behind the front in a frame with opcode [`crate::Opcode::BulkPiece`].
    ///
    /// # Errors
    /// When it is too short, or does not lie within its block and its object.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let (layout, bytes) = read::<Layout>(rest, "piece of a block")?;
        let extent = Extent::read(layout.bytes, layout.block_len, layout.kind)?;
        check(layout.offers <= 1, "offer", layout.offers.into())?;
        let header = BulkPieceHeader {
            object: layout.object.get(),
            extent,
            digest: layout.digest.get(),
            block: layout.block.get(),
            offset: layout.offset.get(),
            ordinal: layout.ordinal.get(),
            offers: layout.offers == 1,
        };
        let in_block = u64::from(header.offset) + bytes.len() as u64;
        check(in_block <= extent.block_len.into(), "end of a piece", in_block)?;
        let before = u64::from(header.block) * u64::from(extent.block_len);
        check(before + in_block <= extent.bytes, "end of a piece", before + in_block)?;
        Ok(Self { header, bytes })
    }
}
