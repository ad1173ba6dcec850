//! A set of parts of a node that may have work.

use alloc::vec::Vec;

/// Bit set of the parts that must be polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReadySet {
    words: Vec<u64>,
}

impl ReadySet {
    /// Returns a set of all `count` parts.
    pub fn all(count: usize) -> Self {
        let mut ready_set = Self { words: alloc::vec![0; count.div_ceil(64)] };
        (0..count).for_each(|index| ready_set.set(index));
        ready_set
    }

    #[inline]
    pub fn set(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
    }

    #[inline]
    pub fn clear(&mut self, index: usize) {
        self.words[index / 64] &= !(1 << (index % 64));
    }

    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.words[index / 64] & (1 << (index % 64)) != 0
    }

    /// Returns the first member at or after `from`, wrapping around.
    #[inline]
    pub fn next(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        let word = self.words.get(first)? & (u64::MAX << (from % 64));
        if word != 0 {
            return Some(first * 64 + word.trailing_zeros() as usize);
        }
        let count = self.words.len();
        (1..=count).map(|step| (first + step) % count).find_map(|index| {
            let word = self.words[index];
            (word != 0).then(|| index * 64 + word.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_wraps_around() {
        let mut ready_set = ReadySet::all(130);
        (0..130)
            .filter(|index| ![3, 64, 129].contains(index))
            .for_each(|index| ready_set.clear(index));
        let found: Vec<_> = [0, 4, 65, 129].map(|from| ready_set.next(from)).into();
        assert_eq!(found, [Some(3), Some(64), Some(129), Some(129)]);
        ready_set.clear(129);
        assert_eq!(ready_set.next(65), Some(3));
        assert!(ready_set.has(64) && !ready_set.has(129));
        [3, 64].into_iter().for_each(|index| ready_set.clear(index));
        assert_eq!(ready_set.next(65), None);
    }
}
