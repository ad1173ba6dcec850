//! Finds the link that loses packets, has it avoided, and tries it again later.
//!
//! Endpoints report what they miss, by path: so a loss accuses the sender's rack's link to the
//! path, the receiver's, and what lies between. The one is found that has lost the greatest part of
//! what was granted to pass it, and clearly more than is lost everywhere; what that explains
//! accuses nobody else. Nothing tells of a repair: after a while the link is used again, and if it
//! still loses, avoided for twice as long (design: arbiter.md section 4, fault isolation).

use alloc::vec::Vec;

use onepipe_base::Mono;

use crate::Schedule;
use crate::between::Routes;
use crate::path::Paths;
use crate::ring::Ring;
use crate::timeslot::BATCH_SLOTS_MAX;

/// Losses are looked at together that were reported within two of these, in ns.
const WINDOW_NS: u64 = 1_000_000;
/// Losses that accuse a link, at least: fewer are an accident.
const LOST_MIN: u32 = 6;
/// And at least one in so many of those granted.
const LOST_ONE_IN: u32 = 64;
/// Reports that are looked at together.
const REPORTS_MAX: usize = 256;
/// What is avoided has been on its way for so long at most when the last loss is reported, in ns.
const GRACE_NS: u64 = 2_000_000;
/// What is avoided is tried again after so much, and after twice as much each time that it still
/// loses, up to the second; in ns.
const TRY_FIRST_NS: u64 = 10_000_000;
const TRY_LAST_NS: u64 = 1_000_000_000;
/// Faults that are remembered at a time.
const FAULTS_MAX: usize = 64;

/// What is avoided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The rack whose link to the path it is; `None`: all of them, the path as a whole.
    pub rack: Option<u32>,
    /// The path.
    pub path: u32,
}

impl Fault {
    fn explains(self, from: u16, to: u16, path: u8) -> bool {
        let is_of = |rack| u32::from(from) == rack || u32::from(to) == rack;
        self.path == u32::from(path) && self.rack.is_none_or(is_of)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Report {
    at: Mono,
    from: u16,
    to: u16,
    path: u8,
    lost: u16,
}

/// A fault that was found, and is avoided or was until lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Found {
    fault: Fault,
    /// When it was found last.
    at: Mono,
    /// When it is tried again; if it is used, when it is forgotten that it was a fault.
    due: Mono,
    wait_ns: u64,
    is_avoided: bool,
}

/// Packets that were granted: up from each rack to each path, and down.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Granted {
    up: Vec<u32>,
    down: Vec<u32>,
}

impl Granted {
    fn new(links: usize) -> Self {
        Self { up: alloc::vec![0; links], down: alloc::vec![0; links] }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Isolation {
    racks: usize,
    paths: usize,
    rack_nodes: u32,
    /// In this window, and in the one before.
    granted: [Granted; 2],
    window_ends: Option<Mono>,
    reports: Ring<Report>,
    found: Vec<Found>,
}

impl Isolation {
    /// Of a fabric of so many endpoints in racks of so many, with so many paths.
    pub fn new(nodes: u32, rack_nodes: u32, paths: u32) -> Self {
        let (racks, paths) = (nodes.div_ceil(rack_nodes) as usize, paths as usize);
        Self {
            racks,
            paths,
            rack_nodes,
            granted: [Granted::new(racks * paths), Granted::new(racks * paths)],
            window_ends: None,
            reports: Ring::new(REPORTS_MAX),
            found: Vec::with_capacity(FAULTS_MAX),
        }
    }

    fn rack(&self, node: u16) -> usize {
        (u32::from(node) / self.rack_nodes) as usize
    }

    fn link(&self, rack: usize, path: u8) -> usize {
        rack * self.paths + usize::from(path)
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
                if path == Paths::NONE || usize::from(path) >= self.paths {
                    continue;
                }
                let [from, to] = [src as u16, row[slot]].map(|node| self.rack(node));
                let [up, down] = [self.link(from, path), self.link(to, path)];
                self.granted[0].up[up] += 1;
                self.granted[0].down[down] += 1;
            }
        }
    }

