//! Reports between members after a failure.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::piece::Extent;
use super::{check, layout, read, read_words, write_all};
use crate::DecodeError;

/// Length of a [`BulkFailures`] entry.
pub const BULK_FAILURE_LEN: usize = 8;

layout!(FailureLayout, 8 {
    rank: U16,
    by: U16,
    reason: u8,
    reserved: [u8; 3],
});

/// A failed member. The meaning of the reasons is defined by the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkFailure {
    /// Rank of the failed member.
    pub rank: u16,
    /// Rank of the member that detected the failure.
    pub by: u16,
    /// Reason of the failure.
    pub reason: u8,
}

/// Failed members, borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct BulkFailures<'a> {
    entries: &'a [FailureLayout],
}

impl<'a> BulkFailures<'a> {
    /// Writes as many entries as fit. Returns their length.
    pub fn write(buf: &mut [u8], entries: impl Iterator<Item = BulkFailure>) -> usize {
        let mut bytes = 0;
        for (slot, failure) in buf.chunks_exact_mut(BULK_FAILURE_LEN).zip(entries) {
            let layout = FailureLayout {
                rank: U16::new(failure.rank),
                by: U16::new(failure.by),
                reason: failure.reason,
                reserved: [0; 3],
            };
            slot.copy_from_slice(layout.as_bytes());
            bytes += BULK_FAILURE_LEN;
        }
        bytes
    }

    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkFailures`].
    ///
    /// # Errors
    /// If it does not consist of whole entries.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let refused =
            DecodeError::Field { field: "length of bulk failures", value: rest.len() as u64 };
        Ok(Self { entries: <[FailureLayout]>::ref_from_bytes(rest).map_err(|_| refused)? })
    }

    /// Returns the entries.
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

/// The blocks of an object that a member holds. Sent after a failure of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkHave {
    /// The object.
    pub object: u32,
    /// Its size; `None` if the sender does not know the object.
    pub extent: Option<Extent>,
    /// Digest of the failed members, as in [`crate::BulkState::view`].
    pub view: u64,
    /// Index of the first word in the whole bitmap of blocks.
    pub first: u32,
}

impl BulkHave {
    /// Writes the report with words of the bitmap: bit `i` of word `w` is block
    /// `64 (first + w) + i`. Returns its length, or `None` if `buf` is too small.
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

/// A parsed [`BulkHave`], with its words borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct BulkHaveView<'a> {
    /// The fixed part.
    pub have: BulkHave,
    words: &'a [U64],
}

impl<'a> BulkHaveView<'a> {
    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkHave`].
    ///
    /// # Errors
    /// If it is too short, or lists blocks of an unknown object.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let (layout, rest) = read::<HaveLayout>(rest, "bulk have")?;
        let is_known = layout.block_len.get() > 0;
        let described = layout.bytes.get() | u64::from(layout.words.get()) | u64::from(layout.kind);
        check(is_known || described == 0, "words of an unknown object", described)?;
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

    /// Returns the words: see [`BulkHave::write`].
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.words.iter().map(|word| word.get())
    }
}

layout!(WantLayout, 8 {
    object: U32,
    block: U32,
});

/// Requests a block that the schedule does not assign to the sender of this frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkWant {
    /// The object.
    pub object: u32,
    /// Index of the block.
    pub block: u32,
}

impl BulkWant {
    /// Writes the request. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let fixed = WantLayout { object: U32::new(self.object), block: U32::new(self.block) };
        write_all(buf, fixed.as_bytes(), core::iter::empty::<[u8; 0]>())
    }

    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkWant`].
    ///
    /// # Errors
    /// If it is too short.
    pub fn parse(rest: &[u8]) -> Result<Self, DecodeError> {
        let (layout, _) = read::<WantLayout>(rest, "bulk want")?;
        Ok(Self { object: layout.object.get(), block: layout.block.get() })
    }
}

/// Why the requester is not, or no longer, a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BulkRefused {
    /// The group has other members, another schedule or another piece size.
    OtherConfig = 1,
    /// The group continues without this member: it was considered failed, or joins too late.
    Excluded = 2,
    /// The member has restarted; the group knows its previous incarnation.
    OtherIncarnation = 3,
}

impl BulkRefused {
    /// Writes the reason. Returns its length, or `None` if `buf` is too small.
    pub fn write(self, buf: &mut [u8]) -> Option<usize> {
        write_all(buf, &[self as u8, 0, 0, 0], core::iter::empty::<[u8; 0]>())
    }

    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkRefused`].
    ///
    /// # Errors
    /// If it is too short, or the reason is unknown.
    pub fn parse(rest: &[u8]) -> Result<Self, DecodeError> {
        match read::<[u8; 4]>(rest, "bulk refusal")?.0[0] {
            1 => Ok(Self::OtherConfig),
            2 => Ok(Self::Excluded),
            3 => Ok(Self::OtherIncarnation),
            other => {
                Err(DecodeError::Field { field: "reason of a bulk refusal", value: other.into() })
            }
        }
    }
}
