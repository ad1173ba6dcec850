//! Packets of a transfer: pieces of an object, and what has come of them.
//!
//! They travel in slot frames beside any others: the first octet tells them apart.

use onepipe_base::Incarnation;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Octets before the piece in its packet.
pub const PIECE_HEADER_OCTETS: usize = 24;
/// Octets of a report of pieces, without its words.
pub const PIECES_HEADER_OCTETS: usize = 20;
/// Words that such a report has at most: 64 pieces each.
pub const PIECES_WORDS_MAX: usize = 16;
const PIECE: u8 = 1;
const PIECES: u8 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PieceLayout {
    kind: u8,
    reserved: u8,
    piece_octets: U16,
    object: U32,
    octets: U64,
    index: U32,
    serial: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PiecesLayout {
    kind: u8,
    state: u8,
    words: U16,
    object: U32,
    serial: U32,
    cumulative: U32,
    life: U32,
}

const _: () = assert!(size_of::<PieceLayout>() == PIECE_HEADER_OCTETS);
const _: () = assert!(size_of::<PiecesLayout>() == PIECES_HEADER_OCTETS);

/// Where a piece belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Numbers the objects of its sender for its receiver, from 0, modulo 2^32.
    pub object: u32,
    /// Octets of the object.
    pub octets: u64,
    /// Octets of each piece but the last; not 0.
    pub piece_octets: u16,
    /// Which piece it is, from 0.
    pub index: u32,
    /// Numbers the pieces from its sender to its receiver, of all objects, modulo 2^32: one that is
    /// sent again has another.
    pub serial: u32,
}

impl Piece {
    /// How many pieces the object has: one at least, though it be empty. `None` if more than can
    /// be numbered.
    pub fn pieces(&self) -> Option<u32> {
        let pieces = self.octets.div_ceil(u64::from(self.piece_octets)).max(1);
        u32::try_from(pieces).ok()
    }

    /// Octets of this piece.
    fn length(&self) -> Option<usize> {
        let each = u64::from(self.piece_octets);
        let rest = self.octets.checked_sub(each * u64::from(self.index))?;
        let is_one = each > 0 && self.index < self.pieces()?;
        is_one.then_some(rest.min(each) as usize)
    }

    /// Writes the packet. Answers its octets, or `None` when `room` is too small or the piece is
    /// not as long as it should be.
    pub fn write(&self, room: &mut [u8], piece: &[u8]) -> Option<usize> {
        let layout = PieceLayout {
            kind: PIECE,
            reserved: 0,
            piece_octets: U16::new(self.piece_octets),
            object: U32::new(self.object),
            octets: U64::new(self.octets),
            index: U32::new(self.index),
            serial: U32::new(self.serial),
        };
        let end = PIECE_HEADER_OCTETS + self.length().filter(|length| *length == piece.len())?;
        let (front, behind) = room.get_mut(..end)?.split_at_mut(PIECE_HEADER_OCTETS);
        front.copy_from_slice(layout.as_bytes());
        behind.copy_from_slice(piece);
        Some(end)
    }
}

/// What has become of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PiecesState {
    /// Pieces are missing.
    Partial = 0,
    /// All have come.
    Whole = 1,
    /// The receiver will not take it, for good.
    Refused = 2,
}

/// Which pieces of an object have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pieces {
    /// The object, as the one who is told this has numbered it.
    pub object: u32,
    /// What has become of it.
    pub state: PiecesState,
    /// The highest serial number that has come, of any object.
    pub serial: u32,
    /// Every piece before this one has come.
    pub cumulative: u32,
    /// The life of the one who is told this that has sent the object: another life numbers its
    /// objects from 0 on again.
    pub life: Incarnation,
}

impl Pieces {
    /// Writes the packet, with as many of `words` as there may be: bit `i` of word `w` is piece
    /// `cumulative + 64 w + i`. Answers its octets, or `None` when `room` is too small.
    pub fn write(
        &self,
        room: &mut [u8],
        words: impl ExactSizeIterator<Item = u64>,
    ) -> Option<usize> {
        let count = words.len().min(PIECES_WORDS_MAX);
        let layout = PiecesLayout {
            kind: PIECES,
            state: self.state as u8,
            words: U16::new(count as u16),
            object: U32::new(self.object),
            serial: U32::new(self.serial),
            cumulative: U32::new(self.cumulative),
            life: U32::new(self.life.0),
        };
        let room = room.get_mut(..PIECES_HEADER_OCTETS + 8 * count)?;
        let (front, behind) = room.split_at_mut(PIECES_HEADER_OCTETS);
        front.copy_from_slice(layout.as_bytes());
        for (place, word) in behind.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        Some(room.len())
    }
}

/// A packet of a transfer.
#[derive(Clone, Copy, Debug)]
pub enum TransferPacket<'a> {
    /// A piece, and its octets.
    Piece(Piece, &'a [u8]),
    /// Which pieces have come, and the words behind.
    Pieces(Pieces, PiecesWords<'a>),
}

/// The words of a report.
#[derive(Clone, Copy, Debug)]
pub struct PiecesWords<'a> {
    words: &'a [U64],
}