    /// An endpoint misses so many packets of another one by this path.
    pub fn on_lost(&mut self, now: Mono, (src, dst): (u16, u16), path: u8, lost: u16) {
        let [from, to] = [src, dst].map(|node| self.rack(node));
        let is_known = from < self.racks && to < self.racks && usize::from(path) < self.paths;
        if !is_known || from == to {
            return;
        }
        let (from, to) = (from as u16, to as u16);
        let is_explained = |found: &Found| {
            let is_late = now.since_ns(found.at) <= GRACE_NS;
            (found.is_avoided || is_late) && found.fault.explains(from, to, path)
        };
        if self.found.iter().any(is_explained) {
            return;
        }
        let is_like = |report: &&mut Report| {
            let is_recent = now.since_ns(report.at) < WINDOW_NS;
            is_recent && (report.from, report.to, report.path) == (from, to, path)
        };
        let known = self.reports.iter_mut().find(is_like);
        if let Some(report) = known {
            report.lost = report.lost.saturating_add(lost);
        } else {
            self.reports.push(Report { at: now, from, to, path, lost });
        }
    }

    /// Forgets what is too long ago. Answers what is to be used again, if something is.
    pub fn on_timeout(&mut self, now: Mono) -> Option<Fault> {
        if self.window_ends.is_none_or(|end| end <= now) {
            self.window_ends = Some(now.after_ns(WINDOW_NS));
            self.granted.swap(0, 1);
            self.granted[0].up.fill(0);
            self.granted[0].down.fill(0);
            self.reports.retain(|report| now.since_ns(report.at) < 2 * WINDOW_NS);
        }
        self.found.retain(|found| found.is_avoided || now < found.due);
        let found = self.found.iter_mut().find(|found| found.due <= now)?;
        found.is_avoided = false;
        found.due = now.after_ns(2 * found.wait_ns);
        Some(found.fault)
    }

    /// When something is to be done.
    pub fn due(&self) -> Option<Mono> {
        let tries = self.found.iter().map(|found| found.due).min();
        let window = self.window_ends.filter(|_| !self.reports.is_empty());
        Mono::earlier(tries, window)
    }

    /// It is known to be repaired: it is to be used again, and was no fault. Answers whether it was
    /// avoided.
    pub fn repair(&mut self, fault: Fault) -> bool {
        let was_avoided = self.found.iter().any(|found| found.fault == fault && found.is_avoided);
        self.found.retain(|found| found.fault != fault);
        was_avoided
    }

    /// Looks at what was reported. Answers what is to be avoided from now on, if something is.
    pub fn find(&mut self, now: Mono) -> Option<Fault> {
        if self.found.len() == FAULTS_MAX {
            return None;
        }
        let fault = loop {
            let fault = self.worst()?;
            self.reports.retain(|report| !fault.explains(report.from, report.to, report.path));
            // The last way of a rack is used even so, and nobody else is to blame for it.
            if self.has_others(fault) {
                break fault;
            }
        };
        let before = self.found.iter().find(|found| found.fault == fault);
        let wait_ns = before.map_or(TRY_FIRST_NS, |found| found.wait_ns * 2).min(TRY_LAST_NS);
        self.found.retain(|found| found.fault != fault);
        let due = now.after_ns(wait_ns);
        self.found.push(Found { fault, at: now, due, wait_ns, is_avoided: true });
        Some(fault)
    }

    /// The link, or the path as a whole, that has lost the greatest part of what passed it, if that
    /// is more than an accident.
    fn worst(&self) -> Option<Fault> {
        let mut worst: Option<(u64, Fault)> = None;
        let is_worse = |part: u64, worst: &Option<(u64, Fault)>| match worst {
            Some((than, _)) => part > *than,
            None => true,
        };
        for report in self.reports.iter() {
            for (rack, is_up) in [(report.from, true), (report.to, false)] {
                let fault = Fault { rack: Some(u32::from(rack)), path: u32::from(report.path) };
                let part = self.part(usize::from(rack), report.path, is_up);
                // Of two that explain as much, the one that was it before.
                let was_it = self.found.iter().any(|found| found.fault == fault);
                let part = part.map(|part| part + if was_it { part / 4 } else { 0 });
                if let Some(part) = part.filter(|part| is_worse(*part, &worst)) {
                    worst = Some((part, fault));
                }
            }
        }
        let (part, fault) = worst?;
        if part * 2 < self.everywhere() * 3 {
            // As much is lost everywhere: it is not the link.
            return None;
        }
        // The part of the whole path is less if it is only one of its links.
        let whole = Fault { rack: None, path: fault.path };
        let all = self.whole(fault.path as u8).filter(|all| all * 10 >= part * 8);
        Some(if all.is_some() { whole } else { fault })
    }

    fn reported(&self, path: u8) -> impl Iterator<Item = &Report> {
        self.reports.iter().filter(move |report| report.path == path)
    }

