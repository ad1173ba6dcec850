//! The sizes of a segment, and the layout that follows from them.

use onepipe_base::Controllers;

use crate::ring::SLOTS_MAX;

/// Sizes of a segment, set by its creator. Processes that attach later use the creator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Process ids lie below this. 1 to 1,024, default 64. Unused ids cost no memory.
    pub processes_max: u32,
    /// Length of the longest frame, in bytes. 256 to 65,000, default 8,192.
    pub frame_len_max: usize,
    /// Maximum number of frames that one process has in flight to all others together. 16 to 2^24,
    /// default 1,024. Memory for them is reserved as they are used, 32 at a time.
    pub arena_slots: u32,
    /// Maximum number of frames that one process has in flight to one other. A power of two, 16 to
    /// 2^20, default 1,024.
    pub ring_entries: u32,
    /// Whether frames bear checksums, and received ones are verified, by endpoints that follow this
    /// setting. The transport itself reads no frame. Default false.
    pub has_checksums: bool,
    /// The process ids of the controllers, which all processes of the fabric must agree on. Default
    /// none.
    pub controllers: Option<Controllers>,
    /// Timeout of a link, in ns, of endpoints that follow this setting; 0: none. The transport
    /// itself reads the kernel's notice of a death. Default 100 ms.
    pub link_timeout_ns: u64,
    /// Whether endpoints that follow this setting deliver both services as one stream, in the
    /// merged order. Default false.
    pub has_merged_order: bool,
    /// How long a sender waits for a receiver whose share is full before it drops frames, in ns,
    /// counted from the last frame that the receiver took. Default 50 ms: a process that was merely
    /// descheduled is back by then, even on a busy machine. Longer, up to ten times this, while
    /// receivers were slow recently: see [`onepipe_base::AdaptiveTimeout`]. Up to four times this
    /// after the sender itself was off its core, because the receiver may have waited for one too.
    pub hold_ns: u64,
    /// Interval of liveness checks, in ns. Each check queries the kernel for eight processes, at
    /// less than a microsecond each; a process that finds a death notifies all others. Default 1
    /// ms.
    pub liveness_interval_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            processes_max: 64,
            frame_len_max: 8192,
            arena_slots: 1024,
            ring_entries: 1024,
            has_checksums: false,
            controllers: None,
            link_timeout_ns: 100_000_000,
            has_merged_order: false,
            hold_ns: 50_000_000,
            liveness_interval_ns: 1_000_000,
        }
    }
}

/// Incremented whenever anything in a segment changes its position or meaning.
pub(crate) const VERSION: u64 = 5;

/// Two cache lines: processors fetch lines in pairs.
const LINE_PAIR_BYTES: usize = 128;
/// Number of inline cells beside each ring, a power of two: as many short frames need no slot.
pub(crate) const INLINE_CELLS: usize = 16;
/// Size of an inline cell: a frame with one message of 64 bytes takes half of it.
pub(crate) const INLINE_CELL_LEN: usize = 256;
/// Number of slots that an arena grows by: 266 kB of memory with the default sizes.
pub(crate) const ARENA_STEP_SLOTS: u32 = 32;
pub(crate) const PAGE_BYTES: usize = 4096;
/// Per process: a line each for state, promises and futex, and one in reserve.
const PROCESS_BYTES: usize = 4 * LINE_PAIR_BYTES;

