//! A hierarchical timing wheel: entries that the barrier has not reached, in slots by timestamp.
//!
//! The lowest level is a calendar of 4,096 slots of adjustable width. Each level above has 64
//! slots, and one of its slots covers the whole level below. An entry lies on the level of the
//! highest digit of its timestamp that differs from the wheel's floor, in the slot named by that
//! digit. So all slots, numbered upwards through the levels, are in order of time, and an entry 39
//! hours ahead costs no more than the next one.

use alloc::boxed::Box;

/// Marks the end of a chain of nodes.
pub(super) const NONE: u32 = u32::MAX;

/// Binary logarithm of the number of calendar slots: at the width for 40 M messages/s they span
/// 1 ms.
const CALENDAR_LOG2: u32 = 12;
const CALENDAR: usize = 1 << CALENDAR_LOG2;
/// Binary logarithm of the number of slots of a higher level, which is the number of bits of a
/// word.
const LEVEL_LOG2: u32 = 6;
/// Levels above the calendar that cover 64 bits when its slots are 1 ns wide.
const LEVELS: usize = (64 - CALENDAR_LOG2).div_ceil(LEVEL_LOG2) as usize;
const SLOTS: usize = CALENDAR + LEVELS * 64;

/// A slot removed from the wheel.
pub(super) struct Slot {
    /// Its newest node.
    pub(super) head: u32,
    /// The lowest timestamp that belongs to it.
    pub(super) start: u64,
    /// Whether it is a slot of the calendar, the narrowest kind.
    pub(super) is_narrow: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wheel {
    width_log2: u32,
    /// Lower bound of all timestamps in the wheel; the origin of the slots.
    floor: u64,
    /// A tighter lower bound; `u64::MAX` if the wheel is empty.
    least: u64,
    /// Bit w is set if word w of the calendar is not zero.
    calendar: u64,
    /// Bit l is set if level l above the calendar has an occupied slot.
    levels: u32,
    /// Bit s % 64 of word s / 64 is set if slot s has a node.
    occupied: [u64; SLOTS / 64],
    heads: Box<[u32; SLOTS]>,
}

impl Wheel {
    pub(super) fn new(width_log2: u32) -> Self {
        Self {
            width_log2,
            floor: 0,
            least: u64::MAX,
            calendar: 0,
            levels: 0,
            occupied: [0; SLOTS / 64],
            heads: Box::new([NONE; SLOTS]),
        }
    }

    #[inline]
    pub(super) fn least(&self) -> u64 {
        self.least
    }

    /// Returns the binary logarithm of the width of the calendar's slots in ns.
    pub(super) fn width_log2(&self) -> u32 {
        self.width_log2
    }

    /// Sets the floor and the calendar's slot width of the empty wheel.
    pub(super) fn reset(&mut self, floor: u64, width_log2: u32) {
        debug_assert!(self.least == u64::MAX, "the wheel is not empty");
        self.floor = floor;
        self.width_log2 = width_log2;
    }

    /// Adds a node to the slot of `ts`, which must not be below the floor.
    #[inline]
    pub(super) fn push(&mut self, node: u32, ts: u64, links: &mut [u32]) {
        debug_assert!(ts >= self.floor);
        let differing = (ts ^ self.floor) >> self.width_log2;
        let slot = if differing < CALENDAR as u64 {
            (ts >> self.width_log2) as usize % CALENDAR
        } else {
            let level = (differing.ilog2() - CALENDAR_LOG2) / LEVEL_LOG2;
            let shift = self.width_log2 + CALENDAR_LOG2 + level * LEVEL_LOG2;
            CALENDAR + level as usize * 64 + (ts >> shift) as usize % 64
        };
        let head = &mut self.heads[slot];
        links[node as usize] = *head;
        *head = node;
        let word = &mut self.occupied[slot / 64];
        if *word == 0 {
            match slot / 64 {
                index if index < CALENDAR / 64 => self.calendar |= 1 << index,
                index => self.levels |= 1 << (index - CALENDAR / 64),
            }
        }
        *word |= 1 << (slot % 64);
        self.least = self.least.min(ts);
    }

    /// Removes the earliest slot and moves the floor to its start.
    #[inline]
    pub(super) fn take_first(&mut self) -> Option<Slot> {
        let slot = self.first()?;
        let start = self.start(slot);
        let head = core::mem::replace(&mut self.heads[slot], NONE);
        let word = &mut self.occupied[slot / 64];
        *word &= *word - 1;
        let is_narrow = slot < CALENDAR;
        if *word == 0 && is_narrow {
            self.calendar &= self.calendar - 1;
        } else if *word == 0 {
            self.levels &= self.levels - 1;
        }
        self.floor = start;
        self.least = self.first().map_or(u64::MAX, |next| self.start(next));
        Some(Slot { head, start, is_narrow })
    }

    /// Checks that the bits of all levels agree, and that the least timestamp is not below the
    /// floor.
    pub(super) fn check_invariants(&self) {
        let is_occupied = |word: usize| self.occupied[word] != 0;
        let calendar = (0..CALENDAR / 64).all(|w| is_occupied(w) == (self.calendar >> w & 1 == 1));
        assert!(calendar, "words of the calendar are marked");
        let levels = (0..LEVELS)
            .all(|level| is_occupied(CALENDAR / 64 + level) == (self.levels >> level & 1 == 1));
        assert!(levels, "levels above the calendar are marked");
        assert_eq!(
            self.least == u64::MAX,
            self.first().is_none(),
            "a slot with a node is occupied"
        );
        assert!(self.least >= self.floor, "the floor bounds every timestamp");
        if let Some(first) = self.first() {
            assert!(self.heads[first] != NONE, "an occupied slot has a node");
            assert!(self.start(first) <= self.least, "the first slot holds the least timestamp");
        }
    }

    #[inline]
    fn first(&self) -> Option<usize> {
        let word = if self.calendar != 0 {
            self.calendar.trailing_zeros() as usize
        } else if self.levels != 0 {
            CALENDAR / 64 + self.levels.trailing_zeros() as usize
        } else {
            return None;
        };
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }

    #[inline]
    fn start(&self, slot: usize) -> u64 {
        let (shift, digit, digit_log2) = if slot < CALENDAR {
            (self.width_log2, slot, CALENDAR_LOG2)
        } else {
            let level = (slot - CALENDAR) as u32 / 64;
            (self.width_log2 + CALENDAR_LOG2 + level * LEVEL_LOG2, slot % 64, LEVEL_LOG2)
        };
        let above = u64::MAX.checked_shl(shift + digit_log2).unwrap_or(0);
        (self.floor & above) | ((digit as u64) << shift)
    }
}
