//! Frames of bulk multicast: pieces of blocks, and reports between members about them.
//!
//! Each payload begins with the same [`BulkHeader`]. Every frame reports state, not changes of it,
//! so a duplicated, late or reordered frame does no harm.

mod piece;
mod repair;
mod state;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

pub use piece::{BULK_PIECE_HEADER_LEN, BulkPiece, BulkPieceHeader, Extent};
pub use repair::{
    BULK_FAILURE_LEN, BulkFailure, BulkFailures, BulkHave, BulkHaveView, BulkRefused, BulkWant,
};
pub use state::{BULK_WORDS_MAX, BulkAck, BulkAckView, BulkState, BulkStateView};

macro_rules! layout {
    ($name:ident, $bytes:literal { $($field:ident: $type:ty,)* }) => {
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        struct $name {
            $($field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}
use layout;

/// Length of the header of every payload of bulk multicast.
pub const BULK_HEADER_LEN: usize = 24;

layout!(Layout, 24 {
    group: U64,
    config_digest: U32,
    from: U16,
    failed: U16,
    stable: U32,
    reserved: U32,
});

/// The header of every payload of bulk multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BulkHeader {
    /// The group.
    pub group: u64,
    /// Digest of the configuration that all members must share: members, schedule, piece size.
    pub config_digest: u32,
    /// The sender's rank.
    pub from: u16,
    /// Number of members that the sender knows to have failed.
    pub failed: u16,
    /// Every object before this one is known to be complete at every surviving member.
    pub stable: u32,
}

impl BulkHeader {
    /// Writes the header to the front of `buf`. Returns the rest, or `None` if `buf` is too small.
    pub fn write<'a>(&self, buf: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let layout = Layout {
            group: U64::new(self.group),
            config_digest: U32::new(self.config_digest),
            from: U16::new(self.from),
            failed: U16::new(self.failed),
            stable: U32::new(self.stable),
            reserved: U32::ZERO,
        };
        let (front, rest) = buf.split_at_mut_checked(BULK_HEADER_LEN)?;
        front.copy_from_slice(layout.as_bytes());
        Some(rest)
    }

    /// Parses the header. Returns what follows it as well.
    ///
    /// # Errors
    /// If the payload is too short.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (layout, rest) = read::<Layout>(payload, "bulk header")?;
        let front = Self {
            group: layout.group.get(),
            config_digest: layout.config_digest.get(),
            from: layout.from.get(),
            failed: layout.failed.get(),
            stable: layout.stable.get(),
        };
        Ok((front, rest))
    }
}

/// Parses a `T` at the front of `bytes`.
fn read<'a, T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &'a [u8],
    part: &'static str,
) -> Result<(&'a T, &'a [u8]), DecodeError> {
    T::ref_from_prefix(bytes).map_err(|_| {
        let (need, got) = (size_of::<T>(), bytes.len());
        DecodeError::Truncated { part, need, got }
    })
}

/// Parses `count` numbers at the front of `bytes`.
fn read_words<'a, T: FromBytes + Immutable + Unaligned>(
    bytes: &'a [u8],
    count: usize,
    part: &'static str,
) -> Result<&'a [T], DecodeError> {
    let words = <[T]>::ref_from_prefix_with_elems(bytes, count);
    words.map(|(words, _)| words).map_err(|_| {
        let (need, got) = (count * size_of::<T>(), bytes.len());
        DecodeError::Truncated { part, need, got }
    })
}

/// Refuses `value` of `field` unless `is_valid`.
fn check(is_valid: bool, field: &'static str, value: u64) -> Result<(), DecodeError> {
    if is_valid { Ok(()) } else { Err(DecodeError::Field { field, value }) }
}

/// Writes a fixed part and the words that follow it; `None` if `buf` is too small.
fn write_all<const N: usize>(
    buf: &mut [u8],
    fixed: &[u8],
    words: impl Iterator<Item = [u8; N]>,
) -> Option<usize> {
    let mut bytes = fixed.len();
    buf.get_mut(..bytes)?.copy_from_slice(fixed);
    for word in words {
        buf.get_mut(bytes..bytes + N)?.copy_from_slice(&word);
        bytes += N;
    }
    Some(bytes)
}
