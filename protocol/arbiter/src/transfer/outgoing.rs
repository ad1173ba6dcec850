//! Segmentation and retransmission of an outgoing object.

use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_wire::{PIECE_ACK_WORDS_MAX, Piece, PieceAck, PieceAckWords};

/// Maximum number of pieces in flight: those that a report can acknowledge.
const WINDOW: u32 = 64 * PIECE_ACK_WORDS_MAX as u32;
/// A piece is lost when this number of later ones was received (the packet threshold of RFC 9002);
/// larger than the reordering between paths.
const REORDER_THRESHOLD: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outgoing {
    pub dst: ProcessId,
    pub object: u32,
    bytes: Vec<u8>,
    piece_len: u16,
    pieces: u32,
    /// All pieces before this one are acknowledged.
    cumulative: u32,
    /// The first piece that was never sent.
    next: u32,
    /// Acknowledged pieces, and pieces to retransmit: one bit each, by index modulo the window.
    acked: [u64; PIECE_ACK_WORDS_MAX],
    retransmit: [u64; PIECE_ACK_WORDS_MAX],
    retransmit_count: u32,
    /// Serial number of the last transmission of each piece, by index modulo the window.
    serials: Vec<u32>,
    /// Highest serial number in a report of this object; at first the one before the first piece.
    highest_acked: u32,
}

/// Returns the word and the bit of a piece.
const fn bit(piece: u32) -> (usize, u64) {
    ((piece % WINDOW / 64) as usize, 1 << (piece % 64))
}

impl Outgoing {
    /// Creates an object; `serial` is the serial number of the next piece to `dst`. `None` if it
    /// has more pieces than can be numbered.
    pub fn new(
        dst: ProcessId,
        serial: u32,
        object: u32,
        bytes: Vec<u8>,
        piece_len: u16,
    ) -> Option<Self> {
        let piece = Piece { object, bytes: bytes.len() as u64, piece_len, index: 0, serial: 0 };
        Some(Self {
            dst,
            object,
            pieces: piece.pieces()?,
            bytes,
            piece_len,
            cumulative: 0,
            next: 0,
            acked: [0; PIECE_ACK_WORDS_MAX],
            retransmit: [0; PIECE_ACK_WORDS_MAX],
            retransmit_count: 0,
            serials: alloc::vec![0; WINDOW as usize],
            highest_acked: serial.wrapping_sub(1),
        })
    }

    /// Asserts that the window is bounded, and the pieces to retransmit are counted.
    pub fn check_invariants(&self) {
        assert!(self.cumulative <= self.next, "only a piece that was sent is acknowledged");
        assert!(self.next <= self.pieces, "only pieces are sent");
        assert!(self.next - self.cumulative <= WINDOW, "a report covers what is in flight");
        let retransmit: u32 = self.retransmit.iter().map(|word| word.count_ones()).sum();
        assert_eq!(retransmit, self.retransmit_count, "the pieces to retransmit");
        for (acked, retransmit) in self.acked.iter().zip(&self.retransmit) {
            assert_eq!(acked & retransmit, 0, "an acknowledged piece is not retransmitted");
        }
        let waiting = (self.cumulative..self.next).filter(|piece| {
            let (word, bit) = bit(*piece);
            self.retransmit[word] & bit != 0
        });
        assert_eq!(waiting.count() as u32, retransmit, "what is retransmitted is in flight");
    }

    /// Returns the contents.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Restarts the object from serial number `serial` on, as the receiver has lost its state.
    pub fn restart(&mut self, serial: u32) {
        (self.cumulative, self.next, self.retransmit_count) = (0, 0, 0);
        self.acked = [0; PIECE_ACK_WORDS_MAX];
        self.retransmit = [0; PIECE_ACK_WORDS_MAX];
        // Reports to pieces in flight are so recognised as old.
        self.highest_acked = serial.wrapping_sub(1);
    }

    /// Returns the piece to send next.
    fn due(&self) -> Option<u32> {
        if self.retransmit_count > 0 {
            let in_window = self.cumulative..self.next;
            return in_window.into_iter().find(|piece| {
                let (word, bit) = bit(*piece);
                self.retransmit[word] & bit != 0
            });
        }
        self.is_due().then_some(self.next)
    }

