//! The received and rejected packets of a connection, and the words that acknowledge them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::Psn;
use onepipe_base::mistake::{Mistake, makes};

/// Maximum distance of a packet from the first unresolved one: enough for a message of 16 MiB in
/// the smallest frames.
pub const WINDOW_PACKETS: u32 = 1 << 17;

/// State of a PSN when its packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PsnState {
    /// Neither received nor rejected.
    New,
    /// Received, rejected or before the base.
    Duplicate,
    /// Further ahead than any correct sender goes.
    Beyond,
}

/// State of each packet from `base` on. A packet is missing, received or *rejected*: never to be
/// accepted, even if it arrives later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PacketTracker {
    /// First packet that is not resolved on both sides.
    base: Psn,
    /// No packet from here on has arrived.
    end: Psn,
    /// State of the packets between the two. Not allocated while packets arrive in order, because
    /// there are many connections.
    bitmaps: Option<Box<Bitmaps>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Bitmaps {
    received: BitRing,
    rejected: BitRing,
}

impl PacketTracker {
    /// Creates a tracker of a connection whose first packet is `base`.
    pub fn new(base: Psn) -> Self {
        Self { base, end: base, bitmaps: None }
    }

    /// Returns the first packet whose outcome is not known on both sides.
    #[inline]
    pub fn base(&self) -> Psn {
        self.base
    }

    //= spec/ordering.md#R21
    //= spec/ordering.md#R26
    /// Returns the state of the packet `psn`.
    #[inline]
    pub fn classify(&self, psn: Psn) -> PsnState {
        let ahead = psn.since(self.base);
        if ahead < 0 {
            return PsnState::Duplicate;
        }
        if ahead as u32 >= WINDOW_PACKETS {
            return PsnState::Beyond;
        }
        let is_known = self.is_recorded(psn) && !makes(Mistake::DuplicateAccepted);
        if is_known { PsnState::Duplicate } else { PsnState::New }
    }

    /// Returns whether `psn`, which is not before the base, was received or rejected.
    #[inline]
    fn is_recorded(&self, psn: Psn) -> bool {
        let bitmaps = self.bitmaps.as_ref().filter(|_| psn.is_before(self.end));
        bitmaps.is_some_and(|bitmaps| bitmaps.received.has(psn) || bitmaps.rejected.has(psn))
    }

