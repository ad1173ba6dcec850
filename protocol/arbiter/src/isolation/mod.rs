//! Fault isolation: finds links that lose packets, avoids them, and tries them again later.
//!
//! Endpoints report lost packets with their paths. A loss implicates the link of the sender's rack
//! to the path, that of the receiver's rack, and with three tiers the links of two spines to a
//! core. The link with the highest loss rate is avoided, if the rate clearly exceeds the overall
//! one; losses that it explains implicate no other link. Nothing reports a repair: after a while
//! the link is used again, and if it still loses packets, it is avoided for twice as long
//! (`docs/design/arbiter.md`, "Which link is to blame?").

mod layout;
mod reports;

use alloc::vec::Vec;
use core::fmt;

use onepipe_base::Mono;

use crate::Schedule;
use crate::path::{Fabric, Paths, Routes, Tree};
use crate::timeslot::BATCH_SLOTS_MAX;

use layout::{Crossings, Layout, TIERS};
use reports::{Report, Reports};

/// Minimum length of an evaluation window, ns. Losses are evaluated over two windows; a window is
/// as long as the largest of this and the two lengths below.
const WINDOW_NS_MIN: u64 = 1_000_000;
/// Minimum length of an evaluation window, in timeslots: 1 ms at 10 Gbit/s. Fewer packets of a link
/// are not significant.
const WINDOW_SLOTS: u64 = 800;
/// Minimum length of an evaluation window, in leads, as a lost packet was granted a lead earlier.
const WINDOW_LEADS: u64 = 2;
/// Minimum number of lost packets of a faulty link.
const LOST_MIN: u32 = 6;
/// A faulty link loses at least one in this number of packets.
const LOST_ONE_IN: u32 = 64;
/// Minimum interval of evaluations, ns. One takes about 5 us if all endpoints report losses.
const CHECK_INTERVAL_NS: u64 = 100_000;
/// Minimum time during which losses on an avoided link may still be reported, ns.
const GRACE_NS_MIN: u64 = 2_000_000;
/// Time for the report of a loss, ns. Losses may be reported for the lead, two batches and this
/// time, if that is longer than the minimum.
const GRACE_REPORT_NS: u64 = 1_000_000;
/// A link is tried again after this number of grace times, at least 10 ms. The time doubles each
/// time that the link still loses packets, up to [`RETRY_MAX_NS`].
const RETRY_GRACES: u64 = 5;
const RETRY_MAX_NS: u64 = 1_000_000_000;
/// Maximum number of faults that are remembered.
const FAULTS_MAX: usize = 64;

/// A faulty link or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The link between a rack and a path; with three tiers, that upper link of the ToR switch.
    Link {
        /// The rack.
        rack: u32,
        /// The path, or upper link.
        path: u32,
    },
    /// A path as a whole: all links to it.
    Path(u32),
    /// The upper link of a spine.
    SpineLink {
        /// The spine, counted pod by pod.
        spine: u32,
        /// The upper link of the spine.
        link: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { rack, path } => write!(f, "the link of rack {rack} to path {path}"),
            Self::Path(path) => write!(f, "path {path}"),
            Self::SpineLink { spine, link } => write!(f, "upper link {link} of spine {spine}"),
        }
    }
}

impl Fault {
    /// Returns the tier, the rack or spine (`None` for all), and the link.
    fn location(self) -> (usize, Option<u32>, u32) {
        match self {
            Self::Link { rack, path } => (0, Some(rack), path),
            Self::Path(path) => (0, None, path),
            Self::SpineLink { spine, link } => (1, Some(spine), link),
        }
    }

    /// Returns the fault of a link of a rack or spine.
    fn at(tier: usize, group: u16, link: u8) -> Self {
        let (group, link) = (u32::from(group), u32::from(link));
        match tier {
            0 => Self::Link { rack: group, path: link },
            _ => Self::SpineLink { spine: group, link },
        }
    }

    fn explains(self, crossings: &Crossings) -> bool {
        let (tier, group, link) = self.location();
        crossings[tier].is_some_and(|crossing| {
            let is_of =
                |group| u32::from(crossing.from) == group || u32::from(crossing.to) == group;
            link == u32::from(crossing.link) && group.is_none_or(is_of)
        })
    }
}

/// A fault that is avoided, or was until recently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KnownFault {
    fault: Fault,
    /// When it was last found.
    at: Mono,
    /// When an avoided link or path is tried again, or a fault under trial is dropped.
    due: Mono,
    wait_ns: u64,
    is_avoided: bool,
}