    /// Whether there is a piece to send.
    pub fn is_due(&self) -> bool {
        self.retransmit_count > 0
            || (self.next < self.pieces && self.next - self.cumulative < WINDOW)
    }

    /// Writes the piece to send next with this serial number. Returns its index and its length.
    pub fn write(&self, buffer: &mut [u8], serial: u32) -> Option<(u32, usize)> {
        let index = self.due()?;
        let each = usize::from(self.piece_len);
        let begin = index as usize * each;
        let bytes = &self.bytes[begin..self.bytes.len().min(begin + each)];
        let piece = Piece {
            object: self.object,
            bytes: self.bytes.len() as u64,
            piece_len: self.piece_len,
            index,
            serial,
        };
        Some((index, piece.write(buffer, bytes)?))
    }

    /// Records that a piece was queued. Returns whether it is a retransmission.
    pub fn on_sent(&mut self, index: u32, serial: u32) -> bool {
        let (word, bit) = bit(index);
        let is_retransmission = self.retransmit[word] & bit != 0;
        if is_retransmission {
            self.retransmit[word] &= !bit;
            self.retransmit_count -= 1;
        } else {
            debug_assert_eq!(index, self.next);
            self.acked[word] &= !bit;
            self.next += 1;
        }
        self.serials[(index % WINDOW) as usize] = serial;
        is_retransmission
    }

    //= spec/arbiter.md#R34
    /// Handles a report; `serial` is the serial number of the next piece. Returns whether there is
    /// progress, or the object restarts.
    pub fn on_report(&mut self, report: &PieceAck, words: PieceAckWords<'_>, serial: u32) -> bool {
        let ahead = report.serial.wrapping_sub(self.highest_acked) as i32;
        // Reports that a later one has overtaken are ignored.
        if report.cumulative > self.next || ahead < 0 {
            return false;
        }
        let words = |piece: u32| {
            let at = piece - report.cumulative;
            words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
        };
        let is_acked = |piece| piece < report.cumulative || words(piece);
        let is_forgotten = |piece| self.is_acked(piece) && !is_acked(piece);
        let has_regressed = report.cumulative < self.cumulative;
        if ahead > 0 && (has_regressed || (self.cumulative..self.next).any(is_forgotten)) {
            // The receiver lacks a piece that it had: it has dropped the object.
            self.restart(serial);
            return true;
        }
        let before = (self.cumulative, self.acked);
        let new = (self.cumulative..self.next).filter(|piece| is_acked(*piece));
        new.for_each(|piece| self.on_acked(piece));
        self.cumulative = self.cumulative.max(report.cumulative);
        self.highest_acked = report.serial;
        before != (self.cumulative, self.acked)
    }

    fn is_acked(&self, piece: u32) -> bool {
        let (word, bit) = bit(piece);
        self.acked[word] & bit != 0
    }

    fn on_acked(&mut self, piece: u32) {
        let (word, bit) = bit(piece);
        self.acked[word] |= bit;
        self.retransmit_count -= u32::from(self.retransmit[word] & bit != 0);
        self.retransmit[word] &= !bit;
    }

    //= spec/arbiter.md#R35
    /// Marks pieces as lost that others up to serial number `highest_acked` have overtaken.
    pub fn detect_losses(&mut self, highest_acked: u32) {
        for piece in self.cumulative..self.next {
            let distance =
                highest_acked.wrapping_sub(self.serials[(piece % WINDOW) as usize]) as i32;
            if distance > REORDER_THRESHOLD as i32 {
                self.mark_lost(piece);
            }
        }
    }

    /// Retransmits the first unacknowledged piece, and the last one sent, so that a report covers
    /// everything between.
    pub fn on_retransmit_timeout(&mut self) {
        if self.next > self.cumulative {
            self.mark_lost(self.cumulative);
            self.mark_lost(self.next - 1);
        }
    }

    fn mark_lost(&mut self, piece: u32) {
        let (word, bit) = bit(piece);
        if (self.acked[word] | self.retransmit[word]) & bit == 0 {
            self.retransmit[word] |= bit;
            self.retransmit_count += 1;
        }
    }
}
