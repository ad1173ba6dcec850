//! The acknowledgement that precedes the messages of a data frame to the same process.

use onepipe_base::Psn;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the acknowledgement in front of the messages of a data frame with
/// [`crate::Flags::PIGGYBACK`].
pub const PIGGYBACK_LEN: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    cumulative: U32,
    consumed: U32,
    acked_incarnation: U32,
    received: u8,
    marked: u8,
    delay: U16,
}

const _: () = assert!(size_of::<Layout>() == PIGGYBACK_LEN);

/// How long the newest packet of a connection has waited for its acknowledgement, in units of
/// 1,024 ns, so that round trips can be measured without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckDelay(pub u16);

impl AckDelay {
    /// Longest delay that a sender may permit, in ns: half of what can be expressed.
    pub const NS_MAX: u64 = 32_000_000;
    /// Unit as a shift.
    const SHIFT: u32 = 10;

    /// Returns a clock reading in ns in units of delays, modulo 2^16.
    #[inline]
    #[must_use]
    pub const fn ticks(ns: u64) -> u16 {
        (ns >> Self::SHIFT) as u16
    }

    /// Returns the delay in ns.
    #[inline]
    #[must_use]
    pub const fn ns(self) -> u64 {
        (self.0 as u64) << Self::SHIFT
    }
}

/// An acknowledgement in front of the messages of a data frame: what an [`crate::Ack`] says of a
/// connection on which nothing is missing and no reservation is open. Its counters are the low
/// bits of those of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PiggybackedAck {
    /// Cumulative acknowledgement: every packet before this one is resolved.
    pub cumulative: Psn,
    /// Bytes consumed, modulo 2^32.
    pub consumed: u32,
    /// The sender's incarnation that is acknowledged.
    pub acked_incarnation: u32,
    /// Data packets received so far, modulo 2^8.
    pub received: u8,
    /// The number of them that carried the congestion flag, modulo 2^8.
    pub marked: u8,
    /// How long the newest of them has waited.
    pub delay: AckDelay,
}

impl PiggybackedAck {
    /// Writes the acknowledgement. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            cumulative: U32::new(self.cumulative.0),
            consumed: U32::new(self.consumed),
            acked_incarnation: U32::new(self.acked_incarnation),
            received: self.received,
            marked: self.marked,
            delay: U16::new(self.delay.0),
        };
        buf.get_mut(..PIGGYBACK_LEN)?.copy_from_slice(layout.as_bytes());
        Some(PIGGYBACK_LEN)
    }

    /// Splits the payload of a data frame with [`crate::Flags::PIGGYBACK`] into the acknowledgement
    /// and the messages.
    ///
    /// # Errors
    /// If the payload is too short.
    pub fn split(payload: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let Ok((layout, messages)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (PIGGYBACK_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "piggybacked acknowledgement", need, got });
        };
        let ack = Self {
            cumulative: Psn(layout.cumulative.get()),
            consumed: layout.consumed.get(),
            acked_incarnation: layout.acked_incarnation.get(),
            received: layout.received,
            marked: layout.marked,
            delay: AckDelay(layout.delay.get()),
        };
        Ok((ack, messages))
    }
}
