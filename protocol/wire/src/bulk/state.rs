//! Progress of members, and acknowledgements per link.

use onepipe_base::{Incarnation, Psn};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{check, layout, read, read_words, write_all};
use crate::DecodeError;

/// Maximum number of 64-bit words in an acknowledgement.
pub const BULK_WORDS_MAX: usize = 16;

layout!(StateLayout, 36 {
    complete: U32,
    known: U32,
    resolved: U32,
    total: U32,
    digest: U64,
    view: U64,
    flags: u8,
    tokens: u8,
    reserved: [u8; 2],
});

/// Progress of a member, with the tokens that it grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkState {
    /// Every object before this one is complete at the sender.
    pub complete: u32,
    /// The sender knows no object from this one on.
    pub known: u32,
    /// Every object before this one is complete at the sender, or known to be lost.
    pub resolved: u32,
    /// Number of objects of the group; `None` while the root may send more.
    pub total: Option<u32>,
    /// Digest of every object before `complete`, in order.
    pub digest: u64,
    /// Digest of the failed members; 0 while there is none.
    pub view: u64,
    /// The group is closed.
    pub is_closed: bool,
    /// The group is closed, and every member has received everything.
    pub is_clean: bool,
}

impl BulkState {
    const CLOSED: u8 = 1;
    const CLEAN: u8 = 2;
    const OPEN: u32 = u32::MAX;

    /// Writes the state with a token count for each object from the header's `stable` on. Returns
    /// its length, or `None` if `buf` is too small.
    pub fn write(
        &self,
        buf: &mut [u8],
        tokens: impl ExactSizeIterator<Item = u32>,
    ) -> Option<usize> {
        let fixed = StateLayout {
            complete: U32::new(self.complete),
            known: U32::new(self.known),
            resolved: U32::new(self.resolved),
            total: U32::new(self.total.unwrap_or(Self::OPEN)),
            digest: U64::new(self.digest),
            view: U64::new(self.view),
            flags: u8::from(self.is_closed) * Self::CLOSED + u8::from(self.is_clean) * Self::CLEAN,
            tokens: u8::try_from(tokens.len()).ok()?,
            reserved: [0; 2],
        };
        write_all(buf, fixed.as_bytes(), tokens.map(u32::to_be_bytes))
    }
}

/// A parsed [`BulkState`], with its tokens borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct BulkStateView<'a> {
    /// The fixed part.
    pub state: BulkState,
    tokens: &'a [U32],
}

impl<'a> BulkStateView<'a> {
    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkState`].
    ///
    /// # Errors
    /// If it is too short, or clean without being closed.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let (layout, rest) = read::<StateLayout>(rest, "bulk state")?;
        let flags = layout.flags;
        check(flags <= 3 && flags != BulkState::CLEAN, "flags of a bulk state", flags.into())?;
        let total = layout.total.get();
        let state = BulkState {
            complete: layout.complete.get(),
            known: layout.known.get(),
            resolved: layout.resolved.get(),
            total: (total != BulkState::OPEN).then_some(total),
            digest: layout.digest.get(),
            view: layout.view.get(),
            is_closed: flags & BulkState::CLOSED != 0,
            is_clean: flags & BulkState::CLEAN != 0,
        };
        Ok(Self { state, tokens: read_words(rest, layout.tokens.into(), "tokens")? })
    }

    /// Returns, for each object from the header's `stable` on, how many blocks in total the sender
    /// of this frame is ready to take from its receiver.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.tokens.iter().map(|count| count.get())
    }
}

layout!(AckLayout, 16 {
    incarnation: U32,
    largest: U32,
    marked: U32,
    words: U16,
    reserved: U16,
});

/// Acknowledges the frames of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkAck {
    /// The incarnation of the frames' sender that is acknowledged.
    pub incarnation: Incarnation,
    /// The highest PSN received.
    pub largest: Psn,
    /// Number of received frames with the congestion flag, modulo 2^32.
    pub marked: u32,
}

impl BulkAck {
    /// Writes the acknowledgement with words: bit `i` of word `w` is frame `largest - 64 w - i`.
    /// Returns its length, or `None` if `buf` is too small or there are more than
    /// [`BULK_WORDS_MAX`] words.
    pub fn write(
        &self,
        buf: &mut [u8],
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Option<usize> {
        let fixed = AckLayout {
            incarnation: U32::new(self.incarnation.0),
            largest: U32::new(self.largest.0),
            marked: U32::new(self.marked),
            words: U16::new(u16::try_from(words.len()).ok()?),
            reserved: U16::ZERO,
        };
        if words.len() > BULK_WORDS_MAX {
            return None;
        }
        write_all(buf, fixed.as_bytes(), words.map(u64::to_be_bytes))
    }
}

/// A parsed [`BulkAck`], with its words borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct BulkAckView<'a> {
    /// The fixed part.
    pub ack: BulkAck,
    words: &'a [U64],
}

impl<'a> BulkAckView<'a> {
    /// Parses what follows the bulk header in a frame with opcode [`crate::Opcode::BulkAck`].
    ///
    /// # Errors
    /// If it is too short, or has more than [`BULK_WORDS_MAX`] words.
    pub fn parse(rest: &'a [u8]) -> Result<Self, DecodeError> {
        let (layout, rest) = read::<AckLayout>(rest, "bulk acknowledgement")?;
        let words = usize::from(layout.words.get());
        check(words <= BULK_WORDS_MAX, "words of a bulk acknowledgement", words as u64)?;
        let ack = BulkAck {
            incarnation: Incarnation(layout.incarnation.get()),
            largest: Psn(layout.largest.get()),
            marked: layout.marked.get(),
        };
        Ok(Self { ack, words: read_words(rest, words, "words")? })
    }

    /// Returns the words: see [`BulkAck::write`].
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + Clone + 'a {
        self.words.iter().map(|word| word.get())
    }
}
