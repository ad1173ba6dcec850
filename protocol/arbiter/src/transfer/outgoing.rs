//! An object on its way out.

use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_wire::{PIECE_ACK_WORDS_MAX, Piece, PieceAck, PieceAckWords};

/// Pieces that may be on their way: as many as a report speaks of.
const WINDOW: u32 = 64 * PIECE_ACK_WORDS_MAX as u32;
/// A packet is lost when so many that were sent after it have come: paths differ by less.
const REORDER_THRESHOLD: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outgoing {
    pub dst: ProcessId,
    pub object: u32,
    bytes: Vec<u8>,
    piece_len: u16,
    pieces: u32,
    /// All pieces before this one have come.
    cumulative: u32,
    /// The first that was never sent.
    next: u32,
    /// By the piece modulo the window: it has come, or it is to be sent again.
    come: [u64; PIECE_ACK_WORDS_MAX],
    retransmit: [u64; PIECE_ACK_WORDS_MAX],
    retransmit_count: u32,
    /// By the piece modulo the window: with which serial number of the lane it was sent last.
    serials: Vec<u32>,
    /// The highest serial number that a report of it bore, and at first that of the packet before.
    highest_acked: u32,
}

/// The place of a piece's bit.
const fn bit(piece: u32) -> (usize, u64) {
    ((piece % WINDOW / 64) as usize, 1 << (piece % 64))
}

impl Outgoing {
    /// The next packet to `dst` has this serial number. `None` if it has more pieces than can be
    /// numbered.
    pub fn new(
        (dst, serial): (ProcessId, u32),
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
            come: [0; PIECE_ACK_WORDS_MAX],
            retransmit: [0; PIECE_ACK_WORDS_MAX],
            retransmit_count: 0,
            serials: alloc::vec![0; WINDOW as usize],
            highest_acked: serial.wrapping_sub(1),
        })
    }

    /// The object, taken back.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The receiver knows nothing of it any more: all is sent anew, from this serial number on.
    pub fn restart(&mut self, serial: u32) {
        (self.cumulative, self.next, self.retransmit_count) = (0, 0, 0);
        self.come = [0; PIECE_ACK_WORDS_MAX];
        self.retransmit = [0; PIECE_ACK_WORDS_MAX];
        // What is under way of it comes to be known as old.
        self.highest_acked = serial.wrapping_sub(1);
    }

    /// The piece that is to be sent next.
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

    /// Writes the packet that is to be sent next, with this serial number. Answers its piece and
    /// its bytes.
    pub fn write(&self, buffer: &mut [u8], serial: u32) -> Option<(u32, usize)> {
        let index = self.due()?;
        let each = usize::from(self.piece_len);
        let open_object = index as usize * each;
        let bytes = &self.bytes[open_object..self.bytes.len().min(open_object + each)];
        let piece = Piece {
            object: self.object,
            bytes: self.bytes.len() as u64,
            piece_len: self.piece_len,
            index,
            serial,
        };
        Some((index, piece.write(buffer, bytes)?))
    }

    /// That packet has been taken. Answers whether its piece was sent before.
    pub fn on_sent(&mut self, index: u32, serial: u32) -> bool {
        let (word, bit) = bit(index);
        let is_again = self.retransmit[word] & bit != 0;
        if is_again {
            self.retransmit[word] &= !bit;
            self.retransmit_count -= 1;
        } else {
            debug_assert_eq!(index, self.next);
            self.come[word] &= !bit;
            self.next += 1;
        }
        self.serials[(index % WINDOW) as usize] = serial;
        is_again
    }

    /// The receiver says what has come; the next packet to it has this serial number. Answers
    /// whether something new has, or it begins anew.
    pub fn on_report(&mut self, report: &PieceAck, words: PieceAckWords<'_>, serial: u32) -> bool {
        let ahead = report.serial.wrapping_sub(self.highest_acked) as i32;
        // Of a report that another one has overtaken nothing is to be learned.
        if report.cumulative > self.next || ahead < 0 {
            return false;
        }
        let words = |piece: u32| {
            let at = piece - report.cumulative;
            words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
        };
        let is_acked = |piece| piece < report.cumulative || words(piece);
        let is_forgotten = |piece| self.is_acked(piece) && !is_acked(piece);
        let is_behind = report.cumulative < self.cumulative;
        if ahead > 0 && (is_behind || (self.cumulative..self.next).any(is_forgotten)) {
            // What it had said to have it has not: it has forgotten the object meanwhile.
            self.restart(serial);
            return true;
        }
        let before = (self.cumulative, self.come);
        let new = (self.cumulative..self.next).filter(|piece| is_acked(*piece));
        new.for_each(|piece| self.on_acked(piece));
        self.cumulative = self.cumulative.max(report.cumulative);
        self.highest_acked = report.serial;
        before != (self.cumulative, self.come)
    }

    fn is_acked(&self, piece: u32) -> bool {
        let (word, bit) = bit(piece);
        self.come[word] & bit != 0
    }

    fn on_acked(&mut self, piece: u32) {
        let (word, bit) = bit(piece);
        self.come[word] |= bit;
        self.retransmit_count -= u32::from(self.retransmit[word] & bit != 0);
        self.retransmit[word] &= !bit;
    }

    /// A packet of this serial number has come. What it and others have overtaken is sent again.
    pub fn detect_losses(&mut self, highest_acked: u32) {
        for piece in self.cumulative..self.next {
            let behind = highest_acked.wrapping_sub(self.serials[(piece % WINDOW) as usize]) as i32;
            if behind > REORDER_THRESHOLD as i32 {
                self.mark_lost(piece);
            }
        }
    }

    /// Nothing was heard for long: the first that has not come is sent again, and the last that was
    /// sent, so that a report tells of all between.
    pub fn on_retransmit_timeout(&mut self) {
        if self.next > self.cumulative {
            self.mark_lost(self.cumulative);
            self.mark_lost(self.next - 1);
        }
    }

    fn mark_lost(&mut self, piece: u32) {
        let (word, bit) = bit(piece);
        if (self.come[word] | self.retransmit[word]) & bit == 0 {
            self.retransmit[word] |= bit;
            self.retransmit_count += 1;
        }
    }
}