    fn granted(&self, rack: usize, path: u8, is_up: bool) -> u32 {
        let link = self.link(rack, path);
        let all = self.granted.iter();
        all.map(|granted| if is_up { granted.up[link] } else { granted.down[link] }).sum()
    }

    /// Which part of what passed a link one way was lost, in 65536ths, if that is more than an
    /// accident.
    fn part(&self, rack: usize, path: u8, is_up: bool) -> Option<u64> {
        let is_of =
            |report: &&Report| usize::from(if is_up { report.from } else { report.to }) == rack;
        let lost = self.reported(path).filter(is_of).map(|report| u32::from(report.lost)).sum();
        fraction(lost, self.granted(rack, path, is_up))
    }

    /// Which part of all that took any path was lost, in 65536ths.
    fn everywhere(&self) -> u64 {
        let lost: u64 = self.reports.iter().map(|report| u64::from(report.lost)).sum();
        let granted = self.granted.iter().flat_map(|granted| &granted.up);
        let granted: u64 = granted.map(|granted| u64::from(*granted)).sum();
        (lost << 16) / granted.max(lost).max(1)
    }

    /// Which part of all that took this path was lost, if both senders and receivers are of more
    /// than one rack.
    fn whole(&self, path: u8) -> Option<u64> {
        let first = self.reported(path).next()?;
        let has_more = self.reported(path).any(|report| report.from != first.from)
            && self.reported(path).any(|report| report.to != first.to);
        let lost = self.reported(path).map(|report| u32::from(report.lost)).sum();
        let granted = (0..self.racks).map(|rack| self.granted(rack, path, true)).sum();
        fraction(lost, granted).filter(|_| has_more)
    }

    /// Whether any two racks that this fault parts have another path, which both can use.
    fn has_others(&self, fault: Fault) -> bool {
        let meets = |one: usize, other: usize| {
            let both = self.usable(one) & self.usable(other);
            one == other || both & !(1 << fault.path) != 0
        };
        let all = 0..self.racks;
        match fault.rack {
            Some(rack) => all.clone().all(|other| meets(rack as usize, other)),
            None => all.clone().all(|one| all.clone().all(|other| meets(one, other))),
        }
    }

    /// A bit for each path that a rack can use.
    fn usable(&self, rack: usize) -> u64 {
        let all = u64::MAX.unbounded_shr(u64::BITS - self.paths as u32);
        let of_it = self.found.iter().filter(|found| {
            let is_of_it = found.fault.rack.is_none_or(|of| of as usize == rack);
            found.is_avoided && is_of_it
        });
        of_it.fold(all, |usable, found| usable & !(1 << found.fault.path))
    }
}

