//! Sorts a few entries without data-dependent branches.
//!
//! The rank of an entry is the number of smaller entries. Counting is quadratic, but for a few
//! dozen 32-bit keys it takes a few vector instructions per entry, and no branch is mispredicted.

/// Maximum number of entries sorted at once.
pub(super) const SORT_MAX: usize = 64;
const INDEX_BITS: u32 = SORT_MAX.ilog2();
/// Number of keys compared by one vector operation.
const LANES: usize = 8;
const _: () = assert!(SORT_MAX.is_multiple_of(LANES), "every key is in a full block");

/// Keys to sort. Each is unique, because it contains the index of its entry.
pub(super) struct Keys([i32; SORT_MAX]);

impl Keys {
    pub(super) fn new() -> Self {
        Self([i32::MAX; SORT_MAX])
    }

    /// Sets the key of the entry at `index`, which lies `offset_ns` (less than 2^25) after the
    /// start of its slot. Among equal timestamps the higher index sorts first, because indices
    /// count from the newest entry.
    #[inline]
    pub(super) fn set(&mut self, index: usize, offset_ns: u64) {
        self.0[index] = (offset_ns << INDEX_BITS) as i32 | (SORT_MAX - 1 - index) as i32;
    }

    /// Writes the first `count` keys to `sorted` in ascending order. Returns whether no two of them
    /// have the same timestamp.
    #[inline]
    pub(super) fn sort(&self, count: usize, sorted: &mut [i32; SORT_MAX]) -> bool {
        for (block, lanes) in self.0.chunks_exact(LANES).enumerate() {
            if block * LANES >= count {
                break;
            }
            let mut ranks = [0; LANES];
            for &key in &self.0[..count] {
                for (rank, &lane) in ranks.iter_mut().zip(lanes) {
                    *rank += i32::from(key < lane);
                }
            }
            for (rank, &lane) in ranks.iter().zip(lanes) {
                // Padding has the highest rank.
                sorted[*rank as usize % SORT_MAX] = lane;
            }
        }
        sorted[..count].windows(2).all(|pair| pair[0] >> INDEX_BITS != pair[1] >> INDEX_BITS)
    }
}

/// Returns the index that a key contains.
#[inline]
pub(super) fn index(key: i32) -> usize {
    SORT_MAX - 1 - key as usize % SORT_MAX
}
