//! Packets of a transfer: pieces of an object, and their acknowledgements.
//!
//! Such packets travel in slot frames. Their first byte is the kind of the packet.

use onepipe_base::Incarnation;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the header of a piece.
pub const PIECE_HEADER_LEN: usize = 24;
/// Length of a piece acknowledgement without its words.
pub const PIECE_ACK_HEADER_LEN: usize = 20;
/// Maximum number of words in a piece acknowledgement, for 64 pieces each.
pub const PIECE_ACK_WORDS_MAX: usize = 16;
const PIECE: u8 = 1;
const PIECE_ACK: u8 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PieceLayout {
    kind: u8,
    reserved: u8,
    piece_len: U16,
    object: U32,
    bytes: U64,
    index: U32,
    serial: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PieceAckLayout {
    kind: u8,
    state: u8,
    words: U16,
    object: U32,
    serial: U32,
    cumulative: U32,
    incarnation: U32,
}

const _: () = assert!(size_of::<PieceLayout>() == PIECE_HEADER_LEN);
const _: () = assert!(size_of::<PieceAckLayout>() == PIECE_ACK_HEADER_LEN);

/// The header of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Numbers the objects from its sender to its receiver, from 0, modulo 2^32.
    pub object: u32,
    /// Length of the object.
    pub bytes: u64,
    /// Length of each piece but the last; not 0.
    pub piece_len: u16,
    /// Index of the piece in its object.
    pub index: u32,
    /// Transmission number over all pieces from its sender to its receiver, modulo 2^32: a
    /// retransmission has a new one.
    pub serial: u32,
}

impl Piece {
    /// Returns the number of pieces of the object, at least one even if it is empty; `None` if it
    /// exceeds 32 bits.
    pub fn pieces(&self) -> Option<u32> {
        let pieces = self.bytes.div_ceil(u64::from(self.piece_len)).max(1);
        u32::try_from(pieces).ok()
    }

    /// Length of this piece.
    fn length(&self) -> Option<usize> {
        let piece_len = u64::from(self.piece_len);
        let rest = self.bytes.checked_sub(piece_len * u64::from(self.index))?;
        let is_in_range = piece_len > 0 && self.index < self.pieces()?;
        is_in_range.then_some(rest.min(piece_len) as usize)
    }

    /// Writes the packet. Returns its length, or `None` if `buf` is too small or `piece` does not
    /// have the right length.
    pub fn write(&self, buf: &mut [u8], piece: &[u8]) -> Option<usize> {
        let layout = PieceLayout {
            kind: PIECE,
            reserved: 0,
            piece_len: U16::new(self.piece_len),
            object: U32::new(self.object),
            bytes: U64::new(self.bytes),
            index: U32::new(self.index),
            serial: U32::new(self.serial),
        };
        let end = PIECE_HEADER_LEN + self.length().filter(|length| *length == piece.len())?;
        let (front, behind) = buf.get_mut(..end)?.split_at_mut(PIECE_HEADER_LEN);
        front.copy_from_slice(layout.as_bytes());
        behind.copy_from_slice(piece);
        Some(end)
    }
}

/// State of an object at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PieceAckState {
    /// Pieces are missing.
    Partial = 0,
    /// All pieces are received.
    Whole = 1,
    /// The receiver permanently refuses the object.
    Refused = 2,
}

/// Acknowledges pieces of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PieceAck {
    /// The object, as numbered by its sender.
    pub object: u32,
    /// Its state.
    pub state: PieceAckState,
    /// The highest transmission number received, of any object.
    pub serial: u32,
    /// Every piece before this one is received.
    pub cumulative: u32,
    /// The incarnation of the object's sender: another one numbers its objects from 0 again.
    pub incarnation: Incarnation,
}

impl PieceAck {
    /// Writes the packet, with at most [`PIECE_ACK_WORDS_MAX`] of `words`: bit `i` of word `w` is
    /// piece `cumulative + 64 w + i`. Returns its length, or `None` if `buf` is too small.
    pub fn write(
        &self,
        buf: &mut [u8],
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Option<usize> {
        let count = words.len().min(PIECE_ACK_WORDS_MAX);
        let layout = PieceAckLayout {
            kind: PIECE_ACK,
            state: self.state as u8,
            words: U16::new(count as u16),
            object: U32::new(self.object),
            serial: U32::new(self.serial),
            cumulative: U32::new(self.cumulative),
            incarnation: U32::new(self.incarnation.0),
        };
        let buf = buf.get_mut(..PIECE_ACK_HEADER_LEN + 8 * count)?;
        let (front, behind) = buf.split_at_mut(PIECE_ACK_HEADER_LEN);
        front.copy_from_slice(layout.as_bytes());
        for (slot, word) in behind.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_be_bytes());
        }
        Some(buf.len())
    }
}

/// A packet of a transfer.
#[derive(Clone, Copy, Debug)]
pub enum TransferPacket<'a> {
    /// A piece, and its bytes.
    Piece(Piece, &'a [u8]),
    /// An acknowledgement, and its words.
    PieceAck(PieceAck, PieceAckWords<'a>),
}

/// The words of a piece acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct PieceAckWords<'a> {
    words: &'a [U64],
}