fn fraction(lost: u32, granted: u32) -> Option<u64> {
    let is_much = lost >= LOST_MIN && lost.saturating_mul(LOST_ONE_IN) >= granted;
    is_much.then(|| (u64::from(lost) << 16) / u64::from(granted.max(lost)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Grant;
    use crate::path::Fabric;

    const MS: u64 = 1_000_000;

    /// Four racks of four, four paths; in each timeslot everybody sends to somebody in another
    /// rack. Packets that `loses` says are lost are reported.
    fn run(isolation: &mut Isolation, now: u64, loses: impl Fn(usize, usize, u8) -> bool) {
        let fabric = Fabric { nodes: 16, rack_nodes: 4, paths: 4, is_strict: false };
        let mut paths = Paths::new(fabric).expect("right");
        let mut schedule = Schedule::new(16);
        let grant = |src: u16, slot: u16| Grant {
            src,
            dst: (src + 4 * (1 + slot % 3) + slot) % 16,
            slots: 1 << slot,
        };
        let grants: Vec<Grant> =
            (0..64).flat_map(|slot| (0..16).map(move |src| grant(src, slot))).collect();
        schedule.fill(&grants);
        paths.assign(&schedule, 64);
        isolation.on_granted(&schedule, &paths, 64);
        for grant in grants {
            let slot = grant.slots.trailing_zeros() as usize;
            let path = paths.of(grant.src.into())[slot];
            let [from, to] = [grant.src, grant.dst].map(|node| usize::from(node) / 4);
            if path != Paths::NONE && loses(from, to, path) {
                isolation.on_lost(Mono::from_ns(now), (grant.src, grant.dst), path, 1);
            }
        }
    }

    fn find(loses: impl Fn(usize, usize, u8) -> bool) -> Vec<Fault> {
        let mut isolation = Isolation::new(16, 4, 4);
        isolation.on_timeout(Mono::from_ns(0));
        run(&mut isolation, 10, |_, _, _| false);
        run(&mut isolation, 20, loses);
        core::iter::from_fn(|| isolation.find(Mono::from_ns(30))).collect()
    }

    #[test]
    fn the_link_is_found_that_explains_most() {
        let one = |rack, path| Fault { rack, path };
        assert_eq!(find(|from, _, path| (from, path) == (2, 1)), [one(Some(2), 1)], "up");
        assert_eq!(find(|_, to, path| (to, path) == (0, 3)), [one(Some(0), 3)], "down");
        let both = find(|from, to, path| path == 2 && (from == 3 || to == 3));
        assert_eq!(both, [one(Some(3), 2)]);
        assert_eq!(find(|_, _, path| path == 1), [one(None, 1)], "all that is between");
        let mut two = find(|from, to, path| (from, path) == (2, 1) || (to, path) == (0, 3));
        two.sort_by_key(|fault| fault.path);
        assert_eq!(two, [one(Some(2), 1), one(Some(0), 3)]);
        assert_eq!(find(|_, _, _| false), []);
    }

    #[test]
    fn a_rack_is_never_cut_off() {
        let found = find(|from, _, _| from == 1);
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|fault| fault.rack == Some(1)));
        assert_eq!(find(|_, _, _| true), [], "as much is lost everywhere");
        // Racks 0 and 1 can use one path each, and it is not the same: that would part them.
        let two = find(|from, to, path| {
            (path != 0 && (from == 0 || to == 0)) || (path == 0 && (from == 1 || to == 1))
        });
        assert_eq!(two.len(), 3, "{two:?}");
    }

    #[test]
    fn what_was_avoided_is_tried_again_and_avoided_longer_if_it_still_loses() {
        let mut isolation = Isolation::new(16, 4, 4);
        isolation.on_timeout(Mono::from_ns(0));
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..4 {
            run(&mut isolation, now, |from, _, path| (from, path) == (2, 1));
            let fault = isolation.find(Mono::from_ns(now)).expect("it loses");
            assert_eq!(fault, Fault { rack: Some(2), path: 1 });
            run(&mut isolation, now + 1, |from, _, path| (from, path) == (2, 1));
            assert_eq!(isolation.find(Mono::from_ns(now + 1)), None, "known");
            let begin = now;
            while isolation.on_timeout(Mono::from_ns(now)).is_none() {
                now += MS;
            }
            waits.push((now - begin) / MS);
            now += 3 * MS;
            isolation.on_timeout(Mono::from_ns(now));
        }
        assert_eq!(waits, [10, 20, 40, 80]);
        // It was repaired, and stays.
        for _ in 0..300 {
            now += MS;
            isolation.on_timeout(Mono::from_ns(now));
            run(&mut isolation, now, |_, _, _| false);
        }
        run(&mut isolation, now, |from, _, path| (from, path) == (2, 1));
        assert!(isolation.find(Mono::from_ns(now)).is_some());
        assert_eq!(isolation.due(), Some(Mono::from_ns(now + 10 * MS)), "as the first time");
        assert!(isolation.repair(Fault { rack: Some(2), path: 1 }));
        assert_eq!(isolation.due(), None);
    }

    #[test]
    fn a_few_losses_and_old_ones_accuse_nobody() {
        let mut isolation = Isolation::new(16, 4, 4);
        isolation.on_timeout(Mono::from_ns(0));
        run(&mut isolation, 0, |_, _, _| false);
        let lose = |isolation: &mut Isolation, now, lost| {
            isolation.on_lost(Mono::from_ns(now), (0, 5), 1, lost);
        };
        lose(&mut isolation, 0, 5);
        assert_eq!(isolation.find(Mono::from_ns(0)), None);
        for turn in 1..=3 {
            isolation.on_timeout(Mono::from_ns(turn * MS));
        }
        run(&mut isolation, 3 * MS, |_, _, _| false);
        lose(&mut isolation, 3 * MS, 5);
        assert_eq!(isolation.find(Mono::from_ns(3 * MS)), None);
        lose(&mut isolation, 3 * MS, 1);
        assert!(isolation.find(Mono::from_ns(3 * MS)).is_some());
        // Of nobody, to nobody, by no path.
        isolation.on_lost(Mono::from_ns(3 * MS), (16, 0), 1, 100);
        isolation.on_lost(Mono::from_ns(3 * MS), (0, 5), 4, 100);
        isolation.on_lost(Mono::from_ns(3 * MS), (0, 1), 1, 100);
        assert_eq!(isolation.find(Mono::from_ns(3 * MS)), None);
    }
}
