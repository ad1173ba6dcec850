//! The common body of ACK, NAK and grant frames.

use onepipe_base::Psn;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{AckDelay, DecodeError, PiggybackedAck};

/// Maximum number of 64-packet words in an ACK.
pub const ACK_WORDS_MAX: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    cumulative: U32,
    received: U32,
    marked: U32,
    window: U32,
    consumed: U64,
    reservation_id: U32,
    acked_incarnation: U32,
    words: u8,
    reservation: u8,
    delay: U16,
}

/// Length of an acknowledgement that lists no single packets.
pub(crate) const ACK_LEN: usize = size_of::<Layout>();
const _: () = assert!(ACK_LEN == 36);

/// The fixed part of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Cumulative acknowledgement: every packet before this one is received, or rejected and known
    /// to be so.
    pub cumulative: Psn,
    /// Data packets received on this connection so far, modulo 2^32 (DCTCP's denominator).
    pub received: u32,
    /// The number of them that carried the congestion flag, modulo 2^32.
    pub marked: u32,
    /// Flow-control window: bytes that may be outstanding (sent, neither failed nor consumed) on
    /// this connection.
    pub window_bytes: u32,
    /// Bytes of this connection that the application has consumed so far.
    pub consumed_bytes: u64,
    /// The sender's incarnation that is acknowledged: an ACK to a previous incarnation is stale.
    pub acked_incarnation: u32,
    /// The reservation request that this ACK answers: see [`crate::Connect`].
    pub reservation_id: u32,
    /// The state of that reservation: one of the `RESERVATION_*` constants.
    pub reservation: u8,
    /// How long the newest packet has waited for this acknowledgement.
    pub delay: AckDelay,
}

impl Ack {
    /// No reservation was requested, or it must wait for buffer space.
    pub const RESERVATION_PENDING: u8 = 0;
    /// The sender holds the reservation until its message is consumed or abandoned.
    pub const RESERVATION_GRANTED: u8 = 1;
    /// The receiver can never reserve that much.
    pub const RESERVATION_REFUSED: u8 = 2;
    /// A piggybacked acknowledgement says nothing of reservations. Never on the wire.
    pub const RESERVATION_UNSTATED: u8 = 3;

    /// Writes the body: the fixed part, and for every 64 packets from `cumulative` on a word of
    /// received packets and a word of rejected ones (bit `i` of word `w` is packet
    /// `cumulative + 64 w + i`). Returns its length, or `None` if `buf` is too small or there are
    /// more than [`ACK_WORDS_MAX`] words.
    pub fn write(
        &self,
        buf: &mut [u8],
        words: impl ExactSizeIterator<Item = (u64, u64)>,
    ) -> Option<usize> {
        let count = words.len();
        let bytes = ACK_LEN + 16 * count;
        if count > ACK_WORDS_MAX || buf.len() < bytes {
            return None;
        }
        let layout = Layout {
            cumulative: U32::new(self.cumulative.0),
            received: U32::new(self.received),
            marked: U32::new(self.marked),
            window: U32::new(self.window_bytes),
            consumed: U64::new(self.consumed_bytes),
            reservation_id: U32::new(self.reservation_id),
            acked_incarnation: U32::new(self.acked_incarnation),
            words: count as u8,
            reservation: self.reservation,
            delay: U16::new(self.delay.0),
        };
        let (front, rest) = buf.split_at_mut(ACK_LEN);
        front.copy_from_slice(layout.as_bytes());
        for (pair, (received, rejected)) in rest.chunks_exact_mut(16).zip(words) {
            pair[..8].copy_from_slice(&received.to_be_bytes());
            pair[8..].copy_from_slice(&rejected.to_be_bytes());
        }
        Some(bytes)
    }
}

/// A parsed acknowledgement: the fixed part, and its words borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct AckView<'a> {
    /// The fixed part.
    pub ack: Ack,
    pairs: &'a [[U64; 2]],
}

impl<'a> AckView<'a> {
    /// Parses the payload of an ACK, NAK or grant.
    ///
    /// # Errors
    /// If the payload is shorter than it claims, or claims too many words.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated =
            |need| DecodeError::Truncated { part: "acknowledgement", need, got: payload.len() };
        let (layout, rest) = Layout::ref_from_prefix(payload).map_err(|_| truncated(ACK_LEN))?;
        let count = usize::from(layout.words);
        if count > ACK_WORDS_MAX {
            return Err(DecodeError::Field { field: "acknowledgement words", value: count as u64 });
        }
        if layout.reservation > Ack::RESERVATION_REFUSED {
            let value = u64::from(layout.reservation);
            return Err(DecodeError::Field { field: "reservation state", value });
        }
        let (pairs, _) = <[[U64; 2]]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| truncated(ACK_LEN + 16 * count))?;
        let ack = Ack {
            cumulative: Psn(layout.cumulative.get()),
            received: layout.received.get(),
            marked: layout.marked.get(),
            window_bytes: layout.window.get(),
            consumed_bytes: layout.consumed.get(),
            acked_incarnation: layout.acked_incarnation.get(),
            reservation_id: layout.reservation_id.get(),
            reservation: layout.reservation,
            delay: AckDelay(layout.delay.get()),
        };
        Ok(Self { ack, pairs })
    }

    /// Returns the acknowledgement that a piggybacked one abbreviates. `last` is the latest
    /// acknowledgement of the connection, which its counters follow.
    pub fn of_piggybacked(ack: PiggybackedAck, last: &Ack) -> Self {
        let consumed_ahead = ack.consumed.wrapping_sub(last.consumed_bytes as u32) as i32;
        // Signed: an acknowledgement that was overtaken is behind the last one.
        let ahead = |low: u8, last: u32| {
            last.wrapping_add_signed(i32::from(low.wrapping_sub(last as u8) as i8))
        };
        let ack = Ack {
            cumulative: ack.cumulative,
            received: ahead(ack.received, last.received),
            marked: ahead(ack.marked, last.marked),
            consumed_bytes: last.consumed_bytes.saturating_add_signed(consumed_ahead.into()),
            acked_incarnation: ack.acked_incarnation,
            delay: ack.delay,
            reservation: Ack::RESERVATION_UNSTATED,
            ..*last
        };
        Self { ack, pairs: &[] }
    }

    /// Returns, for every 64 packets from `cumulative` on, the received and the rejected ones: see
    /// [`Ack::write`].
    pub fn words(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + 'a {
        self.pairs.iter().map(|[received, rejected]| (received.get(), rejected.get()))
    }
}