impl<'a> PieceAckWords<'a> {
    /// Returns the words: bit `i` of word `w` is piece `cumulative + 64 w + i`.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.words.iter().map(|word| word.get())
    }

    /// Returns a word, if the index is in range.
    #[inline]
    pub fn get(self, index: usize) -> Option<u64> {
        self.words.get(index).map(|word| word.get())
    }
}

impl<'a> TransferPacket<'a> {
    /// Parses a packet.
    ///
    /// # Errors
    /// If it is no packet of a transfer, or malformed.
    pub fn parse(packet: &'a [u8]) -> Result<Self, DecodeError> {
        let field = |field, value: u64| DecodeError::Field { field, value };
        let truncated = |need| {
            let got = packet.len();
            DecodeError::Truncated { part: "transfer packet", need, got }
        };
        match packet.first() {
            Some(&PIECE) => {
                let (layout, bytes) = PieceLayout::ref_from_prefix(packet)
                    .map_err(|_| truncated(PIECE_HEADER_LEN))?;
                let piece = Piece {
                    object: layout.object.get(),
                    bytes: layout.bytes.get(),
                    piece_len: layout.piece_len.get(),
                    index: layout.index.get(),
                    serial: layout.serial.get(),
                };
                let is_whole = piece.piece_len > 0
                    && piece.length().is_some_and(|length| length == bytes.len());
                let refused = || field("length of piece", bytes.len() as u64);
                is_whole.then_some(Self::Piece(piece, bytes)).ok_or_else(refused)
            }
            Some(&PIECE_ACK) => {
                let (layout, words) = PieceAckLayout::ref_from_prefix(packet)
                    .map_err(|_| truncated(PIECE_ACK_HEADER_LEN))?;
                let count = usize::from(layout.words.get());
                let words = <[U64]>::ref_from_bytes(words).ok();
                let words = words
                    .filter(|words| words.len() == count && count <= PIECE_ACK_WORDS_MAX)
                    .ok_or(field("piece acknowledgement words", count as u64))?;
                let state = match layout.state {
                    0 => PieceAckState::Partial,
                    1 => PieceAckState::Whole,
                    2 => PieceAckState::Refused,
                    other => return Err(field("piece acknowledgement state", other.into())),
                };
                let ack = PieceAck {
                    object: layout.object.get(),
                    state,
                    serial: layout.serial.get(),
                    cumulative: layout.cumulative.get(),
                    incarnation: Incarnation(layout.incarnation.get()),
                };
                Ok(Self::PieceAck(ack, PieceAckWords { words }))
            }
            kind => Err(field("kind of transfer packet", kind.copied().unwrap_or_default().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: u64, index: u32) -> Piece {
        Piece { object: 7, bytes, piece_len: 10, index, serial: 3 }
    }

    #[test]
    fn piece_length_follows_from_index() {
        for (bytes, index, length) in [(25, 0, 10), (25, 2, 5), (20, 1, 10), (0, 0, 0)] {
            let (mut buf, data) = ([0; 64], [9; 16]);
            let piece = piece(bytes, index);
            let end = piece.write(&mut buf, &data[..length]).expect("it is right");
            let Ok(TransferPacket::Piece(read, bytes)) = TransferPacket::parse(&buf[..end]) else {
                panic!("just written")
            };
            assert_eq!((read, bytes), (piece, &data[..length]));
            assert!(TransferPacket::parse(&buf[..end + 1]).is_err());
            assert!(TransferPacket::parse(&buf[..end - 1]).is_err());
            assert_eq!(piece.write(&mut buf, &data[..length + 1]), None);
            assert_eq!(piece.write(&mut buf[..end - 1], &data[..length]), None);
        }
        for (bytes, index) in [(25, 3), (20, 2), (0, 1)] {
            assert_eq!(piece(bytes, index).write(&mut [0; 64], &[]), None, "there is none");
        }
        assert_eq!(Piece { piece_len: 1, ..piece(u64::MAX, 0) }.pieces(), None);
    }

    #[test]
    fn piece_ack_round_trips_and_refuses_unknown_state() {
        let report = PieceAck {
            object: 7,
            state: PieceAckState::Refused,
            serial: 5,
            cumulative: u32::MAX,
            incarnation: Incarnation(9),
        };
        let mut buf = [0; 200];
        let end = report.write(&mut buf, [1, u64::MAX].into_iter()).expect("it fits");
        let Ok(TransferPacket::PieceAck(read, words)) = TransferPacket::parse(&buf[..end]) else {
            panic!("just written")
        };
        assert_eq!(read, report);
        assert!(words.iter().eq([1, u64::MAX]));
        assert_eq!([0, 1, 2].map(|slot| words.get(slot)), [Some(1), Some(u64::MAX), None]);
        assert!((0..end).all(|end| TransferPacket::parse(&buf[..end]).is_err()));
        buf[1] = 3;
        assert!(TransferPacket::parse(&buf[..end]).is_err());
        let many = report.write(&mut buf, [0; 20].into_iter()).expect("as many as may");
        assert_eq!(many, PIECE_ACK_HEADER_LEN + 8 * PIECE_ACK_WORDS_MAX);
    }
}