/// Granted packets, by link and direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Granted {
    up: [Vec<u32>; TIERS],
    down: [Vec<u32>; TIERS],
    /// Granted packets with a path.
    all: u64,
    /// Packets to each endpoint by any path, less those that it has reported as lost.
    to: Vec<u32>,
}

impl Granted {
    fn new(layout: &Layout) -> Self {
        let none = |tier: usize| alloc::vec![0; layout.groups(tier) * layout.links(tier)];
        let to = alloc::vec![0; layout.nodes()];
        Self { up: [none(0), none(1)], down: [none(0), none(1)], all: 0, to }
    }

    fn clear(&mut self) {
        self.up.iter_mut().chain(&mut self.down).for_each(|counts| counts.fill(0));
        self.to.fill(0);
        self.all = 0;
    }

    //= spec/arbiter.md#R32
    /// Accounts for lost packets to an endpoint. Returns how many of them were not granted.
    fn record_loss(&mut self, dst: u16, lost: u16) -> u16 {
        let Some(granted) = self.to.get_mut(usize::from(dst)) else { return lost };
        let taken = u32::from(lost).min(*granted);
        *granted -= taken;
        lost - taken as u16
    }
}

/// Times of the evaluation. They grow with the timeslot and with the lead of the arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timing {
    window_ns: u64,
    grace_ns: u64,
    retry_first_ns: u64,
}

