//! An object on its way in.

use alloc::vec::Vec;

use onepipe_base::Mono;
use onepipe_wire::{PIECES_WORDS_MAX, Piece};

use super::config::OBJECT_OCTETS_MIN;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Incoming {
    pub object: u32,
    octets: Vec<u8>,
    piece_octets: u16,
    pieces: u32,
    /// A bit for each piece that has come.
    come: Vec<u64>,
    /// All pieces before this one have come.
    cumulative: u32,
    /// When a piece of it came last.
    pub touched: Mono,
}

impl Incoming {
    /// Of the object that this piece is of. Takes the memory for it.
    pub fn new(now: Mono, piece: &Piece) -> Option<Self> {
        let (pieces, octets) = (piece.pieces()?, usize::try_from(piece.octets).ok()?);
        Some(Self {
            object: piece.object,
            octets: alloc::vec![0; octets],
            piece_octets: piece.piece_octets,
            pieces,
            come: alloc::vec![0; pieces.div_ceil(64) as usize],
            cumulative: 0,
            touched: now,
        })
    }

    /// What the object of this piece counts as.
    pub fn charge_of(piece: &Piece) -> u64 {
        piece.octets.max(OBJECT_OCTETS_MIN)
    }

    /// What it counts as.
    pub fn charge(&self) -> u64 {
        (self.octets.len() as u64).max(OBJECT_OCTETS_MIN)
    }

    /// Takes a piece of it. Answers whether it is one, and whether it has not come before.
    pub fn on_piece(&mut self, now: Mono, piece: &Piece, octets: &[u8]) -> Option<bool> {
        let is_like =
            (piece.octets, piece.piece_octets) == (self.octets.len() as u64, self.piece_octets);
        if !is_like {
            return None;
        }
        self.touched = now;
        let (word, bit) = (piece.index as usize / 64, 1 << (piece.index % 64));
        if self.come[word] & bit != 0 {
            return Some(false);
        }
        self.come[word] |= bit;
        let begin = piece.index as usize * usize::from(self.piece_octets);
        self.octets[begin..begin + octets.len()].copy_from_slice(octets);
        while self.cumulative < self.pieces
            && self.come[self.cumulative as usize / 64] >> (self.cumulative % 64) & 1 == 1
        {
            self.cumulative += 1;
        }
        Some(true)
    }

    pub fn is_whole(&self) -> bool {
        self.cumulative == self.pieces
    }

    pub fn into_octets(self) -> Vec<u8> {
        self.octets
    }

    /// Before which piece all have come, and the words of what has out of turn.
    pub fn report(&self) -> (u32, impl ExactSizeIterator<Item = u64>) {
        let (from, shift) = (self.cumulative as usize / 64, self.cumulative % 64);
        let words = (self.come.len() - from.min(self.come.len())).min(PIECES_WORDS_MAX);
        let word = move |place: usize| {
            let at = |place: usize| self.come.get(place).copied().unwrap_or_default();
            at(from + place) >> shift | at(from + place + 1).unbounded_shl(u64::BITS - shift)
        };
        (self.cumulative, (0..words).map(word))
    }
}
