//! Selection of the lowest set bits of a word.

use onepipe_simd::Bits;

/// An implementation of the selection. All give the same result.
pub(super) trait Pick: Copy {
    /// Returns the lowest `count` (1 to 64) set bits of `word`, or all, and their number.
    fn lowest(self, word: u64, count: u32) -> (u64, u32);
}

/// Uses only instructions of every CPU.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Pick for Portable {
    #[inline]
    fn lowest(self, word: u64, count: u32) -> (u64, u32) {
        lowest(word, count)
    }
}

impl Pick for Bits {
    #[inline]
    fn lowest(self, word: u64, count: u32) -> (u64, u32) {
        debug_assert!((1..=u64::BITS).contains(&count));
        let slots = self.deposit(u64::MAX >> (u64::BITS - count), word);
        (slots, self.count(slots))
    }
}

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH_BITS: u64 = ONES << 7;
/// Each byte without its `count` highest set bits, at `[byte][count]`.
static WITHOUT: [[u8; 8]; 256] = without();

const fn without() -> [[u8; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte;
        let mut count = 0;
        while count < 8 {
            table[byte][count] = rest as u8;
            if rest > 0 {
                rest ^= 1 << rest.ilog2();
            }
            count += 1;
        }
        byte += 1;
    }
    table
}

/// Returns the lowest `count` (at least 1) set bits of `word`, or all, and their number.
///
/// Without branches or loops, as a misprediction would cost as much as the whole function. Counts
/// the set bits byte by byte; a table yields the part of the byte that holds the last one.
#[inline]
fn lowest(word: u64, count: u32) -> (u64, u32) {
    debug_assert!(count > 0);
    let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
    let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
    let bytes = (fours + (fours >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    let all = bytes.wrapping_mul(ONES) >> 56;
    let count = u64::from(count).min(all);
    // For each byte: the number of set bits up to and including the byte, minus `count`, plus 128.
    // Its highest bit is set where the bits suffice. There is no carry between bytes, as the counts
    // are at most 64.
    let reach = (bytes + 128 - count).wrapping_mul(ONES);
    let at = (reach & HIGH_BITS).trailing_zeros() & 0x38;
    let last = WITHOUT[(word >> at) as usize & 0xff][(reach >> at) as usize & 7];
    (word & !(u64::MAX << at) | u64::from(last) << at, count as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_by_one(word: u64, count: u32) -> (u64, u32) {
        let (mut rest, mut taken) = (word, 0);
        while taken < count && rest != 0 {
            rest &= rest - 1;
            taken += 1;
        }
        (word ^ rest, taken)
    }

    #[test]
    fn lowest_takes_the_lowest_bits_first() {
        assert_eq!(lowest(0b1011_0100, 2), (0b1_0100, 2));
        assert_eq!(lowest(0b1011_0100, 5), (0b1011_0100, 4));
        assert_eq!(lowest(u64::MAX, 64), (u64::MAX, 64));
        assert_eq!(lowest(u64::MAX, 63), (u64::MAX >> 1, 63));
        assert_eq!(lowest(1 << 63, 1), (1 << 63, 1));
    }

    proptest! {
        #[test]
        fn lowest_matches_bit_by_bit_selection(
            words in (any::<u64>(), any::<u64>(), any::<u64>()),
            count in 1u32..70,
        ) {
            let (one, two, three) = words;
            for word in [one, one & two, one | two, one & two & three, one | two | three, !0 << (one % 64), 0] {
                prop_assert_eq!(lowest(word, count), one_by_one(word, count));
                if let Some(bits) = Bits::detect() {
                    let count = count.min(64);
                    prop_assert_eq!(bits.lowest(word, count), one_by_one(word, count));
                }
            }
        }
    }
}
