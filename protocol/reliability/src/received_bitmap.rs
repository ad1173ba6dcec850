//! Which of the last packets of a link were received: the words of an acknowledgement.

use onepipe_base::Psn;

/// Received packets up to the highest PSN: bit `i` of word `w` is set if packet
/// `largest - 64 w - i` was received. Packets further back than all words are forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReceivedBitmap<const WORDS: usize> {
    largest: Option<Psn>,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Default for ReceivedBitmap<WORDS> {
    fn default() -> Self {
        Self { largest: None, words: [0; WORDS] }
    }
}

impl<const WORDS: usize> ReceivedBitmap<WORDS> {
    /// Creates the bitmap of a receiver to whom no packet before or at `psn` is missing.
    pub const fn complete_until(psn: Psn) -> Self {
        Self { largest: Some(psn), words: [u64::MAX; WORDS] }
    }

    /// Number of packets covered.
    pub const REACH: u32 = 64 * WORDS as u32;

    /// Returns the highest PSN received.
    pub const fn largest(&self) -> Option<Psn> {
        self.largest
    }

    /// Returns the words, latest packets first.
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Returns whether a packet is covered and was received.
    pub fn has(&self, psn: Psn) -> bool {
        let back = self.largest.map(|largest| largest.0.wrapping_sub(psn.0));
        let back = back.filter(|back| *back < Self::REACH);
        back.is_some_and(|back| self.words[back as usize / 64] >> (back % 64) & 1 == 1)
    }

    /// Returns whether a packet has arrived that follows `psn`.
    pub fn is_overtaken(&self, psn: Psn) -> bool {
        self.largest.is_some_and(|largest| psn.is_before(largest))
    }

    /// Returns whether a packet was not received before, as far as the words reach.
    pub fn is_new(&self, psn: Psn) -> bool {
        let back = self.largest.map_or(0, |largest| largest.0.wrapping_sub(psn.0));
        !self.has(psn) && (!self.is_overtaken(psn) || back < Self::REACH)
    }

    /// Panics if the highest PSN does not count as received.
    pub fn check_invariants(&self) {
        let is_set = self.words.first().is_some_and(|word| word & 1 == 1);
        assert_eq!(is_set, self.largest.is_some(), "the highest PSN was received");
    }

    /// Records a packet. Returns its distance from the highest one received before, modulo 2^32: 1
    /// if none is missing between them, and 0 for the first packet and for a duplicate.
    pub fn insert(&mut self, psn: Psn) -> u32 {
        let largest = *self.largest.get_or_insert(psn);
        let ahead = psn.0.wrapping_sub(largest.0);
        let behind = largest.0.wrapping_sub(psn.0);
        if ahead < u32::MAX / 2 {
            self.shift(ahead);
            self.largest = Some(psn);
            self.words[0] |= 1;
        } else if behind < Self::REACH {
            self.words[behind as usize / 64] |= 1 << (behind % 64);
        }
        debug_assert!(self.words[0] & 1 == 1, "the highest PSN was received");
        debug_assert!(behind >= Self::REACH && ahead >= u32::MAX / 2 || self.has(psn), "recorded");
        ahead
    }

    fn shift(&mut self, by: u32) {
        let (words, bits) = (by as usize / 64, by % 64);
        for at in (0..WORDS).rev() {
            let word = |back: usize| at.checked_sub(back).map_or(0, |from| self.words[from]);
            let carried = word(words + 1).unbounded_shr(64 - bits);
            self.words[at] = word(words) << bits | carried;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    #[test]
    fn packet_is_new_once_while_it_is_covered() {
        let mut bitmap = ReceivedBitmap::<1>::complete_until(Psn(0));
        assert!(!bitmap.is_new(Psn(0)) && !bitmap.is_new(Psn(u32::MAX)), "they never existed");
        let mut insert = |psn| {
            let is_new = bitmap.is_new(Psn(psn));
            bitmap.insert(Psn(psn));
            bitmap.check_invariants();
            (is_new, bitmap.words()[0])
        };
        let of = |bits: &[u32]| bits.iter().fold(0, |word, bit| word | 1 << bit);
        assert_eq!(insert(100), (true, of(&[0])));
        assert_eq!(insert(100), (false, of(&[0])));
        assert_eq!(insert(97), (true, of(&[0, 3])));
        assert_eq!(insert(97), (false, of(&[0, 3])));
        assert_eq!(insert(163), (true, of(&[0, 63])));
        assert_eq!(insert(100), (false, of(&[0, 63])));
        assert_eq!(insert(99), (false, of(&[0, 63])), "before the word");
        assert_eq!(insert(5_000), (true, of(&[0])));
        assert!(bitmap.is_overtaken(Psn(4_999)) && !bitmap.is_overtaken(Psn(5_000)));
        assert!(ReceivedBitmap::<1>::default().is_new(Psn(7)), "nothing was received");
    }

    #[test]
    fn words_hold_the_last_packets_across_the_wrap() {
        // Steps forward and back, by a few packets, a word and more than all words.
        let steps = [1, 1, 3, 64, -1, -65, 200, 63, -127, 129, 1_000, 0, -128, -127, 5];
        for first in [0, 77, u32::MAX - 5, u32::MAX - 300] {
            let mut bitmap = ReceivedBitmap::<2>::default();
            let (mut at, mut largest) = (first, first);
            let mut received = BTreeSet::from([0_i64]);
            assert_eq!((bitmap.has(Psn(first)), bitmap.largest()), (false, None));
            assert_eq!(bitmap.insert(Psn(first)), 0);
            let mut distance = 0_i64;
            for step in steps {
                at = at.wrapping_add_signed(step);
                distance += i64::from(step);
                assert_eq!(bitmap.insert(Psn(at)), at.wrapping_sub(largest), "{first} {distance}");
                received.insert(distance);
                if Psn(largest).is_before(Psn(at)) {
                    largest = at;
                }
                let ahead = i64::from(Psn(largest).since(Psn(at)));
                let covered = |back: u32| received.contains(&(distance + ahead - i64::from(back)));
                let has: Vec<bool> =
                    (0..200).map(|back| bitmap.has(Psn(largest.wrapping_sub(back)))).collect();
                let expected: Vec<bool> =
                    (0..200).map(|back| back < 128 && covered(back)).collect();
                assert_eq!((has, bitmap.largest()), (expected, Some(Psn(largest))), "{distance}");
                assert_eq!(bitmap.words()[0] & 1, 1);
                assert!(!bitmap.has(Psn(largest.wrapping_add(1))), "not received yet");
                // Packets that were out of reach do not return.
                received.retain(|at| distance + ahead - at < 128);
            }
        }
    }
}
