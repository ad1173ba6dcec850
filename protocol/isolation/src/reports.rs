//! Recent loss reports, merged by the links crossed, and the lost packets of each link.

use alloc::vec::Vec;

use onepipe_base::Mono;

use crate::layout::{Crossings, Layout, TIERS};

/// Maximum number of merged reports.
const REPORTS_MAX: usize = 256;
/// Size of the hash table: a power of two, four times as large, so that collisions are rare.
const TABLE_LEN: usize = 4 * REPORTS_MAX;
const NONE: u16 = u16::MAX;

/// Lost packets that crossed the same links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Report {
    pub at: Mono,
    pub crossings: Crossings,
    pub lost: u16,
}

/// Merged reports and their sums by link. Endpoints that all lose packets send hundreds of
/// thousands of reports per second, so each must be cheap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reports {
    reports: Vec<Report>,
    /// Hash table of the crossed links: index of their latest report, or [`NONE`].
    table: Vec<u16>,
    /// By link index: lost packets that went up, and down, through it.
    up: [Vec<u32>; TIERS],
    down: [Vec<u32>; TIERS],
    all: u64,
}

impl Reports {
    pub fn new(layout: &Layout) -> Self {
        let none = |tier: usize| alloc::vec![0; layout.groups(tier) * layout.links(tier)];
        Self {
            reports: Vec::with_capacity(REPORTS_MAX),
            table: alloc::vec![NONE; TABLE_LEN],
            up: [none(0), none(1)],
            down: [none(0), none(1)],
            all: 0,
        }
    }

