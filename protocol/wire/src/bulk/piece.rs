//! Pieces of blocks.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{check, layout, read};
use crate::DecodeError;

/// Length of a piece's header, after the bulk header.
pub const BULK_PIECE_HEADER_LEN: usize = 40;

/// Size and digest mode of an object. Every frame about the object carries them, so that any of
/// them can announce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Length of the object, possibly 0.
    pub bytes: u64,
    /// Length of each block but the last, at least 1.
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
        check(kind <= Self::DIGESTS, "digest mode", kind.into())?;
        check(block_len.get() > 0, "block length", 0)?;
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
    is_offer: u8,
    reserved: [u8; 2],
});

/// The header of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkPieceHeader {
    /// The object, numbered from 0 in the order in which the root sends.
    pub object: u32,
    /// Its size.
    pub extent: Extent,
    /// Digest of the whole block, computed by the root; 0 without digests.
    pub digest: u64,
    /// Index of the block.
    pub block: u32,
    /// Offset of the piece in its block.
    pub offset: u32,
    /// Index of the block among those that the schedule assigns from the sender to the receiver;
    /// [`BulkPieceHeader::REQUESTED`] if the receiver has requested it.
    pub ordinal: u32,
    /// Whether this is an offer without bytes: the sender has the block, but no token to send it.
    pub is_offer: bool,
}

impl BulkPieceHeader {
    /// Ordinal of a requested block.
    pub const REQUESTED: u32 = u32::MAX;

    /// Writes the header to the front of `buf`. Returns the rest, or `None` if `buf` is too small.
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
            is_offer: self.is_offer.into(),
            reserved: [0; 2],
        };
        let (front, rest) = buf.split_at_mut_checked(BULK_PIECE_HEADER_LEN)?;
        front.copy_from_slice(layout.as_bytes());
        Some(rest)
    }
}

/// A piece, borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct BulkPiece<'a> {
    /// The header.
    pub header: BulkPieceHeader,
    /// The bytes; empty in an offer, or for an empty object.
    pub bytes: &'a [u8],
}

impl<'a> BulkPiece<'a> {
    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkPiece`].
    ///
    /// # Errors
    /// If it is too short, or does not lie within its block and object.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let (layout, bytes) = read::<Layout>(rest, "piece of a block")?;
        let extent = Extent::read(layout.bytes, layout.block_len, layout.kind)?;
        check(layout.is_offer <= 1, "offer", layout.is_offer.into())?;
        let header = BulkPieceHeader {
            object: layout.object.get(),
            extent,
            digest: layout.digest.get(),
            block: layout.block.get(),
            offset: layout.offset.get(),
            ordinal: layout.ordinal.get(),
            is_offer: layout.is_offer == 1,
        };
        let in_block = u64::from(header.offset) + bytes.len() as u64;
        check(in_block <= extent.block_len.into(), "end of a piece", in_block)?;
        let before = u64::from(header.block) * u64::from(extent.block_len);
        check(before + in_block <= extent.bytes, "end of a piece", before + in_block)?;
        Ok(Self { header, bytes })
    }
}
