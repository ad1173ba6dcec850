//! A set of node parts that may have work.

use alloc::vec::Vec;

/// Bit set of the parts that must be polled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    words: Vec<u64>,
}

impl Flags {
    /// Returns a set of all `count` parts.
    pub fn all(count: usize) -> Self {
        let mut flags = Self { words: alloc::vec![0; count.div_ceil(64)] };
        (0..count).for_each(|index| flags.set(index));
        flags
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
        (1..=count).map(|step| (first + step) % count).find_map(|at| {
            let word = self.words[at];
            (word != 0).then(|| at * 64 + word.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_round() {
        let mut flags = Flags::all(130);
        (0..130).filter(|index| ![3, 64, 129].contains(index)).for_each(|index| flags.clear(index));
        let found: Vec<_> = [0, 4, 65, 129].map(|from| flags.next(from)).into();
        assert_eq!(found, [Some(3), Some(64), Some(129), Some(129)]);
        flags.clear(129);
        assert_eq!(flags.next(65), Some(3));
        assert!(flags.has(64) && !flags.has(129));
        [3, 64].into_iter().for_each(|index| flags.clear(index));
        assert_eq!(flags.next(65), None);
    }
}
