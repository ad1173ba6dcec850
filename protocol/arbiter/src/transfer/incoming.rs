//! Reassembly of an incoming object.

use alloc::vec::Vec;

use onepipe_base::Mono;
use onepipe_reliability::BitSet;
use onepipe_wire::{PIECE_ACK_WORDS_MAX, Piece};

use super::config::OBJECT_LEN_MIN;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Incoming {
    pub object: u32,
    bytes: Vec<u8>,
    piece_len: u16,
    pieces: u32,
    /// One bit for each received piece.
    received: BitSet,
    /// All pieces before this one were received.
    cumulative: u32,
    /// When the last piece was received.
    pub last_received: Mono,
}

impl Incoming {
    /// Allocates the object that a piece belongs to.
    pub fn new(now: Mono, piece: &Piece) -> Option<Self> {
        let (pieces, bytes) = (piece.pieces()?, usize::try_from(piece.bytes).ok()?);
        Some(Self {
            object: piece.object,
            bytes: alloc::vec![0; bytes],
            piece_len: piece.piece_len,
            pieces,
            received: BitSet::new(pieces),
            cumulative: 0,
            last_received: now,
        })
    }

    /// Asserts that the cumulative count is that of the pieces received.
    pub fn check_invariants(&self) {
        assert!(self.cumulative < self.pieces, "an object that is complete was delivered");
        assert!(!self.received.has(self.cumulative), "the first missing piece");
        let mut before = 0..self.cumulative;
        assert!(before.all(|piece| self.received.has(piece)), "all pieces before it");
        let capacity = u64::from(self.pieces) * u64::from(self.piece_len);
        assert!(self.bytes.len() as u64 <= capacity, "the pieces cover the object");
    }

    /// Returns the memory charge of a piece's object.
    pub fn charge_of(piece: &Piece) -> u64 {
        piece.bytes.max(OBJECT_LEN_MIN)
    }

    /// Returns the memory charge.
    pub fn charge(&self) -> u64 {
        (self.bytes.len() as u64).max(OBJECT_LEN_MIN)
    }

    /// Stores a piece. Returns whether it is new; `None` if it does not match the object.
    pub fn on_piece(&mut self, now: Mono, piece: &Piece, bytes: &[u8]) -> Option<bool> {
        let is_like = (piece.bytes, piece.piece_len) == (self.bytes.len() as u64, self.piece_len);
        if !is_like {
            return None;
        }
        self.last_received = now;
        if !self.received.set(piece.index) {
            return Some(false);
        }
        let begin = piece.index as usize * usize::from(self.piece_len);
        debug_assert!(begin + bytes.len() <= self.bytes.len(), "the piece is within the object");
        self.bytes[begin..begin + bytes.len()].copy_from_slice(bytes);
        while self.received.has(self.cumulative) {
            self.cumulative += 1;
        }
        Some(true)
    }

    pub fn is_complete(&self) -> bool {
        self.cumulative == self.pieces
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the cumulative count and the bitmap words of the pieces received beyond it.
    pub fn report(&self) -> (u32, impl ExactSizeIterator<Item = u64>) {
        let (from, shift) = (self.cumulative as usize / 64, self.cumulative % 64);
        let received = self.received.words();
        let words = received.len().saturating_sub(from).min(PIECE_ACK_WORDS_MAX);
        let word = move |index: usize| {
            let at = |index: usize| received.get(index).copied().unwrap_or_default();
            at(from + index) >> shift | at(from + index + 1).unbounded_shl(u64::BITS - shift)
        };
        (self.cumulative, (0..words).map(word))
    }
}
