//! Operations on regions, and their outcomes.

use alloc::vec::Vec;

use crate::codec::{Reader, Writer};

/// Length in bytes of the words of compare-and-swap and fetch-and-add. A word is little endian, and
/// its offset is a multiple of this.
pub const WORD_LEN: u64 = 8;

/// Limit on the operations of a batch.
pub const OPERATIONS_MAX: usize = 256;

/// Limit on the bytes of an operation, whose length has 32 bits.
pub(crate) const OPERATION_BYTES_MAX: u64 = u32::MAX as u64;

const READ: u8 = 1;
const WRITE: u8 = 2;
const COMPARE_AND_SWAP: u8 = 3;
const FETCH_ADD: u8 = 4;
const SKIPPED: u8 = 5;

/// Number of a region among those of its owner, which chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u32);

/// An operation on a region of another process. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation<'a> {
    /// Reads bytes.
    Read {
        /// The region.
        region: RegionId,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Writes bytes.
    Write {
        /// The region.
        region: RegionId,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes, fewer than 2^32.
        bytes: &'a [u8],
    },
    /// Replaces a word if it has the expected value. If it has another one, the operations that
    /// follow in the batch are skipped.
    CompareAndSwap {
        /// The region.
        region: RegionId,
        /// Offset of the word.
        offset: u64,
        /// The expected value.
        expected: u64,
        /// The value that replaces it.
        new: u64,
    },
    /// Adds to a word, modulo 2^64.
    FetchAdd {
        /// The region.
        region: RegionId,
        /// Offset of the word.
        offset: u64,
        /// What is added.
        addend: u64,
    },
}

/// What an executed operation has found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The bytes that a read has found.
    Read(Vec<u8>),
    /// A write has been executed.
    Written,
    /// A compare-and-swap has been executed.
    Compared {
        /// The value before.
        previous: u64,
        /// Whether the word had the expected value, and was replaced.
        is_swapped: bool,
    },
    /// A fetch-and-add has been executed.
    Added {
        /// The value before.
        previous: u64,
    },
    /// The operation was not executed, as a compare-and-swap before it in the batch has failed.
    Skipped,
}

impl<'a> Operation<'a> {
    /// Returns the region.
    pub fn region(&self) -> RegionId {
        match self {
            Self::Read { region, .. }
            | Self::Write { region, .. }
            | Self::CompareAndSwap { region, .. }
            | Self::FetchAdd { region, .. } => *region,
        }
    }

    /// Returns whether the operation may change its region.
    pub fn writes(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }

    /// Returns the offset and the length of the bytes concerned.
    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            Self::Read { offset, len, .. } => (*offset, u64::from(*len)),
            Self::Write { offset, bytes, .. } => (*offset, bytes.len() as u64),
            Self::CompareAndSwap { offset, .. } | Self::FetchAdd { offset, .. } => {
                (*offset, WORD_LEN)
            }
        }
    }

    /// Returns the largest number of bytes that the outcome takes in a reply.
    pub(crate) fn outcome_len(&self) -> u64 {
        match self {
            Self::Read { len, .. } => 5 + u64::from(*len),
            Self::Write { .. } => 1,
            Self::CompareAndSwap { .. } => 10,
            Self::FetchAdd { .. } => 9,
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        let mut begin = |code: u8, region: RegionId, offset: u64| {
            writer.u8(code);
            writer.u32(region.0);
            writer.u64(offset);
        };
        match self {
            Self::Read { region, offset, len } => {
                begin(READ, *region, *offset);
                writer.u32(*len);
            }
            Self::Write { region, offset, bytes } => {
                begin(WRITE, *region, *offset);
                writer.bytes(bytes);
            }
            Self::CompareAndSwap { region, offset, expected, new } => {
                begin(COMPARE_AND_SWAP, *region, *offset);
                writer.u64(*expected);
                writer.u64(*new);
            }
            Self::FetchAdd { region, offset, addend } => {
                begin(FETCH_ADD, *region, *offset);
                writer.u64(*addend);
            }
        }
    }

    pub(crate) fn parse(reader: &mut Reader<'a>) -> Option<Self> {
        let (code, region, offset) = (reader.u8()?, RegionId(reader.u32()?), reader.u64()?);
        match code {
            READ => Some(Self::Read { region, offset, len: reader.u32()? }),
            WRITE => Some(Self::Write { region, offset, bytes: reader.bytes()? }),
            COMPARE_AND_SWAP => {
                let (expected, new) = (reader.u64()?, reader.u64()?);
                Some(Self::CompareAndSwap { region, offset, expected, new })
            }
            FETCH_ADD => Some(Self::FetchAdd { region, offset, addend: reader.u64()? }),
            _ => None,
        }
    }
}

impl Outcome {
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Read(bytes) => {
                writer.u8(READ);
                writer.bytes(bytes);
            }
            Self::Written => writer.u8(WRITE),
            Self::Compared { previous, is_swapped } => {
                writer.u8(COMPARE_AND_SWAP);
                writer.u8(u8::from(*is_swapped));
                writer.u64(*previous);
            }
            Self::Added { previous } => {
                writer.u8(FETCH_ADD);
                writer.u64(*previous);
            }
            Self::Skipped => writer.u8(SKIPPED),
        }
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        match reader.u8()? {
            READ => Some(Self::Read(reader.bytes()?.to_vec())),
            WRITE => Some(Self::Written),
            COMPARE_AND_SWAP => {
                let is_swapped = match reader.u8()? {
                    flag @ (0 | 1) => flag == 1,
                    _ => return None,
                };
                Some(Self::Compared { previous: reader.u64()?, is_swapped })
            }
            FETCH_ADD => Some(Self::Added { previous: reader.u64()? }),
            SKIPPED => Some(Self::Skipped),
            _ => None,
        }
    }
}