    /// Returns whether every packet before the newest one was received.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.base == self.end
    }

    /// Returns whether packets before `psn` are missing that no earlier packet has shown to be.
    #[inline]
    pub fn opens_gap(&self, psn: Psn) -> bool {
        self.end.is_before(psn)
    }

    /// Records the arrival of the new packet `psn`.
    #[inline]
    pub fn receive(&mut self, psn: Psn) {
        debug_assert!(!self.is_recorded(psn), "a packet is received once");
        if psn == self.base && self.base == self.end {
            self.base = psn.plus(1);
            self.end = self.base;
            return;
        }
        self.extend_to(psn).received.set(psn);
        self.skip_received();
    }

    /// Rejects the missing packet `psn` permanently.
    pub fn reject(&mut self, psn: Psn) {
        debug_assert!(!self.is_recorded(psn), "only a missing packet is rejected");
        self.extend_to(psn).rejected.set(psn);
    }

    /// Rejects every missing packet before `until`. Returns their number.
    pub fn reject_missing(&mut self, until: Psn) -> u32 {
        let mut count = 0;
        let mut psn = self.base;
        let limit = self.base.plus(WINDOW_PACKETS);
        while psn.is_before(until) && psn.is_before(limit) {
            if self.classify(psn) == PsnState::New {
                self.reject(psn);
                count += 1;
            }
            psn = psn.plus(1);
        }
        count
    }

    /// Advances the base to `psn`, before which the sender knows the outcome of every packet.
    /// Ignores an outdated `psn`.
    pub fn advance_to(&mut self, psn: Psn) {
        if self.base.is_before(psn) {
            self.move_base(psn);
        }
    }

    /// Checks that the first packet is unresolved, and that each packet has one state.
    pub fn check_invariants(&self) {
        let ahead = self.end.since(self.base);
        assert!(ahead >= 0, "the base is not beyond the packets that have arrived");
        assert!(ahead as u32 <= WINDOW_PACKETS, "no packet is beyond the window");
        assert!(ahead == 0 || self.bitmaps.is_some(), "packets out of order are recorded");
        let Some(bitmaps) = &self.bitmaps else { return };
        let (received, rejected) = (&bitmaps.received, &bitmaps.rejected);
        assert_eq!(received.words.len(), rejected.words.len(), "both cover the same packets");
        assert!(received.words.len().is_power_of_two(), "a ring is indexed by a mask");
        assert!(received.capacity() >= ahead as u32, "the ring holds every packet");
        assert!(ahead == 0 || !received.has(self.base), "the base skips received packets");
        let last = self.end.plus(u32::MAX);
        assert!(ahead == 0 || received.has(last) || rejected.has(last), "the last one is known");
        let mut pairs = received.words.iter().zip(&rejected.words);
        assert!(pairs.all(|(one, other)| one & other == 0), "a packet has one state");
        let known: u32 = [received, rejected].map(BitRing::count).iter().sum();
        assert!(known <= ahead as u32, "bits outside the window are clear");
    }

    fn move_base(&mut self, psn: Psn) {
        if psn.since(self.base) as u32 >= WINDOW_PACKETS && self.base.is_before(psn) {
            *self = Self::new(psn);
            return;
        }
        while self.base.is_before(psn) {
            self.step_base();
        }
        self.skip_received();
    }

    /// Returns a word of received and a word of rejected packets for each 64 packets from `base`
    /// on, at most `words_max`.
    pub fn words(&self, words_max: usize) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        let ahead = self.end.since(self.base).max(0) as usize;
        let bitmaps = self.bitmaps.as_deref();
        (0..ahead.div_ceil(64).min(words_max)).map(move |word| {
            let from = self.base.plus(word as u32 * 64);
            let words = |bitmaps: &Bitmaps| {
                (bitmaps.received.word(from, self.end), bitmaps.rejected.word(from, self.end))
            };
            bitmaps.map_or((0, 0), words)
        })
    }

    fn skip_received(&mut self) {
        let has = |tracker: &Self| {
            let bitmaps = tracker.bitmaps.as_ref();
            bitmaps.is_some_and(|bitmaps| bitmaps.received.has(tracker.base))
        };
        while self.base.is_before(self.end) && has(self) {
            self.step_base();
        }
    }

    fn step_base(&mut self) {
        if self.base.is_before(self.end) {
            if let Some(bitmaps) = &mut self.bitmaps {
                bitmaps.received.clear(self.base);
                bitmaps.rejected.clear(self.base);
            }
            self.base = self.base.plus(1);
        } else {
            self.base = self.base.plus(1);
            self.end = self.base;
        }
    }

    /// Returns the bitmaps, extended to hold `psn`.
    fn extend_to(&mut self, psn: Psn) -> &mut Bitmaps {
        let need = psn.since(self.base) as u32 + 1;
        let bitmaps = self.bitmaps.get_or_insert_with(Box::default);
        if bitmaps.received.capacity() < need {
            bitmaps.received.grow(need, self.base, self.end);
            bitmaps.rejected.grow(need, self.base, self.end);
        }
        if !psn.is_before(self.end) {
            self.end = psn.plus(1);
        }
        bitmaps
    }
}

/// A ring of bits indexed by PSN; bits outside `base..end` are clear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct BitRing {
    words: Vec<u64>,
}

impl BitRing {
    fn capacity(&self) -> u32 {
        self.words.len() as u32 * 64
    }

    /// Returns the number of ones.
    fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    fn grow(&mut self, need: u32, base: Psn, end: Psn) {
        let words = (need.next_power_of_two().max(256) / 64) as usize;
        let old = core::mem::replace(self, Self { words: alloc::vec![0; words] });
        let mut psn = base;
        while psn.is_before(end) {
            if old.has(psn) {
                self.set(psn);
            }
            psn = psn.plus(1);
        }
    }

