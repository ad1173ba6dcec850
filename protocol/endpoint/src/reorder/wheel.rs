//! Where entries wait that no barrier has come near: a wheel of wheels, indexed by timestamp.
//!
//! The timestamp is read as a number of nine digits, the last of four bits (16 ns), the others of
//! eight. An entry lies on the level of the highest digit in which it differs from the wheel's
//! floor, in the slot that this digit names: near entries in fine slots, far ones in coarse slots,
//! and an entry 39 hours ahead costs no more than the next one. The first occupied slot of the
//! lowest occupied level is always the earliest.

use alloc::boxed::Box;

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of a digit.
const DIGIT_BITS: u32 = 8;
/// Slots of a level.
const SLOTS: usize = 1 << DIGIT_BITS;
/// Bits by which the last digit is shorter, so that slots are 1 ns, 16 ns, 4 us, 1 ms, 268 ms, …
const SHORT_BITS: u32 = 4;
/// Levels that 64 bits need.
const LEVELS: usize = ((63 + SHORT_BITS) / DIGIT_BITS) as usize + 1;

/// A slot that was taken out.
pub(super) struct Slot {
    /// Its first node.
    pub(super) head: u32,
    /// The least timestamp that belongs to it.
    pub(super) start: u64,
    /// The logarithm of its width in ns.
    pub(super) width_log2: u32,
}

impl Slot {
    /// The least timestamp above it.
    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(1 << self.width_log2)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wheel {
    /// Nothing in the wheel lies below. On each level, entries agree with it in all higher digits.
    floor: u64,
    /// A lower bound of all timestamps in the wheel, the end of time when it is empty.
    least: u64,
    /// Bit l: level l has an occupied slot.
    levels: u32,
    occupied: [[u64; SLOTS / 64]; LEVELS],
    heads: Box<[[u32; SLOTS]; LEVELS]>,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            floor: 0,
            least: u64::MAX,
            levels: 0,
            occupied: [[0; SLOTS / 64]; LEVELS],
            heads: Box::new([[NONE; SLOTS]; LEVELS]),
        }
    }

    #[inline]
    pub(super) fn least(&self) -> u64 {
        self.least
    }

    /// Adds a node to the slot of `ts`, which is not below the floor.
    #[inline]
    pub(super) fn push(&mut self, node: u32, ts: u64, links: &mut [u32]) {
        debug_assert!(ts >= self.floor);
        let differing = ((ts ^ self.floor) | 1).ilog2();
        let level = ((differing + SHORT_BITS) / DIGIT_BITS) as usize;
        let digit = (ts >> shift(level)) as usize % SLOTS;
        let head = &mut self.heads[level][digit];
        links[node as usize] = *head;
        *head = node;
        self.occupied[level][digit / 64] |= 1 << (digit % 64);
        self.levels |= 1 << level;
        self.least = self.least.min(ts);
    }

    /// Takes the earliest slot out and moves the floor to its start. There must be one.
    #[inline]
    pub(super) fn take_first(&mut self) -> Slot {
        let (level, digit) = self.first();
        let start = self.start(level, digit);
        let head = core::mem::replace(&mut self.heads[level][digit], NONE);
        let words = &mut self.occupied[level];
        words[digit / 64] &= !(1 << (digit % 64));
        if words.iter().all(|&word| word == 0) {
            self.levels &= !(1 << level);
        }
        self.floor = start;
        self.least = u64::MAX;
        if self.levels != 0 {
            let (level, digit) = self.first();
            self.least = self.start(level, digit);
        }
        Slot { head, start, width_log2: shift(level) }
    }

    /// Moves the floor up to `floor`, which lies in the slot last taken.
    pub(super) fn advance(&mut self, floor: u64) {
        debug_assert!(floor >= self.floor && floor <= self.least);
        self.floor = floor;
    }

    #[inline]
    fn first(&self) -> (usize, usize) {
        let level = self.levels.trailing_zeros() as usize;
        let words = &self.occupied[level];
        let word = words.iter().position(|&word| word != 0).expect("the level is marked occupied");
        (level, word * 64 + words[word].trailing_zeros() as usize)
    }

    #[inline]
    fn start(&self, level: usize, digit: usize) -> u64 {
        let shift = shift(level);
        let higher = u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        // The shorter last digit shares its slots with the next one: take the difference only.
        (self.floor & higher) | ((digit as u64) << shift)
    }
}

#[inline]
fn shift(level: usize) -> u32 {
    (level as u32 * DIGIT_BITS).saturating_sub(SHORT_BITS)
}
