//! Detection of lost slot frames, and the path that each was sent by.
//!
//! A slot frame carries its sequence number and the paths of the three frames before it, so the
//! paths of a gap of up to three are known. A reordered frame closes its gap again
//! (`docs/design/arbiter.md`, "Why does a slot frame bear the paths of three others?").

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono};
use onepipe_wire::{Loss, NO_PATH, Slot};

use onepipe_reliability::BoundedQueue;

/// Maximum number of open gaps, and of entries in a report.
const GAPS_MAX: usize = 64;
const REPORTS_MAX: usize = 64;
/// A sequence number further back than this belongs to a restarted sender.
const REORDER_MAX: i32 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source {
    incarnation: Incarnation,
    /// The next sequence number expected; `None` before the first frame.
    next: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Gap {
    src: u16,
    number: u32,
    path: u8,
    due: Mono,
}

/// Sequence tracking for all senders.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LossDetector {
    reorder_ns: u64,
    sources: Vec<Source>,
    gaps: BoundedQueue<Gap>,
    reports: Vec<Loss>,
    /// Lost frames, and those of them whose path is unknown.
    pub lost: u64,
    pub lost_without_path: u64,
}

impl LossDetector {
    pub fn new(nodes: u32, reorder_ns: u64) -> Self {
        let source = Source { incarnation: Incarnation(0), next: None };
        Self {
            reorder_ns,
            sources: alloc::vec![source; nodes as usize],
            gaps: BoundedQueue::new(GAPS_MAX),
            reports: Vec::with_capacity(REPORTS_MAX),
            lost: 0,
            lost_without_path: 0,
        }
    }

    /// Asserts that gaps are in the order of their deadlines, and reports one for each path.
    pub fn check_invariants(&self) {
        assert!(self.gaps.iter().map(|gap| gap.due).is_sorted(), "gaps expire in order");
        assert!(self.reports.len() <= REPORTS_MAX, "the reports are bounded");
        assert!(self.lost >= self.lost_without_path, "a frame without a path is a lost frame");
        for (at, report) in self.reports.iter().enumerate() {
            let key = (report.src, report.path);
            let is_again = self.reports[..at].iter().any(|other| (other.src, other.path) == key);
            assert!(!is_again, "one report for each sender and path");
            assert!(report.lost > 0 && report.path != NO_PATH, "a report has a loss and a path");
        }
    }

    //= spec/arbiter.md#R31
    /// Handles a slot frame.
    pub fn on_slot(
        &mut self,
        now: Mono,
        src: u16,
        incarnation: Incarnation,
        number: u32,
        slot: &Slot,
    ) {
        let source = self.sources.get_mut(usize::from(src));
        // Frames of a previous incarnation are ignored.
        let Some(source) = source.filter(|source| incarnation >= source.incarnation) else {
            return;
        };
        let next = source.next.filter(|_| source.incarnation == incarnation).unwrap_or(number);
        let ahead = number.wrapping_sub(next) as i32;
        if ahead < 0 && ahead > -REORDER_MAX {
            self.gaps.retain(|gap| (gap.src, gap.number) != (src, number));
            return;
        }
        *source = Source { incarnation, next: Some(number.wrapping_add(1)) };
        if ahead <= 0 {
            return;
        }
        let known = slot.earlier.iter().take(ahead as usize);
        for (back, path) in known.enumerate() {
            let number = number.wrapping_sub(1 + back as u32);
            let gap = Gap { src, number, path: *path, due: now.after_ns(self.reorder_ns) };
            if !self.gaps.push(gap) {
                self.lost += 1;
                self.report(src, *path);
            }
        }
        let without_path = (ahead as u64).saturating_sub(slot.earlier.len() as u64);
        self.lost += without_path;
        self.lost_without_path += without_path;
    }

    //= spec/arbiter.md#R31
    /// Declares gaps lost whose reordering delay has passed.
    pub fn on_timeout(&mut self, now: Mono) {
        while self.gaps.front().is_some_and(|gap| gap.due <= now) {
            let Some(gap) = self.gaps.pop() else { return };
            self.lost += 1;
            self.report(gap.src, gap.path);
        }
    }

    fn report(&mut self, src: u16, path: u8) {
        if path == NO_PATH {
            // Without a choice of paths a report is of no use.
            self.lost_without_path += 1;
            return;
        }
        let known = self.reports.iter_mut().find(|report| (report.src, report.path) == (src, path));
        if let Some(report) = known {
            report.lost = report.lost.saturating_add(1);
        } else if self.reports.len() < REPORTS_MAX {
            self.reports.push(Loss { src, lost: 1, path });
        }
    }

    /// Returns the time at which the oldest gap is declared lost.
    pub fn due(&self) -> Option<Mono> {
        self.gaps.front().map(|gap| gap.due)
    }

    /// Whether there are losses to report.
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Takes the losses to report.
    pub fn drain(&mut self) -> impl Iterator<Item = Loss> {
        self.reports.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REORDER_NS: u64 = 100_000;

    fn slot(earlier: [u8; 3]) -> Slot {
        Slot { label: [0; 4], timeslot: 0, path: 0, earlier }
    }

    //= spec/arbiter.md#R31
    #[test]
    fn unfilled_gap_is_reported_as_a_loss_by_path() {
        let (mut losses, now) = (LossDetector::new(4, REORDER_NS), Mono::from_ns);
        let incarnation = Incarnation(1);
        let mut receive =
            |at, number, earlier| losses.on_slot(now(at), 2, incarnation, number, &slot(earlier));
        receive(0, u32::MAX, [9, 9, 9]);
        receive(1, 3, [7, 6, 5]);
        receive(2, 1, [0; 3]);
        receive(3, 12, [4, NO_PATH, 4]);
        assert_eq!(losses.due(), Some(now(1 + REORDER_NS)));
        losses.on_timeout(now(1 + REORDER_NS));
        // 0 was sent by the third path back, 1 has arrived, 2 was sent by the first.
        assert_eq!(losses.drain().map(|loss| loss.path).collect::<Vec<_>>(), [7, 5]);
        losses.on_timeout(now(3 + REORDER_NS));
        let reports: Vec<Loss> = losses.drain().collect();
        assert_eq!(reports, [Loss { src: 2, lost: 2, path: 4 }]);
        assert_eq!((losses.lost, losses.lost_without_path), (2 + 8, 5 + 1));
    }

    #[test]
    fn restart_of_a_sender_is_not_a_loss() {
        let mut losses = LossDetector::new(4, REORDER_NS);
        let mut receive = |incarnation, number| {
            losses.on_slot(Mono::from_ns(0), 2, Incarnation(incarnation), number, &slot([1; 3]));
        };
        receive(1, 500);
        receive(2, 0);
        receive(2, 1);
        receive(1, 501);
        receive(2, 1 << 30);
        receive(3, 7);
        assert_eq!(losses.due(), Some(Mono::from_ns(REORDER_NS)), "the jump only");
    }

    #[test]
    fn resynchronises_after_half_of_the_number_space() {
        let mut losses = LossDetector::new(4, REORDER_NS);
        let mut receive = |number| {
            losses.on_slot(Mono::from_ns(0), 2, Incarnation(1), number, &slot([1; 3]));
            (losses.lost, losses.due().is_some())
        };
        receive(500);
        let far = 600 + (1 << 31);
        for number in [far, far - 3, far + 1] {
            assert_eq!(receive(number), (0, false), "{number}: restarted, or reordered");
        }
        assert_eq!(receive(far + 3), (0, true), "one frame is missing");
    }
}