    /// Returns the index of the word of `psn`, and the word in which only its bit is set.
    #[inline]
    fn locate(&self, psn: Psn) -> (usize, u64) {
        let bit = psn.0 & (self.capacity() - 1);
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline]
    fn has(&self, psn: Psn) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let (word, bit) = self.locate(psn);
        self.words[word] & bit != 0
    }

    #[inline]
    fn set(&mut self, psn: Psn) {
        let (word, bit) = self.locate(psn);
        self.words[word] |= bit;
    }

    fn clear(&mut self, psn: Psn) {
        if !self.words.is_empty() {
            let (word, bit) = self.locate(psn);
            self.words[word] &= !bit;
        }
    }

    /// Returns the 64 bits from `from` on; bits from `end` on read as 0.
    fn word(&self, from: Psn, end: Psn) -> u64 {
        let count = end.since(from).clamp(0, 64) as u32;
        (0..count).filter(|&i| self.has(from.plus(i))).fold(0, |word, i| word | 1 << i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    //= spec/ordering.md#R26
    //= spec/ordering.md#R29
    #[test]
    fn rejected_psn_holds_the_base_until_resolved() {
        let mut tracker = PacketTracker::new(Psn(u32::MAX - 1));
        tracker.receive(Psn(u32::MAX));
        assert_eq!(tracker.base(), Psn(u32::MAX - 1));
        assert_eq!(tracker.reject_missing(Psn(0)), 1);
        assert_eq!(tracker.words(16).collect::<Vec<_>>(), [(0b10, 0b01)]);
        assert_eq!(tracker.classify(Psn(u32::MAX - 1)), PsnState::Duplicate);
        tracker.move_base(Psn(u32::MAX));
        assert_eq!(tracker.base(), Psn(0));
    }

    #[test]
    fn base_advances_over_resolved_missing_packets() {
        let mut tracker = PacketTracker::new(Psn(0));
        tracker.move_base(Psn(5));
        assert_eq!(tracker.classify(Psn(4)), PsnState::Duplicate);
        tracker.move_base(Psn(5 + 2 * WINDOW_PACKETS));
        assert_eq!(tracker.classify(Psn(5 + 2 * WINDOW_PACKETS)), PsnState::New);
        assert_eq!(tracker.classify(Psn(5 + 3 * WINDOW_PACKETS)), PsnState::Beyond);
    }

    proptest! {
        #[test]
        fn matches_a_map_model(start in any::<u32>(), steps in prop::collection::vec((0u32..600, 0u8..4), 1..400)) {
            let mut tracker = PacketTracker::new(Psn(start));
            // Offset from start → received or rejected; below `acked` the sender knows the outcome.
            let (mut model, mut acked) = (BTreeMap::<u32, bool>::new(), 0u32);
            for (offset, action) in steps {
                let psn = Psn(start).plus(offset);
                let is_new = offset >= acked && !model.contains_key(&offset);
                prop_assert_eq!(tracker.classify(psn) == PsnState::New, is_new, "offset {}", offset);
                match action {
                    0 | 1 if is_new => { tracker.receive(psn); model.insert(offset, true); }
                    2 if is_new => { tracker.reject(psn); model.insert(offset, false); }
                    3 => { tracker.move_base(psn); acked = acked.max(offset); }
                    _ => {}
                }
                while model.get(&acked) == Some(&true) { acked += 1; }
                prop_assert_eq!(tracker.base(), Psn(start).plus(acked));
                let words: Vec<_> = tracker.words(16).collect();
                for at in acked..700 {
                    let (word, bit) = (((at - acked) / 64) as usize, (at - acked) % 64);
                    let (received, rejected) = words.get(word).copied().unwrap_or((0, 0));
                    prop_assert_eq!(received >> bit & 1 == 1, model.get(&at) == Some(&true));
                    prop_assert_eq!(rejected >> bit & 1 == 1, model.get(&at) == Some(&false));
                }
            }
        }
    }
}
