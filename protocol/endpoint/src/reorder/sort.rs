//! Sorting a handful of entries without a branch that depends on them.
//!
//! An entry's rank is the number of entries below it. Counting them all is quadratic, but for a few
//! dozen keys of 32 bits it is a few vector instructions an entry, and nothing is mispredicted.

/// The most entries that are sorted at once.
pub(super) const SORT_MAX: usize = 64;
const INDEX_BITS: u32 = SORT_MAX.ilog2();
/// Keys compared at a time.
const LANES: usize = 8;
const _: () = assert!(SORT_MAX.is_multiple_of(LANES), "every key is in a full block");

/// What to sort: each key is unique.
pub(super) struct Keys([i32; SORT_MAX]);

impl Keys {
    pub(super) fn new() -> Self {
        Self([i32::MAX; SORT_MAX])
    }

    /// Sets the key of the entry at `index`, `offset_ns` ns (less than 2^25) behind the start of its
    /// slot. Of entries with the same timestamp the one with the higher place comes first: places
    /// count from the newest.
    #[inline]
    pub(super) fn set(&mut self, index: usize, offset_ns: u64) {
        self.0[index] = (offset_ns << INDEX_BITS) as i32 | (SORT_MAX - 1 - index) as i32;
    }

    /// Fills in the places of the first `count` keys in ascending order, and answers whether no two
    /// of them had the same timestamp.
    #[inline]
    pub(super) fn sort(&self, count: usize, sorted: &mut [i32; SORT_MAX]) -> bool {
        for (block, channels) in self.0.chunks_exact(LANES).enumerate() {
            if block * LANES >= count {
                break;
            }
            let mut ranks = [0; LANES];
            for &key in &self.0[..count] {
                for (rank, &channel) in ranks.iter_mut().zip(channels) {
                    *rank += i32::from(key < channel);
                }
            }
            for (rank, &channel) in ranks.iter().zip(channels) {
                // Padding has the highest rank of all.
                sorted[*rank as usize % SORT_MAX] = channel;
            }
        }
        sorted[..count].windows(2).all(|pair| pair[0] >> INDEX_BITS != pair[1] >> INDEX_BITS)
    }
}

/// Which place a sorted key had.
#[inline]
pub(super) fn index(key: i32) -> usize {
    SORT_MAX - 1 - key as usize % SORT_MAX
}