impl Timing {
    /// Returns the times for a timeslot, a lead and a batch length.
    pub fn of(slot_ns: u64, lead_ns: u64, batch_slots: u32) -> Self {
        let window_ns = slot_ns.saturating_mul(WINDOW_SLOTS);
        let window_ns = window_ns.max(lead_ns.saturating_mul(WINDOW_LEADS)).max(WINDOW_NS_MIN);
        let batches_ns = slot_ns.saturating_mul(2 * u64::from(batch_slots));
        let grace_ns = lead_ns.saturating_add(batches_ns).saturating_add(GRACE_REPORT_NS);
        let grace_ns = grace_ns.max(GRACE_NS_MIN);
        Self { window_ns, grace_ns, retry_first_ns: grace_ns.saturating_mul(RETRY_GRACES) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Isolation {
    layout: Layout,
    timing: Timing,
    /// In the current window and in the one before.
    granted: [Granted; 2],
    window_ends: Option<Mono>,
    reports: Reports,
    /// Reports were added since the last evaluation; when the next one is due.
    has_new_reports: bool,
    check_at: Mono,
    faults: Vec<KnownFault>,
}

impl Isolation {
    /// Creates the isolation for two tiers.
    pub fn of_racks(fabric: &Fabric, timing: Timing) -> Self {
        Self::new(Layout::of_racks(fabric), timing)
    }

    /// Creates the isolation for three tiers.
    pub fn of_tree(tree: &Tree, timing: Timing) -> Self {
        Self::new(Layout::of_tree(tree), timing)
    }

    fn new(layout: Layout, timing: Timing) -> Self {
        let granted = Granted::new(&layout);
        Self {
            granted: [granted.clone(), granted],
            window_ends: None,
            reports: Reports::new(&layout),
            has_new_reports: false,
            check_at: Mono::from_ns(0),
            faults: Vec::with_capacity(FAULTS_MAX),
            layout,
            timing,
        }
    }

    /// Returns what is avoided, oldest first.
    pub fn avoided(&self) -> impl Iterator<Item = Fault> + '_ {
        self.faults.iter().filter(|found| found.is_avoided).map(|found| found.fault)
    }

    /// Counts the packets granted in a batch of `slots` timeslots.
    pub fn on_granted(&mut self, schedule: &Schedule, routes: &impl Routes, slots: u32) {
        let all = u64::MAX.unbounded_shr(BATCH_SLOTS_MAX - slots.min(BATCH_SLOTS_MAX));
        for src in 0..schedule.nodes() {
            let (row, paths) = (schedule.of(src), routes.of(src));
            let mut busy = schedule.busy(src) & all;
            while busy != 0 {
                let slot = busy.trailing_zeros() as usize;
                busy &= busy - 1;
                let path = paths[slot];
                if path == Paths::NONE {
                    continue;
                }
                self.granted[0].to[usize::from(row[slot])] += 1;
                let crossings = self.layout.crossings(src as u16, row[slot], path);
                self.granted[0].all += u64::from(crossings.is_some());
                for (tier, crossing) in crossings.into_iter().flatten().enumerate() {
                    let Some(crossing) = crossing else { continue };
                    let up = self.layout.link_index(tier, crossing.from, crossing.link);
                    let down = self.layout.link_index(tier, crossing.to, crossing.link);
                    self.granted[0].up[tier][up] += 1;
                    self.granted[0].down[tier][down] += 1;
                }
            }
        }
    }

    /// Handles an endpoint's report of lost packets from `src` by a path. Losses beyond the recent
    /// grants are ignored.
    pub fn on_lost(&mut self, now: Mono, (src, dst): (u16, u16), path: u8, lost: u16) {
        let Some(crossings) = self.layout.crossings(src, dst, path) else { return };
        let is_explained = |found: &KnownFault| {
            let is_late = now.since_ns(found.at) <= self.timing.grace_ns;
            (found.is_avoided || is_late) && found.fault.explains(&crossings)
        };
        if self.faults.iter().any(is_explained) {
            return;
        }
        let too_many =
            self.granted.iter_mut().fold(lost, |lost, granted| granted.record_loss(dst, lost));
        let lost = lost - too_many;
        if lost == 0 {
            return;
        }
        let report = Report { at: now, crossings, lost };
        self.reports.add(&self.layout, (now, self.timing.window_ns), report);
        self.has_new_reports = true;
    }

    //= spec/arbiter.md#R33
    /// Drops what has expired. Returns a fault that is to be tried again, if any.
    pub fn on_timeout(&mut self, now: Mono) -> Option<Fault> {
        if self.window_ends.is_none_or(|end| end <= now) {
            let window_ns = self.timing.window_ns;
            self.window_ends = Some(now.after_ns(window_ns));
            self.granted.swap(0, 1);
            self.granted[0].clear();
            let is_recent = |report: &Report| now.since_ns(report.at) / 2 < window_ns;
            self.reports.retain(&self.layout, is_recent);
        }
        self.faults.retain(|found| found.is_avoided || now < found.due);
        let found = self.faults.iter_mut().find(|found| found.due <= now)?;
        found.is_avoided = false;
        found.due = now.after_ns(2 * found.wait_ns);
        Some(found.fault)
    }

    /// Returns the time of the next action.
    pub fn due(&self) -> Option<Mono> {
        let retries = self.faults.iter().map(|found| found.due).min();
        let window = self.window_ends.filter(|_| !self.reports.is_empty());
        let find_fault = self.has_new_reports.then_some(self.check_at);
        Mono::earlier(find_fault, Mono::earlier(retries, window))
    }

    /// Forgets a fault, as it is repaired. Returns whether it was avoided.
    pub fn repair(&mut self, fault: Fault) -> bool {
        let was_avoided = self.faults.iter().any(|found| found.fault == fault && found.is_avoided);
        self.faults.retain(|found| found.fault != fault);
        was_avoided
    }

    /// Evaluates the reports if that is due. Returns a fault to avoid from now on; to be called
    /// until it returns none.
    pub fn find(&mut self, now: Mono) -> Option<Fault> {
        if !self.has_new_reports || now < self.check_at {
            return None;
        }
        let fault = self.find_fault(now);
        if fault.is_none() {
            (self.has_new_reports, self.check_at) = (false, now.after_ns(CHECK_INTERVAL_NS));
        }
        fault
    }

    fn find_fault(&mut self, now: Mono) -> Option<Fault> {
        if self.faults.len() == FAULTS_MAX {
            return None;
        }
        let fault = loop {
            let fault = self.worst()?;
            self.reports.retain(&self.layout, |report| !fault.explains(&report.crossings));
            // The last path of a rack stays in use; its losses implicate no other link.
            if self.has_alternatives(fault) {
                break fault;
            }
        };
        let before = self.faults.iter().find(|found| found.fault == fault);
        let first_ns = self.timing.retry_first_ns;
        let longer_ns = |found: &KnownFault| found.wait_ns.saturating_mul(2);
        let wait_ns = before.map_or(first_ns, longer_ns).min(RETRY_MAX_NS.max(first_ns));
        self.faults.retain(|found| found.fault != fault);
        let due = now.after_ns(wait_ns);
        self.faults.push(KnownFault { fault, at: now, due, wait_ns, is_avoided: true });
        Some(fault)
    }

    //= spec/arbiter.md#R32
    /// Returns the link, or the whole path, with the highest significant loss rate.
    fn worst(&self) -> Option<Fault> {
        let mut worst: Option<(u64, Fault)> = None;
        let is_worse = |loss_rate: u64, worst: &Option<(u64, Fault)>| match worst {
            Some((than, _)) => loss_rate > *than,
            None => true,
        };
        for report in self.reports.iter() {
            for (tier, crossing) in report.crossings.iter().enumerate() {
                let Some(crossing) = crossing else { continue };
                for (group, is_up) in [(crossing.from, true), (crossing.to, false)] {
                    let fault = Fault::at(tier, group, crossing.link);
                    let loss_rate = self.loss_rate(tier, group, crossing.link, is_up);
                    // Hysteresis: a link that was faulty before wins against one of equal rate.
                    let was_faulty = self.faults.iter().any(|found| found.fault == fault);
                    let loss_rate = loss_rate
                        .map(|loss_rate| loss_rate + if was_faulty { loss_rate / 4 } else { 0 });
                    if let Some(loss_rate) =
                        loss_rate.filter(|loss_rate| is_worse(*loss_rate, &worst))
                    {
                        worst = Some((loss_rate, fault));
                    }
                }
            }
        }
        let (loss_rate, fault) = worst?;
        if loss_rate * 2 < self.overall_rate() * 3 {
            // The overall loss rate is as high, so the link is not the cause.
            return None;
        }
        // The rate of the whole path is lower if only one of its links is faulty.
        let Fault::Link { path, .. } = fault else { return Some(fault) };
        let all = self.path_rate(path as u8).filter(|all| all * 10 >= loss_rate * 8);
        Some(if all.is_some() { Fault::Path(path) } else { fault })
    }

    fn granted(&self, tier: usize, group: u16, link: u8, is_up: bool) -> u32 {
        let index = self.layout.link_index(tier, group, link);
        let all = self.granted.iter().map(|all| if is_up { &all.up } else { &all.down });
        all.map(|counts| counts[tier][index]).sum()
    }

    /// Returns the loss rate of a link in one direction, in 65536ths, if it is significant.
    fn loss_rate(&self, tier: usize, group: u16, link: u8, is_up: bool) -> Option<u64> {
        let lost = self.reports.of(tier, self.layout.link_index(tier, group, link), is_up);
        fraction(lost, self.granted(tier, group, link, is_up))
    }

    /// Returns the overall loss rate of packets with a path, in 65536ths.
    fn overall_rate(&self) -> u64 {
        let lost = self.reports.all();
        let granted: u64 = self.granted.iter().map(|granted| granted.all).sum();
        (lost << 16) / granted.max(lost).max(1)
    }

    /// Returns the loss rate of a path if several racks send and several receive by it. With three
    /// tiers links of one number have nothing in common.
    fn path_rate(&self, path: u8) -> Option<u64> {
        if self.layout.has_spines() {
            return None;
        }
        let reported = || {
            let of_path = self.reports.iter().map(|report| (report.crossings[0], report.lost));
            let of_path = of_path.filter_map(|(crossing, lost)| Some((crossing?, lost)));
            of_path.filter(|(crossing, _)| crossing.link == path)
        };
        let (first, _) = reported().next()?;
        let has_more = reported().any(|(crossing, _)| crossing.from != first.from)
            && reported().any(|(crossing, _)| crossing.to != first.to);
        let lost = reported().map(|(_, lost)| u32::from(lost)).sum();
        let racks = 0..self.layout.groups(0) as u16;
        let granted = racks.map(|rack| self.granted(0, rack, path, true)).sum();
        fraction(lost, granted).filter(|_| has_more)
    }

    //= spec/arbiter.md#R32
    /// Whether all racks, or spines, keep another usable link in common if this fault is avoided.
    fn has_alternatives(&self, fault: Fault) -> bool {
        let (tier, group, link) = fault.location();
        let meets = |one: usize, other: usize| {
            let both = self.usable(tier, one) & self.usable(tier, other);
            !self.layout.are_connected(tier, one, other) || both & !(1 << link) != 0
        };
        let all = 0..self.layout.groups(tier);
        match group {
            Some(group) => all.clone().all(|other| meets(group as usize, other)),
            None => all.clone().all(|one| all.clone().all(|other| meets(one, other))),
        }
    }

    /// Returns one bit for each link that a rack or spine may use.
    fn usable(&self, tier: usize, group: usize) -> u64 {
        let all = u64::MAX.unbounded_shr(u64::BITS - self.layout.links(tier) as u32);
        self.faults.iter().filter(|found| found.is_avoided).fold(all, |usable, found| {
            let (of_tier, of, link) = found.fault.location();
            let is_of_it = of_tier == tier && of.is_none_or(|of| of as usize == group);
            if is_of_it { usable & !(1 << link) } else { usable }
        })
    }
}

fn fraction(lost: u32, granted: u32) -> Option<u64> {
    let is_much = lost >= LOST_MIN && lost.saturating_mul(LOST_ONE_IN) >= granted;
    is_much.then(|| (u64::from(lost) << 16) / u64::from(granted.max(lost)))
}

#[cfg(test)]
mod tests;
