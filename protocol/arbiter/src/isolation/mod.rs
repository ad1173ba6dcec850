//! Finds the link that loses packets, has it avoided, and tries it again later.
//!
//! Endpoints report what they miss, by path: so a loss accuses the sender's rack's link to the
//! path, the receiver's, and what lies between: through three tiers the links of two spines to a
//! core. The one is found that has lost the greatest part of
//! what was granted to pass it, and clearly more than is lost everywhere; what that explains
//! accuses nobody else. Nothing tells of a repair: after a while the link is used again, and if it
//! still loses, avoided for twice as long (design: arbiter.md section 4, fault isolation).

mod layout;
mod reports;

use alloc::vec::Vec;
use core::fmt;

use onepipe_base::Mono;

use crate::Schedule;
use crate::core_paths::Routes;
use crate::path::{Fabric, Paths, Tree};
use crate::timeslot::BATCH_SLOTS_MAX;

use layout::{Crossings, Layout, TIERS};
use reports::{Report, Reports};

/// Losses are looked at together that were reported within two windows. One is so long, in ns...
const WINDOW_NS_MIN: u64 = 1_000_000;
/// ... so many timeslots, which at 10 Gbit/s is as much: fewer packets of a link tell nothing...
const WINDOW_SLOTS: u64 = 800;
/// ... and so many leads: what is lost was granted by so much before.
const WINDOW_LEADS: u64 = 2;
/// Losses that accuse a link, at least: fewer are an accident.
const LOST_MIN: u32 = 6;
/// And at least one in so many of those granted.
const LOST_ONE_IN: u32 = 64;
/// Losses are looked at this often at most, in ns: if endpoints all lose packets, to look costs
/// about 5 us.
const CHECK_INTERVAL_NS: u64 = 100_000;
/// What is avoided has been on its way for so long at most when the last loss is reported, in ns...
const GRACE_NS_MIN: u64 = 2_000_000;
/// ... or for the lead, two batches, and this for the report.
const GRACE_REPORT_NS: u64 = 1_000_000;
/// What is avoided is tried again after five graces, 10 ms at least, and after twice as much each
/// time that it still loses, up to the second.
const RETRY_GRACES: u64 = 5;
const RETRY_MAX_NS: u64 = 1_000_000_000;
/// Faults that are remembered at a time.
const FAULTS_MAX: usize = 64;

/// What is avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The link between a rack and a path; through three tiers, the upper link of that number of
    /// the rack's switch.
    Link {
        /// The rack.
        rack: u32,
        /// The path, or link.
        path: u32,
    },
    /// A path as a whole, all links to it.
    Path(u32),
    /// The upper link of a spine.
    SpineLink {
        /// The spine, counted pod by pod.
        spine: u32,
        /// Which of its upper links.
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
    /// Of which tier, of which rack or spine there (all, if of none), the link of which number.
    fn location(self) -> (usize, Option<u32>, u32) {
        match self {
            Self::Link { rack, path } => (0, Some(rack), path),
            Self::Path(path) => (0, None, path),
            Self::SpineLink { spine, link } => (1, Some(spine), link),
        }
    }

    /// The link of a rack or spine, at this tier.
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

/// A fault that was found, and is avoided or was until lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KnownFault {
    fault: Fault,
    /// When it was found last.
    at: Mono,
    /// When it is tried again; if it is used, when it is forgotten that it was a fault.
    due: Mono,
    wait_ns: u64,
    is_avoided: bool,
}

/// Packets that were granted: up from each rack, or spine, by each of its links, and down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Granted {
    up: [Vec<u32>; TIERS],
    down: [Vec<u32>; TIERS],
    /// Up from any rack.
    all: u64,
    /// To each endpoint by any path, but for those that it has reported as lost.
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

    /// So many packets to an endpoint are lost. Answers how many of them were not granted.
    fn record_loss(&mut self, dst: u16, lost: u16) -> u16 {
        let Some(granted) = self.to.get_mut(usize::from(dst)) else { return lost };
        let taken = u32::from(lost).min(*granted);
        *granted -= taken;
        lost - taken as u16
    }
}

