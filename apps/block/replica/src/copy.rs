//! Copies of blocks for another replica: those that it lacks, or that are damaged there.

use std::io;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_transaction::{Reader, Writer};

use crate::change::BLOCK_LEN;
use crate::file::ImageFile;
use crate::image_reader::ImageReader;
use crate::mark::Mark;

/// Number of marks that are looked at for one part of a copy.
const SCANNED_MAX: u64 = 1 << 14;
/// Encoded length of a block beside its bytes.
const BLOCK_OVERHEAD: usize = 1 + 8 + 16 + 4;

const DATA: u8 = 1;
const ZEROES: u8 = 2;
const DAMAGED: u8 = 3;

/// Copies of the blocks that have changed since a position, from some block on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The encoded copies, for [`ImageWriter::install`](crate::ImageWriter::install).
    pub bytes: Vec<u8>,
    /// The block from which on the next part begins; `None` after the last one.
    pub next: Option<u64>,
}

/// What was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Blocks that were written.
    pub written: u64,
    /// Blocks that are damaged in the replica that they were copied from: they are damaged here,
    /// too, until another replica is asked.
    pub damaged: u64,
    /// Blocks that this replica has already as of a later position.
    pub outdated: u64,
}

impl<F: ImageFile> ImageReader<F> {
    /// Returns copies of blocks that have changed after position `since`, from block `from` on:
    /// about `bytes_max` bytes, at least one block. Memory is bounded, whatever has changed. What
    /// changes meanwhile is in the copy or not.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Panics
    /// If block `from` is beyond the device.
    pub fn stale(&self, since: u64, from: u64, bytes_max: usize) -> io::Result<Stale> {
        let count = SCANNED_MAX.min(self.blocks() - from);
        let marks = self.marks(from, count)?;
        let mut bytes = Vec::new();
        for (mark, block) in marks.into_iter().zip(from..) {
            let since = if makes(Mistake::LastChangeMissed) { since + 1 } else { since };
            if mark.is_some_and(|mark| mark.position <= since) {
                continue;
            }
            if !bytes.is_empty() && bytes.len() + BLOCK_OVERHEAD + BLOCK_LEN > bytes_max {
                return Ok(Stale { bytes, next: Some(block) });
            }
            self.copy(block, &mut bytes)?;
        }
        let next = from + count;
        Ok(Stale { bytes, next: (next < self.blocks()).then_some(next) })
    }

    /// Returns a copy of one block.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn copy_of(&self, block: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.copy(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Adds the copy of a block, with its mark as of the same moment.
    fn copy(&self, block: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
        // What is known of a block whose mark is damaged.
        let unknown = Mark { position: self.applied(), checksum: 0 };
        let mut content = vec![0; BLOCK_LEN];
        let (mark, is_intact) = self.read_marked(block, &mut content)?;
        if !is_intact && makes(Mistake::DamageSkipped) {
            return Ok(());
        }
        let mark = mark.unwrap_or(unknown);
        let is_zero = mark.is_zero(block);
        let mut writer = Writer(bytes);
        writer.u8(match (is_intact, is_zero) {
            (false, _) => DAMAGED,
            (true, true) => ZEROES,
            (true, false) => DATA,
        });
        writer.u64(block);
        writer.u64(mark.position);
        writer.u64(mark.checksum);
        if is_intact && !is_zero {
            writer.bytes(&content);
        }
        Ok(())
    }
}

/// An intact block of another replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopiedBlock {
    /// The position of its last change.
    pub position: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl CopiedBlock {
    /// Decodes the copy of one block. Returns `None` if the block is damaged where it was copied,
    /// or this is no copy of it.
    pub fn parse(copy: &[u8], block: u64) -> Option<CopiedBlock> {
        let mut reader = Reader(copy);
        let copy = BlockCopy::parse(&mut reader, u64::MAX)?;
        let is_right = copy.block == block && !copy.is_damaged() && reader.is_at_end();
        let bytes = copy.bytes.map_or_else(|| vec![0; BLOCK_LEN], <[u8]>::to_vec);
        is_right.then_some(CopiedBlock { position: copy.mark.position, bytes })
    }
}

/// A copy of a block, decoded.
pub struct BlockCopy<'a> {
    kind: u8,
    pub block: u64,
    pub mark: Mark,
    /// The bytes, unless they are zero or damaged.
    pub bytes: Option<&'a [u8]>,
}

impl<'a> BlockCopy<'a> {
    /// Decodes the next copy. A copy that is not damaged has a mark that fits.
    pub fn parse(reader: &mut Reader<'a>, blocks: u64) -> Option<BlockCopy<'a>> {
        let (kind, block) = (reader.u8()?, reader.u64()?);
        let mark = Mark { position: reader.u64()?, checksum: reader.u64()? };
        let bytes = if kind == DATA { Some(reader.bytes()?) } else { None };
        let fits = match kind {
            DATA => !mark.is_zero(block) && mark.fits(block, bytes?),
            ZEROES => mark.is_zero(block),
            DAMAGED => true,
            _ => false,
        };
        (fits && block < blocks && mark.is_valid()).then_some(BlockCopy {
            kind,
            block,
            mark,
            bytes,
        })
    }

    /// Returns whether the block is damaged in the replica that the copy is of.
    pub fn is_damaged(&self) -> bool {
        self.kind == DAMAGED
    }
}
