//! State that a receiver keeps of one sender.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono};
use onepipe_reliability::BoundedQueue;
use onepipe_wire::{Piece, PieceAck, PieceAckState};

use super::incoming::Incoming;

/// Maximum number of objects in flight from one sender to one receiver. A new object implies that
/// all objects at least this far before it have ended.
pub(super) const OBJECTS_PER_PAIR_MAX: u32 = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RemoteSender {
    /// The latest incarnation known.
    pub incarnation: Incarnation,
    /// The highest serial number received, of any object.
    serial: Option<u32>,
    pub open: Vec<Incoming>,
    /// The oldest object of the window; one bit for each object from there on that is complete, and
    /// for each that was refused.
    first: Option<u32>,
    whole: u64,
    refused: u64,
    /// Pieces received since the last report, and when the next one is due.
    pub unreported: u32,
    pub report_at: Option<Mono>,
    /// Final reports to send.
    pub final_reports: BoundedQueue<(u32, PieceAckState)>,
}

/// The state of a piece's object.
pub(super) enum ObjectState {
    /// In flight, at this index.
    Open(usize),
    /// Not seen before.
    New,
    /// Ended within the window; its final report was queued.
    Ended,
    /// Ended before the window.
    Stale,
}

impl RemoteSender {
    pub fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            serial: None,
            open: Vec::with_capacity(OBJECTS_PER_PAIR_MAX as usize),
            first: None,
            whole: 0,
            refused: 0,
            unreported: 0,
            report_at: None,
            final_reports: BoundedQueue::new(OBJECTS_PER_PAIR_MAX as usize),
        }
    }

    /// Asserts that each object of the window has one state.
    pub fn check_invariants(&self) {
        assert!(self.open.len() <= OBJECTS_PER_PAIR_MAX as usize, "objects are bounded");
        assert_eq!(self.whole & self.refused, 0, "a refused object is not complete");
        let first = self.first.unwrap_or_default();
        for (at, open) in self.open.iter().enumerate() {
            open.check_invariants();
            let ahead = open.object.wrapping_sub(first);
            assert!(ahead < OBJECTS_PER_PAIR_MAX, "an open object is within the window");
            assert_eq!((self.whole | self.refused) >> ahead & 1, 0, "an open object has not ended");
            let is_again = self.open[..at].iter().any(|other| other.object == open.object);
            assert!(!is_again, "an object is open once");
        }
    }

    /// Starts a new incarnation. Returns the incomplete objects of the previous one.
    pub fn restart(&mut self, incarnation: Incarnation) -> Vec<Incoming> {
        core::mem::replace(self, Self::new(incarnation)).open
    }

    /// Records the serial number of a piece.
    pub fn on_serial(&mut self, piece: &Piece) {
        let is_newer = |serial: u32| piece.serial.wrapping_sub(serial) as i32 > 0;
        if self.serial.is_none_or(is_newer) {
            self.serial = Some(piece.serial);
        }
    }

    /// Returns a report of an object.
    pub fn report(&self, object: u32, state: PieceAckState, cumulative: u32) -> PieceAck {
        let serial = self.serial.unwrap_or_default();
        PieceAck { object, state, serial, cumulative, incarnation: self.incarnation }
    }

    /// Returns the state of a piece's object. `ended` is called for objects that leave the window.
    pub fn lookup(&mut self, piece: &Piece, mut ended: impl FnMut(&Incoming)) -> ObjectState {
        let object = piece.object;
        let first = *self.first.get_or_insert(object.wrapping_sub(OBJECTS_PER_PAIR_MAX - 1));
        let ahead = object.wrapping_sub(first);
        if ahead as i32 <= -1 {
            return ObjectState::Stale;
        }
        let slide = (ahead + 1).saturating_sub(OBJECTS_PER_PAIR_MAX);
        if slide > 0 {
            let first = first.wrapping_add(slide);
            self.first = Some(first);
            self.whole = self.whole.unbounded_shr(slide);
            self.refused = self.refused.unbounded_shr(slide);
            self.open.retain(|open| {
                let stays = open.object.wrapping_sub(first) < OBJECTS_PER_PAIR_MAX;
                if !stays {
                    ended(open);
                }
                stays
            });
        }
        let bit = 1u64 << (ahead - slide);
        if self.whole & bit != 0 {
            self.queue_final(object, PieceAckState::Whole);
            return ObjectState::Ended;
        }
        if self.refused & bit != 0 {
            self.queue_final(object, PieceAckState::Refused);
            return ObjectState::Ended;
        }
        match self.open.iter().position(|open| open.object == object) {
            Some(index) => ObjectState::Open(index),
            None => ObjectState::New,
        }
    }

    /// Ends an object: queues its final report, now and for each further piece.
    pub fn end(&mut self, object: u32, state: PieceAckState) {
        let bit = 1u64.unbounded_shl(object.wrapping_sub(self.first.unwrap_or(object)));
        match state {
            PieceAckState::Whole => self.whole |= bit,
            PieceAckState::Refused => self.refused |= bit,
            PieceAckState::Partial => {}
        }
        self.queue_final(object, state);
    }

    fn queue_final(&mut self, object: u32, state: PieceAckState) {
        if !self.final_reports.contains(&(object, state)) {
            self.final_reports.push((object, state));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_state_is_repeated_once_per_request() {
        let piece = |object| Piece { object, bytes: 9, piece_len: 9, index: 0, serial: 0 };
        for state in [PieceAckState::Refused, PieceAckState::Whole] {
            let mut sender = RemoteSender::new(Incarnation(1));
            assert!(matches!(sender.lookup(&piece(5), |_| {}), ObjectState::New));
            sender.end(5, state);
            assert_eq!(sender.final_reports.pop(), Some((5, state)));
            for _ in 0..2 {
                assert!(
                    matches!(sender.lookup(&piece(5), |_| {}), ObjectState::Ended),
                    "{state:?}"
                );
            }
            assert_eq!(
                (sender.final_reports.pop(), sender.final_reports.pop()),
                (Some((5, state)), None)
            );
            assert!(matches!(sender.lookup(&piece(4), |_| {}), ObjectState::New), "another one");
        }
    }
}
