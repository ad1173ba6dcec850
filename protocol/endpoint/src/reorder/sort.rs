//! Sorting a handful of entries without a branch that depends on them.
//!
//! An entry's place is the number of entries below it. Counting them all is quadratic, but for up to
//! 64 keys of 32 bits it is a few vector instructions an entry, and nothing is mispredicted.

/// The most entries that are sorted at once.
pub(super) const SORT_MAX: usize = 64;
const PLACE_BITS: u32 = SORT_MAX.ilog2();
/// Timestamps of slots up to this wide (in bits of ns) fit a key.
pub(super) const WIDTH_LOG2_MAX: u32 = 31 - PLACE_BITS;
/// Keys compared at a time.
const LANES: usize = 16;

/// The key of the entry `ahead` ns behind the start of its slot that was `place`-th in its chain.
/// Chains run from the newest to the oldest: among equal timestamps the oldest comes first.
#[inline]
pub(super) fn key(ahead: u64, place: usize) -> i32 {
    ((ahead as u32) << PLACE_BITS) as i32 & i32::MAX | (SORT_MAX - 1 - place) as i32
}

/// Writes `nodes` to `sorted` by ascending key. Answers whether no two timestamps were equal.
#[inline]
pub(super) fn rank_sort(nodes: &[u32], keys: &[i32; SORT_MAX], sorted: &mut [u32]) -> bool {
    let count = nodes.len();
    let mut by_rank = [0; SORT_MAX];
    for (block, lanes) in keys.chunks_exact(LANES).enumerate() {
        let first = block * LANES;
        if first >= count {
            break;
        }
        let mut ranks = [0; LANES];
        for &key in &keys[..count] {
            for (rank, &lane) in ranks.iter_mut().zip(lanes) {
                *rank += i32::from(key < lane);
            }
        }
        for (place, &rank) in (first..count).zip(&ranks) {
            let rank = rank as usize % SORT_MAX;
            sorted[rank] = nodes[place];
            by_rank[rank] = keys[place] >> PLACE_BITS;
        }
    }
    by_rank[..count].windows(2).all(|pair| pair[0] != pair[1])
}