impl<'a> PiecesWords<'a> {
    /// The words: bit `i` of word `w` is piece `cumulative + 64 w + i`.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.words.iter().map(|word| word.get())
    }

    /// One of them, if there are so many.
    #[inline]
    pub fn get(self, place: usize) -> Option<u64> {
        self.words.get(place).map(|word| word.get())
    }
}

impl<'a> TransferPacket<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    /// When it is none of a transfer, or not as a sender writes it.
    pub fn parse(packet: &'a [u8]) -> Result<Self, DecodeError> {
        let field = |field, value: u64| DecodeError::Field { field, value };
        let truncated = |need| {
            let got = packet.len();
            DecodeError::Truncated { part: "packet of a transfer", need, got }
        };
        match packet.first() {
            Some(&PIECE) => {
                let (layout, octets) = PieceLayout::ref_from_prefix(packet)
                    .map_err(|_| truncated(PIECE_HEADER_OCTETS))?;
                let piece = Piece {
                    object: layout.object.get(),
                    octets: layout.octets.get(),
                    piece_octets: layout.piece_octets.get(),
                    index: layout.index.get(),
                    serial: layout.serial.get(),
                };
                let is_whole =
                    piece.piece_octets > 0 && piece.length().is_some_and(|is| is == octets.len());
                let refused = || field("octets of piece", octets.len() as u64);
                is_whole.then_some(Self::Piece(piece, octets)).ok_or_else(refused)
            }
            Some(&PIECES) => {
                let (layout, words) = PiecesLayout::ref_from_prefix(packet)
                    .map_err(|_| truncated(PIECES_HEADER_OCTETS))?;
                let count = usize::from(layout.words.get());
                let words = <[U64]>::ref_from_bytes(words).ok();
                let words = words
                    .filter(|words| words.len() == count && count <= PIECES_WORDS_MAX)
                    .ok_or(field("words of pieces", count as u64))?;
                let state = match layout.state {
                    0 => PiecesState::Partial,
                    1 => PiecesState::Whole,
                    2 => PiecesState::Refused,
                    other => return Err(field("state of pieces", other.into())),
                };
                let pieces = Pieces {
                    object: layout.object.get(),
                    state,
                    serial: layout.serial.get(),
                    cumulative: layout.cumulative.get(),
                    life: Incarnation(layout.life.get()),
                };
                Ok(Self::Pieces(pieces, PiecesWords { words }))
            }
            kind => Err(field("kind of packet", kind.copied().unwrap_or_default().into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(octets: u64, index: u32) -> Piece {
        Piece { object: 7, octets, piece_octets: 10, index, serial: 3 }
    }

    #[test]
    fn a_piece_is_as_long_as_its_place_says() {
        for (octets, index, length) in [(25, 0, 10), (25, 2, 5), (20, 1, 10), (0, 0, 0)] {
            let (mut room, data) = ([0; 64], [9; 16]);
            let piece = piece(octets, index);
            let end = piece.write(&mut room, &data[..length]).expect("it is right");
            let Ok(TransferPacket::Piece(read, octets)) = TransferPacket::parse(&room[..end])
            else {
                panic!("just written")
            };
            assert_eq!((read, octets), (piece, &data[..length]));
            assert!(TransferPacket::parse(&room[..end + 1]).is_err());
            assert!(TransferPacket::parse(&room[..end - 1]).is_err());
            assert_eq!(piece.write(&mut room, &data[..length + 1]), None);
            assert_eq!(piece.write(&mut room[..end - 1], &data[..length]), None);
        }
        for (octets, index) in [(25, 3), (20, 2), (0, 1)] {
            assert_eq!(piece(octets, index).write(&mut [0; 64], &[]), None, "there is none");
        }
        assert_eq!(Piece { piece_octets: 1, ..piece(u64::MAX, 0) }.pieces(), None);
    }

    #[test]
    fn a_report_survives_and_no_other_state_is_taken() {
        let report = Pieces {
            object: 7,
            state: PiecesState::Refused,
            serial: 5,
            cumulative: u32::MAX,
            life: Incarnation(9),
        };
        let mut room = [0; 200];
        let end = report.write(&mut room, [1, u64::MAX].into_iter()).expect("it fits");
        let Ok(TransferPacket::Pieces(read, words)) = TransferPacket::parse(&room[..end]) else {
            panic!("just written")
        };
        assert_eq!(read, report);
        assert!(words.iter().eq([1, u64::MAX]));
        assert_eq!([0, 1, 2].map(|place| words.get(place)), [Some(1), Some(u64::MAX), None]);
        assert!((0..end).all(|end| TransferPacket::parse(&room[..end]).is_err()));
        room[1] = 3;
        assert!(TransferPacket::parse(&room[..end]).is_err());
        let many = report.write(&mut room, [0; 20].into_iter()).expect("as many as may");
        assert_eq!(many, PIECES_HEADER_OCTETS + 8 * PIECES_WORDS_MAX);
    }
}