    /// Asserts that the sums are those of the reports, and that the table finds the latest report
    /// of any links.
    pub fn check_invariants(&self, layout: &Layout) {
        assert!(self.reports.len() <= REPORTS_MAX, "the reports are bounded");
        let mut recount = Self::new(layout);
        for report in &self.reports {
            recount.all += u64::from(report.lost);
            recount.count(layout, &report.crossings, |count| *count += u32::from(report.lost));
            let latest = self.table[self.slot_of(&report.crossings)];
            let latest = self.reports.get(usize::from(latest)).expect("a report of these links");
            assert_eq!(latest.crossings, report.crossings, "the table finds the report");
            assert!(latest.at >= report.at, "the table finds the latest report");
            assert_ne!(report.lost, 0, "a report has a loss");
        }
        assert_eq!(self.all, recount.all, "the total of lost packets");
        assert_eq!((&self.up, &self.down), (&recount.up, &recount.down), "the losses of a link");
    }

    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter()
    }

    /// Returns the lost packets of a link in one direction.
    pub fn of(&self, tier: usize, index: usize, is_up: bool) -> u32 {
        if is_up { self.up[tier][index] } else { self.down[tier][index] }
    }

    /// Returns the total of lost packets.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Adds lost packets to the report of the same links if that is younger than a window, or else
    /// as a new report. Ignored if the maximum number is reached.
    pub fn add(&mut self, layout: &Layout, window_ns: u64, report: Report) {
        let now = report.at;
        let index = self.slot_of(&report.crossings);
        let known = self.reports.get_mut(usize::from(self.table[index]));
        let more = if let Some(known) = known.filter(|known| now.since_ns(known.at) < window_ns) {
            let before = known.lost;
            known.lost = before.saturating_add(report.lost);
            known.lost - before
        } else if self.reports.len() < REPORTS_MAX {
            self.table[index] = self.reports.len() as u16;
            self.reports.push(report);
            report.lost
        } else {
            return;
        };
        self.all += u64::from(more);
        self.count(layout, &report.crossings, |count| *count += u32::from(more));
    }

    /// Keeps the reports for which the predicate holds.
    pub fn retain(&mut self, layout: &Layout, mut stays: impl FnMut(&Report) -> bool) {
        let mut reports = core::mem::take(&mut self.reports);
        reports.retain(|report| {
            let stays = stays(report);
            if !stays {
                self.all -= u64::from(report.lost);
                self.count(layout, &report.crossings, |count| *count -= u32::from(report.lost));
            }
            stays
        });
        self.table.fill(NONE);
        self.reports = reports;
        for at in 0..self.reports.len() {
            let index = self.slot_of(&self.reports[at].crossings);
            self.table[index] = at as u16;
        }
        debug_assert!(!self.is_empty() || self.all == 0, "no loss without a report");
    }

    /// Returns the table slot of the latest report of these links, or the free slot for it.
    fn slot_of(&self, crossings: &Crossings) -> usize {
        let number = crossings.iter().flatten().fold(0u64, |number, crossing| {
            let ends = u64::from(crossing.from) << 24 | u64::from(crossing.to) << 8;
            // The multiplier of Fibonacci hashing (Knuth, volume 3, section 6.4).
            (number ^ ends ^ u64::from(crossing.link)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let mut index = (number >> 32) as usize % TABLE_LEN;
        // The table is larger than the number of reports, so a slot is free.
        while let Some(report) = self.reports.get(usize::from(self.table[index])) {
            if report.crossings == *crossings {
                break;
            }
            index = (index + 1) % TABLE_LEN;
        }
        index
    }

    fn count(&mut self, layout: &Layout, crossings: &Crossings, change: impl Fn(&mut u32)) {
        for (tier, crossing) in crossings.iter().enumerate() {
            let Some(crossing) = crossing else { continue };
            change(&mut self.up[tier][layout.link_index(tier, crossing.from, crossing.link)]);
            change(&mut self.down[tier][layout.link_index(tier, crossing.to, crossing.link)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Crossing;

    const WINDOW_NS: u64 = 1_000;

    /// Compares the sums with a recount.
    fn check(reports: &Reports, layout: &Layout) {
        let sum = |is_it: &dyn Fn(&Crossing) -> bool| -> u32 {
            let of_it = reports.iter().filter(|one| one.crossings[0].as_ref().is_some_and(is_it));
            of_it.map(|report| u32::from(report.lost)).sum()
        };
        for rack in 0..4 {
            for link in 0..4 {
                let index = layout.link_index(0, rack, link);
                let up = sum(&|crossing| (crossing.from, crossing.link) == (rack, link));
                let down = sum(&|crossing| (crossing.to, crossing.link) == (rack, link));
                assert_eq!(reports.of(0, index, true), up);
                assert_eq!(reports.of(0, index, false), down);
            }
        }
        assert_eq!(reports.all(), u64::from(sum(&|_| true)));
    }

    #[test]
    fn link_counts_equal_the_sum_of_reports() {
        let layout = Layout::of_racks(16, 4, 4);
        let mut reports = Reports::new(&layout);
        for nth in 0..10_000u64 {
            let now = Mono::from_ns(nth * 7);
            // Pseudo-random by squaring.
            let drawn = (nth * nth) >> 3;
            let (src, dst) = (drawn % 16, (drawn / 16 + 4) % 16);
            let crossings = layout.crossings(src as u16, dst as u16, (drawn % 4) as u8);
            if let Some(crossings) = crossings {
                let lost = 1 + (drawn % 9) as u16;
                reports.add(&layout, WINDOW_NS, Report { at: now, crossings, lost });
            }
            if nth % 143 == 142 {
                check(&reports, &layout);
                reports.retain(&layout, |report| now.since_ns(report.at) < 2 * WINDOW_NS);
                check(&reports, &layout);
            }
        }
        assert!(!reports.is_empty());
        reports.retain(&layout, |_| false);
        check(&reports, &layout);
        assert!(reports.is_empty() && reports.all() == 0);
    }

    #[test]
    fn reports_of_one_path_are_merged_and_bounded() {
        let layout = Layout::of_racks(4_096, 16, 16);
        let mut reports = Reports::new(&layout);
        let mut record_loss = |at: u64, dst: u16, lost| {
            let now = Mono::from_ns(at);
            let crossings = layout.crossings(0, dst, 1).expect("another rack");
            reports.add(&layout, WINDOW_NS, Report { at: now, crossings, lost });
            (reports.iter().count(), reports.all())
        };
        assert_eq!(record_loss(0, 16, u16::MAX), (1, 65_535));
        assert_eq!(record_loss(999, 17, 5), (1, 65_535), "saturated");
        assert_eq!(record_loss(1_000, 18, 5), (2, 65_540), "later");
        assert_eq!(record_loss(1_999, 19, 5), (2, 65_545), "added to the latest");
        for rack in 2..256 {
            record_loss(2_000, rack * 16, 1);
        }
        assert_eq!(record_loss(2_000, 255 * 16, 1), (256, 65_545 + 254 + 1));
        assert_eq!(record_loss(9_000, 255 * 16, 1), (256, 65_545 + 254 + 1), "the list is full");
    }
}