/// How long is what: longer where timeslots are, or where the arbiter works further ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timing {
    window_ns: u64,
    grace_ns: u64,
    retry_first_ns: u64,
}

impl Timing {
    /// Of an arbiter with timeslots and a lead of so much, and batches of so many timeslots.
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
    /// In this window, and in the one before.
    granted: [Granted; 2],
    window_ends: Option<Mono>,
    reports: Reports,
    /// Something was added to them since they were looked at; when they are looked at next.
    has_new_reports: bool,
    check_at: Mono,
    faults: Vec<KnownFault>,
}

impl Isolation {
    /// Of two tiers.
    pub fn of_racks(fabric: &Fabric, timing: Timing) -> Self {
        Self::new(Layout::of_racks(fabric), timing)
    }

    /// Of three.
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

    /// What is avoided, in the order in which it was found.
    pub fn avoided(&self) -> impl Iterator<Item = Fault> + '_ {
        self.faults.iter().filter(|found| found.is_avoided).map(|found| found.fault)
    }

    /// Takes note of what was granted in a batch of so many timeslots.
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

    /// An endpoint misses so many packets of another one by this path. It cannot miss more than it
    /// was granted of late.
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

    /// Forgets what is too long ago. Answers what is to be used again, if something is.
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

    /// When something is to be done.
    pub fn due(&self) -> Option<Mono> {
        let retries = self.faults.iter().map(|found| found.due).min();
        let window = self.window_ends.filter(|_| !self.reports.is_empty());
        let find_fault = self.has_new_reports.then_some(self.check_at);
        Mono::earlier(find_fault, Mono::earlier(retries, window))
    }

    /// It is known to be repaired: it is to be used again, and was no fault. Answers whether it was
    /// avoided.
    pub fn repair(&mut self, fault: Fault) -> bool {
        let was_avoided = self.faults.iter().any(|found| found.fault == fault && found.is_avoided);
        self.faults.retain(|found| found.fault != fault);
        was_avoided
    }

    /// Looks at what was reported, if it is time. Answers what is to be avoided from now on, if
    /// something is: until there is nothing more.
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
            // The last way of a rack is used even so, and nobody else is to blame for it.
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

    /// The link, or the path as a whole, that has lost the greatest part of what passed it, if that
    /// is more than an accident.
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
                    // Of two that explain as much, the one that was it before.
                    let was_it = self.faults.iter().any(|found| found.fault == fault);
                    let loss_rate = loss_rate
                        .map(|loss_rate| loss_rate + if was_it { loss_rate / 4 } else { 0 });
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
            // As much is lost everywhere: it is not the link.
            return None;
        }
        // The part of the whole path is less if it is only one of its links.
        let Fault::Link { path, .. } = fault else { return Some(fault) };
        let all = self.path_rate(path as u8).filter(|all| all * 10 >= loss_rate * 8);
        Some(if all.is_some() { Fault::Path(path) } else { fault })
    }

    fn granted(&self, tier: usize, group: u16, link: u8, is_up: bool) -> u32 {
        let index = self.layout.link_index(tier, group, link);
        let all = self.granted.iter().map(|all| if is_up { &all.up } else { &all.down });
        all.map(|counts| counts[tier][index]).sum()
    }

    /// Which part of what passed a link one way was lost, in 65536ths, if that is more than an
    /// accident.
    fn loss_rate(&self, tier: usize, group: u16, link: u8, is_up: bool) -> Option<u64> {
        let lost = self.reports.of(tier, self.layout.link_index(tier, group, link), is_up);
        fraction(lost, self.granted(tier, group, link, is_up))
    }

    /// Which part of all that took any path was lost, in 65536ths.
    fn overall_rate(&self) -> u64 {
        let lost = self.reports.all();
        let granted: u64 = self.granted.iter().map(|granted| granted.all).sum();
        (lost << 16) / granted.max(lost).max(1)
    }

    /// Which part of all that took this path was lost, if both senders and receivers are of more
    /// than one rack. Through three tiers links of one number have nothing in common.
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

    /// Whether any two racks, or spines, that this fault parts have another link to each other,
    /// which both can use.
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

    /// A bit for each link that a rack, or spine, can use.
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
