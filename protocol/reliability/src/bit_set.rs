//! Bit set of fixed length.

use alloc::vec;
use alloc::vec::Vec;

/// Bit set of fixed length, initially empty. Accesses beyond the end are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BitSet {
    words: Vec<u64>,
    count: u32,
}

impl BitSet {
    /// Creates an empty set of bits below `count`.
    pub fn new(count: u32) -> Self {
        Self { words: vec![0; count.div_ceil(64) as usize], count }
    }

    /// Returns whether a bit is set.
    pub fn has(&self, at: u32) -> bool {
        at < self.count && self.words[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Sets a bit. Returns whether it was clear before.
    pub fn set(&mut self, at: u32) -> bool {
        if at >= self.count || self.has(at) {
            return false;
        }
        self.words[at as usize / 64] |= 1 << (at % 64);
        true
    }

    /// Clears a bit.
    pub fn clear(&mut self, at: u32) {
        if at < self.count {
            self.words[at as usize / 64] &= !(1 << (at % 64));
        }
    }

    /// Sets all bits.
    pub fn set_all(&mut self) {
        for word in 0..self.words.len() {
            self.merge(word, u64::MAX);
        }
    }

    /// Clears all bits.
    pub fn clear_all(&mut self) {
        self.words.fill(0);
    }

    /// Sets bits of a word.
    pub fn merge(&mut self, word: usize, bits: u64) {
        let mask = self.mask(word);
        if let Some(index) = self.words.get_mut(word) {
            *index |= bits & mask;
            debug_assert_eq!(*index & !mask, 0, "no bit is set beyond the end");
        }
    }

    /// Returns the number of set bits.
    pub fn count_ones(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the valid bits of a word.
    pub fn mask(&self, word: usize) -> u64 {
        match (self.count as usize).saturating_sub(word * 64) {
            bits if bits >= 64 => u64::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// Returns the words of 64 bits, the lowest bits first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_bits_beyond_the_end() {
        let mut bits = BitSet::new(67);
        assert!(bits.set(66) && !bits.set(66) && !bits.set(67) && !bits.has(67));
        bits.set_all();
        assert_eq!((bits.words(), bits.count_ones()), (&[u64::MAX, 7][..], 67));
        bits.clear(0);
        bits.clear(99);
        assert_eq!(bits.words(), [u64::MAX - 1, 7]);
        bits.clear_all();
        bits.merge(1, u64::MAX);
        bits.merge(2, u64::MAX);
        assert_eq!(bits.words(), [0, 7]);
        assert_eq!((bits.mask(0), bits.mask(1), bits.mask(2)), (u64::MAX, 7, 0));
        assert_eq!(BitSet::new(0).words(), []);
    }
}