impl Config {
    /// Returns the first field that is out of range, with its value.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, u64)> {
        let wrong = |is_right: bool, field, value| (!is_right).then_some((field, value));
        let processes = self.processes_max;
        let frame = self.frame_len_max;
        let slots = self.arena_slots;
        let entries = self.ring_entries;
        let is_ring = entries.is_power_of_two() && (16..=1 << 20).contains(&entries);
        wrong((1..=1024).contains(&processes), "processes_max", processes.into())
            .or(wrong((256..=65_000).contains(&frame), "frame_len_max", frame as u64))
            .or(wrong((16..=SLOTS_MAX).contains(&slots), "arena_slots", slots.into()))
            .or(wrong(is_ring, "ring_entries", entries.into()))
    }

    fn processes(&self) -> usize {
        self.processes_max as usize
    }

    /// Offset of the state of `process`: incarnation, pid, state.
    pub(crate) fn process_words_at(&self, process: usize) -> usize {
        PAGE_BYTES + process * PROCESS_BYTES
    }

    /// Offset of the promise word of `process`.
    pub(crate) fn promise_at(&self, process: usize) -> usize {
        self.process_words_at(process) + LINE_PAIR_BYTES
    }

    /// Offset of the commit hold of `process`: on the line of its promise word, because receivers
    /// read both.
    pub(crate) fn commit_hold_at(&self, process: usize) -> usize {
        self.promise_at(process) + 8
    }

    /// Offset of the futex that `process` sleeps on.
    pub(crate) fn futex_slot_at(&self, process: usize) -> usize {
        self.process_words_at(process) + 2 * LINE_PAIR_BYTES
    }

    fn rings_at(&self) -> usize {
        self.process_words_at(self.processes()).next_multiple_of(PAGE_BYTES)
    }

    fn ring_bytes(&self) -> usize {
        LINE_PAIR_BYTES + self.ring_entries as usize * 8 + INLINE_CELLS * INLINE_CELL_LEN
    }

    /// Offset of the ring from one process to another: its head, on a cache line of its own.
    pub(crate) fn ring_at(&self, from: usize, to: usize) -> usize {
        self.rings_at() + (from * self.processes() + to) * self.ring_bytes()
    }

    /// Offset of the entries of that ring.
    pub(crate) fn entries_at(&self, from: usize, to: usize) -> usize {
        self.ring_at(from, to) + LINE_PAIR_BYTES
    }

    /// Offset of an inline cell of that ring.
    #[inline]
    pub(crate) fn inline_cell_at(&self, from: usize, to: usize, cell: usize) -> usize {
        self.entries_at(from, to) + self.ring_entries as usize * 8 + cell * INLINE_CELL_LEN
    }

    /// Distance of slots, in bytes: an odd number of lines. Frames at distances of powers of two
    /// would compete for the same few sets of the caches.
    fn slot_bytes(&self) -> usize {
        self.frame_len_max.next_multiple_of(LINE_PAIR_BYTES) + LINE_PAIR_BYTES
    }

    fn arena_bytes(&self) -> usize {
        (self.arena_slots as usize * self.slot_bytes()).next_multiple_of(PAGE_BYTES)
    }

    fn arena_at(&self, process: usize) -> usize {
        let rings_end = self.ring_at(self.processes(), 0);
        rings_end.next_multiple_of(PAGE_BYTES) + process * self.arena_bytes()
    }

    /// Offset of a slot of the arena of `process`. Only for slots below `arena_slots`.
    pub(crate) fn slot_at(&self, process: usize, slot: u32) -> usize {
        self.arena_at(process) + slot as usize * self.slot_bytes()
    }

    /// The part that all processes use: header and states. Offset and length.
    pub(crate) fn common_part(&self) -> (usize, usize) {
        (0, self.rings_at())
    }

    /// The ring from one process to another. Offset and length.
    pub(crate) fn ring_part(&self, from: usize, to: usize) -> (usize, usize) {
        (self.ring_at(from, to), self.ring_bytes())
    }

    /// The slots from `first` up to `end` of the arena of `process`. Offset and length.
    pub(crate) fn slots_part(&self, process: usize, first: u32, end: u32) -> (usize, usize) {
        let at = self.slot_at(process, first);
        (at, self.slot_at(process, end) - at)
    }

    /// The end of the step of an arena that `slot` belongs to.
    pub(crate) fn step_end(&self, slot: u32) -> u32 {
        (slot / ARENA_STEP_SLOTS + 1).saturating_mul(ARENA_STEP_SLOTS).min(self.arena_slots)
    }

    /// Size of the whole segment in bytes.
    pub(crate) fn segment_len(&self) -> usize {
        self.arena_at(self.processes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_share_cache_lines() {
        let config = Config {
            processes_max: 3,
            frame_len_max: 300,
            arena_slots: 16,
            ring_entries: 16,
            ..Config::default()
        };
        assert_eq!(config.out_of_range(), None);
        let mut parts: Vec<(usize, usize)> = vec![(0, PAGE_BYTES)];
        for from in 0..3 {
            parts.push((config.process_words_at(from), 24));
            parts.push((config.promise_at(from), 16));
            parts.push((config.futex_slot_at(from), 4));
            for to in 0..3 {
                parts.push((config.ring_at(from, to), 8));
                parts.push((config.entries_at(from, to), 16 * 8));
                parts.extend(
                    (0..INLINE_CELLS)
                        .map(|cell| (config.inline_cell_at(from, to, cell), INLINE_CELL_LEN)),
                );
            }
            parts.extend((0..16).map(|slot| (config.slot_at(from, slot), 300)));
        }
        parts.sort_unstable();
        for pair in parts.windows(2) {
            let lines = (pair[0].0 + pair[0].1).div_ceil(LINE_PAIR_BYTES);
            assert!(lines * LINE_PAIR_BYTES <= pair[1].0, "{pair:?}");
        }
        let (at, bytes) = *parts.last().expect("the layout has parts");
        assert!(at + bytes <= config.segment_len());
    }

    #[test]
    fn out_of_range_fields_are_named() {
        let field = |config: Config| config.out_of_range().map(|(field, _)| field);
        let good = Config::default();
        assert_eq!(field(good), None);
        assert_eq!(field(Config { processes_max: 0, ..good }), Some("processes_max"));
        assert_eq!(field(Config { ring_entries: 1000, ..good }), Some("ring_entries"));
        assert_eq!(field(Config { frame_len_max: 70_000, ..good }), Some("frame_len_max"));
        assert_eq!(field(Config { arena_slots: 1, ..good }), Some("arena_slots"));
    }
}
