//! Received frames of a link, and their acknowledgement.

use onepipe_base::{Mono, Psn};
use onepipe_reliability::ReceivedBitmap;
use onepipe_wire::BULK_WORDS_MAX;

/// Number of frames that one acknowledgement covers.
pub(crate) const ACK_REACH: u32 = ReceivedBitmap::<BULK_WORDS_MAX>::REACH;

/// Minimum number of words in an acknowledgement, as redundancy against loss.
const WORDS_MIN: usize = 2;
const _: () = assert!(WORDS_MIN <= BULK_WORDS_MAX, "an acknowledgement has as many words");
/// An acknowledgement repeats all frames received since this many acknowledgements ago, as
/// redundancy against loss; even if they are many, after the receiver was descheduled.
const ACKS_COVERED: usize = 4;
const _: () = assert!(ACKS_COVERED > 0, "the oldest of the last acknowledgements exists");

//= spec/bulk.md#R20
/// Receiving half of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ReceivedFrames {
    /// First frame received.
    first: Option<Psn>,
    bitmap: ReceivedBitmap<BULK_WORDS_MAX>,
    marked: u32,
    /// Highest PSN of each of the last acknowledgements, latest first.
    last_acks: [Option<Psn>; ACKS_COVERED],
    /// Frames received since the last acknowledgement.
    unacked: u32,
    ack_at: Option<Mono>,
}

impl ReceivedFrames {
    /// Records a frame. Schedules an acknowledgement after `every` frames, or at `ack_at`.
    pub fn on_frame(&mut self, psn: Psn, is_marked: bool, every: u32, ack_at: Mono) {
        self.first.get_or_insert(psn);
        let ahead = self.bitmap.insert(psn);
        self.marked = self.marked.wrapping_add(is_marked.into());
        self.unacked += 1;
        // A gap indicates a loss: acknowledge immediately.
        let at_once = self.unacked >= every || ahead != 1;
        let due = if at_once { Mono::from_ns(0) } else { ack_at };
        self.ack_at = Some(self.ack_at.map_or(due, |at| at.min(due)));
    }

    /// Returns when an acknowledgement is due.
    pub fn ack_at(&self) -> Option<Mono> {
        self.ack_at
    }

    /// Returns the acknowledgement to send: the highest PSN, the words that cover all gaps and all
    /// frames since the oldest of `last_acks`, and the number of marked frames. Older words are
    /// complete and have been repeated often enough.
    pub fn take_ack(&mut self) -> Option<(Psn, &[u64], u32)> {
        let largest = self.bitmap.largest()?;
        let received = self.bitmap.words();
        self.ack_at = None;
        self.unacked = 0;
        let is_partial = |word: &u64| *word != 0 && *word != u64::MAX;
        let words = received.iter().rposition(is_partial).map_or(0, |last| last + 1);
        let since =
            |acked: Option<Psn>| largest.0.wrapping_sub(acked.unwrap_or(largest).0) as usize;
        // The word of the oldest acknowledgement may contain later frames, too.
        let recent = since(self.last_acks[ACKS_COVERED - 1].or(self.first)) / 64 + 1;
        let used = received.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let words = words.max(recent.min(used)).max(WORDS_MIN);
        debug_assert!(words <= BULK_WORDS_MAX, "an acknowledgement covers the bitmap at most");
        self.last_acks.rotate_right(1);
        self.last_acks[0] = Some(largest);
        Some((largest, &self.bitmap.words()[..words], self.marked))
    }

    /// Panics if the bitmap, or the schedule of the next acknowledgement, contradicts itself.
    pub fn check_invariants(&self) {
        let (has_first, has_largest) = (self.first.is_some(), self.bitmap.largest().is_some());
        assert_eq!(has_first, has_largest, "the first frame is one that was received");
        assert_eq!(self.bitmap.words()[0] & 1 == 1, has_largest, "the highest PSN was received");
        assert_eq!(self.ack_at.is_some(), self.unacked > 0, "what is unacknowledged is due");
        let acks = self.last_acks.iter().take_while(|acked| acked.is_some()).count();
        let has_none_behind = self.last_acks[acks..].iter().all(Option::is_none);
        assert!(has_none_behind, "the latest acknowledgement comes first");
        assert!(acks == 0 || has_largest, "only received frames are acknowledged");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    //= spec/bulk.md#R20
    #[test]
    fn acknowledges_across_psn_wrap() {
        let mut received = ReceivedFrames::default();
        assert_eq!(received.take_ack(), None);
        let (later, now) = (Mono::from_ns(9), Some(Mono::from_ns(0)));
        let first = u32::MAX - 2;
        received.on_frame(Psn(first), false, 3, later);
        assert_eq!(received.ack_at(), now, "the first frame is acknowledged immediately");
        received.take_ack();
        received.on_frame(Psn(first + 1), false, 3, later);
        assert_eq!(received.ack_at(), Some(later));
        received.on_frame(Psn(first.wrapping_add(70)), true, 3, later);
        assert_eq!(received.ack_at(), now, "a gap is acknowledged immediately");
        received.on_frame(Psn(first.wrapping_add(5)), false, 3, later);
        let (largest, words, marked) = received.take_ack().expect("frames were received");
        let has = |psn: u32| {
            let back = largest.0.wrapping_sub(psn);
            words[back as usize / 64] >> (back % 64) & 1 == 1
        };
        let come: Vec<u32> = (0..71).filter(|at| has(first.wrapping_add(*at))).collect();
        assert_eq!((come, words.len(), marked), ([0, 1, 5, 70].into(), WORDS_MIN, 1));
        received.on_frame(Psn(first.wrapping_add(70 + ACK_REACH)), false, 3, later);
        assert_eq!(
            received.take_ack().expect("a frame was received").1,
            [1, 0],
            "older frames are out of range"
        );
        received.on_frame(Psn(first), false, 3, later);
        assert_eq!(
            received.take_ack().expect("a frame was received").1,
            [1, 0],
            "and stay out of range"
        );
        for psn in 3_000..3_500 {
            received.on_frame(Psn(psn), false, 3, later);
        }
        assert_eq!(
            received.take_ack().expect("frames were received").1.len(),
            500usize.div_ceil(64)
        );
        for psn in 3_500..5_000 {
            received.on_frame(Psn(psn), false, 3, later);
        }
        let all = [u64::MAX; BULK_WORDS_MAX];
        assert_eq!(
            received.take_ack().expect("frames were received").1,
            all,
            "none was acknowledged before"
        );
        let mut words = Vec::new();
        for psn in 5_000..5_064 {
            received.on_frame(Psn(psn), false, 8, later);
            if received.ack_at() == now {
                words.push(received.take_ack().expect("frames were received").1.len());
            }
        }
        // Each word is repeated often enough to survive the loss of some acknowledgements.
        assert_eq!(words, [[16; ACKS_COVERED - 1].as_slice(), &[WORDS_MIN; 5]].concat());
    }
}
