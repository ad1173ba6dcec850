//! Invariants of the reorder stage.

use super::sort::SORT_MAX;
use super::wheel::NONE;
use super::{ADAPT_ENTRIES, NARROWING_LOG2, Reorder, SHIFT_MAX, WIDTH_LOG2_MAX, WIDTH_LOG2_START};

const _: () = assert!(WIDTH_LOG2_START <= WIDTH_LOG2_MAX, "the first width is one of the widths");
const _: () = assert!(NARROWING_LOG2 < WIDTH_LOG2_MAX, "a narrowed slot has a width");
const _: () = assert!(SHIFT_MAX >= SORT_MAX, "a sorted run admits an entry at its front");
const _: () = assert!(ADAPT_ENTRIES > SORT_MAX, "several slots show the rate");

impl<T: Copy> Reorder<T> {
    /// Checks the invariants of the module, in time proportional to the length of the run.
    pub fn check_invariants(&self) {
        self.wheel.check_invariants();
        let rest = self.run.get(self.run_next..).unwrap_or_default();
        assert!(self.run_next <= self.run.len(), "popped entries were in the run");
        assert!(rest.is_sorted_by_key(|entry| entry.key()), "the run is sorted");
        let is_below = rest.last().is_none_or(|last| last.timestamp.as_ns() < self.run_end);
        assert!(is_below, "every entry of the run is below its end");
        let is_above = self.wheel.least() >= self.run_end;
        assert!(is_above, "every entry of the wheel is at or above the end of the run");
        let is_empty = self.wheel.least() == u64::MAX;
        assert_eq!(is_empty, self.in_wheel == 0, "entries in the wheel are counted");
        assert_eq!(self.links.len(), self.entries.len(), "a node has a link");
        assert!(self.in_wheel <= self.entries.len(), "an entry in the wheel has a node");
        let has_free = self.free != NONE;
        assert_eq!(has_free, self.in_wheel < self.entries.len(), "other nodes are free");
        assert!(self.wheel.width_log2() <= WIDTH_LOG2_MAX, "slots have a maximum width");
        let end_max = self.barrier.saturating_add(1 << WIDTH_LOG2_MAX);
        assert!(self.run_end <= end_max, "the run ends one slot above the barrier at most");
    }
}
