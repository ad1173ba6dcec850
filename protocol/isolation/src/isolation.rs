//! The machine: counts grants and losses by link, and finds what to avoid.

use alloc::vec::Vec;

use onepipe_base::Mono;

use crate::config::Timing;
use crate::fault::Fault;
use crate::layout::{Layout, TIERS};
use crate::reports::{Report, Reports};

/// Minimum number of lost packets of a faulty link.
const LOST_MIN: u32 = 6;
/// A faulty link loses at least one in this number of packets.
const LOST_ONE_IN: u32 = 64;
/// Maximum number of faults that are remembered.
const FAULTS_MAX: usize = 64;

/// An endpoint's report of lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// The endpoint that has sent them.
    pub src: u16,
    /// The endpoint that reports them.
    pub dst: u16,
    /// Their path.
    pub path: u8,
    /// Their number.
    pub lost: u16,
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
        debug_assert!(taken <= u32::from(lost), "a part of the losses");
        *granted -= taken;
        lost - taken as u16
    }
}

/// Finds faulty links, and decides when they are tried again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Isolation {
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
    /// Creates the isolation of a fabric without known faults. All memory is allocated here.
    pub fn new(layout: Layout, timing: Timing) -> Self {
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

    /// Asserts what no input can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.check_faults();
        if self.faults.iter().any(|found| found.is_avoided) {
            (0..TIERS).for_each(|tier| self.check_alternatives(tier));
        }
        self.reports.check_invariants(&self.layout);
    }

    /// Asserts that the remembered faults are faults of this fabric, each once.
    fn check_faults(&self) {
        assert!(self.faults.len() <= FAULTS_MAX, "the faults are bounded");
        for (at, found) in self.faults.iter().enumerate() {
            let is_again = self.faults[..at].iter().any(|other| other.fault == found.fault);
            assert!(!is_again, "{} is remembered once", found.fault);
            assert!(found.at <= found.due, "{} is tried again after it was found", found.fault);
            assert!(found.wait_ns <= self.timing.retry_ns_max, "the backoff is bounded");
            let (tier, group, link) = found.fault.location();
            assert!((link as usize) < self.layout.links(tier), "{} has a link", found.fault);
            let groups = self.layout.groups(tier);
            assert!(group.is_none_or(|group| (group as usize) < groups), "{} exists", found.fault);
        }
    }

    //= spec/arbiter.md#R32
    /// Asserts that any two groups between which packets go have a usable link in common.
    fn check_alternatives(&self, tier: usize) {
        let usable: Vec<u64> =
            (0..self.layout.groups(tier)).map(|group| self.usable(tier, group)).collect();
        for (one, links) in usable.iter().enumerate() {
            for (other, others) in usable.iter().enumerate().take(one) {
                let is_cut_off = links & others == 0 && self.layout.are_connected(tier, one, other);
                assert!(!is_cut_off, "{one} and {other} of tier {tier} have no link in common");
            }
        }
    }

    /// Returns what is avoided, oldest first.
    pub fn avoided(&self) -> impl Iterator<Item = Fault> + '_ {
        self.faults.iter().filter(|found| found.is_avoided).map(|found| found.fault)
    }

    /// Counts a granted packet that has a path.
    #[inline]
    pub fn on_granted(&mut self, src: u16, dst: u16, path: u8) {
        let granted = &mut self.granted[0];
        if let Some(to) = granted.to.get_mut(usize::from(dst)) {
            *to += 1;
        }
        let Some(crossings) = self.layout.crossings(src, dst, path) else { return };
        granted.all += 1;
        for (tier, crossing) in crossings.into_iter().enumerate() {
            let Some(crossing) = crossing else { continue };
            let up = self.layout.link_index(tier, crossing.from, crossing.link);
            let down = self.layout.link_index(tier, crossing.to, crossing.link);
            granted.up[tier][up] += 1;
            granted.down[tier][down] += 1;
        }
    }

    /// Handles an endpoint's report of lost packets. Losses beyond the recent grants are ignored.
    pub fn on_lost(&mut self, now: Mono, loss: Loss) {
        let Loss { src, dst, path, lost } = loss;
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
        debug_assert!(too_many <= lost, "a part of the losses");
        let lost = lost - too_many;
        if lost == 0 {
            return;
        }
        let report = Report { at: now, crossings, lost };
        self.reports.add(&self.layout, self.timing.window_ns, report);
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
            (self.has_new_reports, self.check_at) =
                (false, now.after_ns(self.timing.check_interval_ns));
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
        let longer_ns = |found: &KnownFault| found.wait_ns.saturating_mul(2);
        let wait_ns = before.map_or(self.timing.retry_ns_first, longer_ns);
        let wait_ns = wait_ns.min(self.timing.retry_ns_max);
        self.faults.retain(|found| found.fault != fault);
        let due = now.after_ns(wait_ns);
        self.faults.push(KnownFault { fault, at: now, due, wait_ns, is_avoided: true });
        self.check_faults();
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
