//! What is known of a block beside its bytes.

use onepipe_base::mistake::{Mistake, makes};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::change::BLOCK_LEN;

/// Length of an encoded mark in bytes.
pub(crate) const MARK_LEN: usize = 16;
/// Positions are below this number.
const POSITION_END: u64 = 1 << 48;

/// The last change of a block, and a checksum.
///
/// The checksum covers the block's number and the position as well, so that a block in the wrong
/// position of the file, or a damaged mark, does not fit. A block that was never written is zero,
/// and so is its mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Position in the log of the last change; 0 if there was none.
    pub position: u64,
    /// Checksum of the block with its number and the position (XXH3).
    pub checksum: u64,
}

/// What zeroes are hashed as, instead of a block's bytes.
const ZEROES: &[u8] = b"zero";

impl Mark {
    /// Returns the mark of a block that was written.
    pub fn of(block: u64, position: u64, bytes: &[u8]) -> Mark {
        Mark { position, checksum: xxh3_64_with_seed(bytes, seed(block, position)) }
    }

    /// Returns the mark of a block that was made zero.
    pub fn of_zeroes(block: u64, position: u64) -> Mark {
        Mark::of(block, position, ZEROES)
    }

    /// Returns whether the block was never written or made zero, if it is not damaged.
    pub fn is_zero(&self, block: u64) -> bool {
        *self == Mark::default() || *self == Mark::of_zeroes(block, self.position)
    }

    /// Returns whether the mark fits to a block.
    pub fn fits(&self, block: u64, bytes: &[u8]) -> bool {
        if makes(Mistake::ChecksumIgnored) {
            return true;
        }
        match self.is_zero(block) {
            true => bytes.iter().all(|byte| *byte == 0),
            false => bytes.len() == BLOCK_LEN && *self == Mark::of(block, self.position, bytes),
        }
    }

    /// Returns whether the position is one of a log.
    pub(crate) fn is_valid(self) -> bool {
        self.position < POSITION_END
    }

    /// Returns the encoded mark: the position in 48 bits, a check of the mark itself in 16, the
    /// checksum.
    pub(crate) fn to_bytes(self, block: u64) -> [u8; MARK_LEN] {
        assert!(self.is_valid(), "a log has less than 2^48 entries");
        let mut bytes = [0; MARK_LEN];
        if self != Mark::default() {
            let first = self.position << 16 | u64::from(self.check(block));
            bytes[..8].copy_from_slice(&first.to_be_bytes());
            bytes[8..].copy_from_slice(&self.checksum.to_be_bytes());
        }
        bytes
    }

    /// Decodes the marks of consecutive blocks. A damaged one is `None`.
    pub(crate) fn decode(first: u64, bytes: &[u8]) -> impl Iterator<Item = Option<Mark>> {
        let (marks, _) = bytes.as_chunks::<MARK_LEN>();
        let number = |half: &[u8]| half.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        marks.iter().zip(first..).map(move |(bytes, block)| {
            let (start, checksum) = (number(&bytes[..8]), number(&bytes[8..]));
            let mark = Mark { position: start >> 16, checksum };
            (mark.to_bytes(block) == *bytes).then_some(mark)
        })
    }

    fn check(self, block: u64) -> u16 {
        xxh3_64_with_seed(&self.checksum.to_le_bytes(), seed(block, self.position)) as u16
    }
}

fn seed(block: u64, position: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..].copy_from_slice(&position.to_le_bytes());
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_only_its_block_position_and_bytes() {
        let bytes = [5; BLOCK_LEN];
        let mark = Mark::of(3, 9, &bytes);
        assert!(mark.fits(3, &bytes));
        assert!(!mark.fits(4, &bytes));
        assert!(!Mark { position: 8, ..mark }.fits(3, &bytes));
        let mut flipped = bytes;
        flipped[4_095] ^= 1;
        assert!(!mark.fits(3, &flipped));
    }

    #[test]
    fn damaged_mark_is_none() {
        for mark in [Mark::of(3, 9, &[5; BLOCK_LEN]), Mark::default()] {
            let bytes = mark.to_bytes(3);
            let decode = |bytes: &[u8]| Mark::decode(3, bytes).collect::<Vec<_>>();
            assert_eq!(decode(&bytes), [Some(mark)]);
            for bit in 0..8 * MARK_LEN {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(&damaged), [None], "bit {bit}");
            }
            assert_eq!(
                Mark::decode(4, &bytes).next(),
                Some(Some(mark).filter(|mark| mark.position == 0))
            );
        }
    }

    #[test]
    fn zeroes_fit_only_zeroes() {
        let zeroes = [0; BLOCK_LEN];
        let mut flipped = zeroes;
        flipped[17] = 1;
        for mark in [Mark::default(), Mark::of_zeroes(3, 9)] {
            assert!(mark.fits(3, &zeroes) && !mark.fits(3, &flipped));
        }
        // Zeroes that were written as data fit as well, by their own checksum.
        assert!(Mark::of(3, 9, &zeroes).fits(3, &zeroes));
        assert!(!Mark::of(3, 9, &zeroes).is_zero(3));
    }
}
