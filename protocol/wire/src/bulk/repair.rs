//! What members tell each other once some have failed.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::piece::Extent;
use super::{check, layout, read, read_words, write_all};
use crate::DecodeError;

/// Bytes of one entry of a [`BulkFailures`].
pub const BULK_FAILURE_LEN: usize = 8;

layout!(FailureLayout, 8 {
    rank: U16,
    by: U16,
    reason: u8,
    reserved: [u8; 3],
});

/// A member that has failed. What the reasons mean is the members' affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkFailure {
    /// Its rank.
    pub rank: u16,
    /// The rank of who has noticed.
    pub by: u16,
    /// Why.
    pub reason: u8,
}

/// Members that have failed, still where they were read from.
#[derive(Clone, Copy, Debug)]
pub struct BulkFailures<'a> {
    entries: &'a [FailureLayout],
}

impl<'a> BulkFailures<'a> {
    /// Writes as many entries as fit; answers the bytes used.
    pub fn write(buf: &mut [u8], entries: impl Iterator<Item = BulkFailure>) -> usize {
        let mut bytes = 0;
        for (place, failure) in buf.chunks_exact_mut(BULK_FAILURE_LEN).zip(entries) {
            let layout = FailureLayout {
                rank: U16::new(failure.rank),
                by: U16::new(failure.by),
                reason: failure.reason,
                reserved: [0; 3],
            };
            place.copy_from_slice(layout.as_bytes());
            bytes += BULK_FAILURE_LEN;
        }
        bytes
    }

    /// Reads what stands behind the front in a frame with opcode [`crate::Opcode::BulkFailures`].
    ///
    /// # Errors
    /// When it does not consist of whole entries.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let refused =
            DecodeError::Field { field: "bytes of bulk failures", value: rest.len() as u64 };
        Ok(Self { entries: <[FailureLayout]>::ref_from_bytes(rest).map_err(|_| refused)? })
    }

    /// The entries.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = BulkFailure> + 'a {
        self.entries.iter().map(|layout| BulkFailure {
            rank: layout.rank.get(),
            by: layout.by.get(),
            reason: layout.reason,
        })
    }
}

layout!(HaveLayout, 32 {
    bytes: U64,
    view: U64,
    object: U32,
    block_len: U32,
    first: U32,
    words: U16,
    kind: u8,
    reserved: u8,
});

/// Which blocks of an object a member holds: said once members have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkHave {
    /// Which object.
    pub object: u32,
    /// How large it is; `None` when the sender knows nothing of it.
    pub extent: Option<Extent>,
    /// Which members have failed, as in [`crate::BulkState::view`].
    pub view: u64,
    /// Which word of the list of blocks the first of these is.
    pub first: u32,
}

impl BulkHave {
    /// Writes it, and words of which bit `i` of word `w` says whether block `64 w + i` is held.
    /// Answers the bytes used, or `None` when `buf` is too small.
    pub fn write(
        &self,
        buf: &mut [u8],
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Option<usize> {
        let fixed = HaveLayout {
            bytes: U64::new(self.extent.map_or(0, |extent| extent.bytes)),
            view: U64::new(self.view),
            object: U32::new(self.object),
            block_len: U32::new(self.extent.map_or(0, |extent| extent.block_len)),
            first: U32::new(self.first),
            words: U16::new(u16::try_from(words.len()).ok()?),
            kind: self.extent.map_or(0, |extent| extent.kind()),
            reserved: 0,
        };
        write_all(buf, fixed.as_bytes(), words.map(u64::to_be_bytes))
    }
}

/// A [`BulkHave`] and its words, still where they were read from.
#[derive(Clone, Copy, Debug)]
pub struct BulkHaveView<'a> {
    /// The fixed part.
    pub have: BulkHave,
    words: &'a [U64],
}

impl<'a> BulkHaveView<'a> {
    /// Reads what stands behind the front in a frame with opcode [`crate::Opcode::BulkHave`].
    ///
    /// # Errors
    /// When it is too short, or speaks of blocks of an object without blocks.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let (layout, rest) = read::<HaveLayout>(rest, "blocks that are held")?;
        let is_known = layout.block_len.get() > 0;
        let told = layout.bytes.get() | u64::from(layout.words.get()) | u64::from(layout.kind);
        check(is_known || told == 0, "words of an unknown object", told)?;
        let extent = match is_known {
            true => Some(Extent::read(layout.bytes, layout.block_len, layout.kind)?),
            false => None,
        };
        let have = BulkHave {
            object: layout.object.get(),
            extent,
            view: layout.view.get(),
            first: layout.first.get(),
        };
        Ok(Self { have, words: read_words(rest, layout.words.get().into(), "words")? })
    }

    /// See [`BulkHave::write`].
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.words.iter().map(|word| word.get())
    }
}

layout!(WantLayout, 8 {
    object: U32,
    block: U32,
});

/// A member asks for a block that the schedule does not bring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkWant {
    /// Of which object.
    pub object: u32,
    /// Which one.
    pub block: u32,
}

impl BulkWant {
    /// Writes it. Answers the bytes used, or `None` when `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let fixed = WantLayout { object: U32::new(self.object), block: U32::new(self.block) };
        write_all(buf, fixed.as_bytes(), core::iter::empty::<[u8; 0]>())
    }

    /// Reads what stands behind the front in a frame with opcode [`crate::Opcode::BulkWant`].
    ///
    /// # Errors
    /// When it is too short.
    pub fn parse(rest: &[u8]) -> Result<Self, DecodeError> {
        let (layout, _) = read::<WantLayout>(rest, "bulk want")?;
        Ok(Self { object: layout.object.get(), block: layout.block.get() })
    }
}

/// Why whoever asked is not, or no longer, a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BulkRefused {
    /// The group has another list of members, another schedule or other pieces.
    OtherPlan = 1,
    /// The group goes on without this member: it was taken for failed, or comes too late.
    Excluded = 2,
    /// The member has begun a new life, which the group does not know.
    OtherIncarnation = 3,
}

impl BulkRefused {
    /// Writes it. Answers the bytes used, or `None` when `buf` is too small.
    pub fn write(self, buf: &mut [u8]) -> Option<usize> {
        write_all(buf, &[self as u8, 0, 0, 0], core::iter::empty::<[u8; 0]>())
    }

    /// Reads what stands behind the front in a frame with opcode [`crate::Opcode::BulkRefused`].
    ///
    /// # Errors
    /// When it is too short, or no such reason.
    pub fn parse(rest: &[u8]) -> Result<Self, DecodeError> {
        match read::<[u8; 4]>(rest, "bulk refusal")?.0[0] {
            1 => Ok(Self::OtherPlan),
            2 => Ok(Self::Excluded),
            3 => Ok(Self::OtherIncarnation),
            other => {
                Err(DecodeError::Field { field: "reason of a bulk refusal", value: other.into() })
            }
        }
    }
}
