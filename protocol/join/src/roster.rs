//! Which processes are in the fabric, as a node knows it from its neighbours.
//!
//! Switches state the controllers to each other, too, so that each of them knows whether a
//! controller that asks for admission runs at another switch already.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{
    Backoff, Controllers, Instance, Machine, Mono, Now, Port, ProcessId, Timestamp, Transmit,
    Verdict,
};
use onepipe_reliability::BoundedQueue;
use onepipe_wire::{
    Frame, HEADER_LEN, MEMBERS_PER_FRAME, MEMBERS_UPDATE_LEN, MemberBits, Members, Opcode,
    opcode_unchecked, seal,
};

use crate::admission::hop_header;

/// Interval between the first two transmissions of an update, in ns; doubled with each one. A
/// process at rest takes a millisecond to wake up.
const RETRY_NS: u64 = 5_000_000;
/// Longest interval between transmissions of an update, in ns.
const RETRY_MAX_NS: u64 = 1_000_000_000;

/// What is at the other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// A process; it gets updates if it has asked for them ([`onepipe_wire::JoinRequest`]).
    Process {
        /// Its id.
        process: ProcessId,
        /// Whether it gets updates.
        wants_members: bool,
    },
    /// A controller. Only switches get to know of it.
    Controller {
        /// Its id.
        process: ProcessId,
    },
    /// A switch below; it sends updates and gets them if it has asked for them.
    Below {
        /// Whether it gets updates.
        wants_members: bool,
    },
    /// The switch above this switch; it gets updates from when it has sent one.
    Above,
    /// The switch of this process: it sends updates.
    Source,
}

impl Side {
    fn is_switch(self) -> bool {
        matches!(self, Self::Below { .. } | Self::Above)
    }
}

/// The processes of the fabric, as far as known. A switch advertises to each neighbour the
/// processes that are reached through any other port; in a tree of switches that is exact. An
/// update is repeated until it is acknowledged, so nothing is sent while nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Roster {
    own: Instance,
    /// The ids that are stated to switches only, and are no members.
    controllers: Option<Controllers>,
    /// For each process, the number of ports through which it is reached.
    paths: Vec<u16>,
    /// Version of each range of [`MEMBERS_PER_FRAME`] ids; 0: no process of it was ever known.
    versions: Vec<u64>,
    ports: Vec<Option<Neighbour>>,
    /// Versions of ranges to be acknowledged.
    acks: BoundedQueue<(Port, u32, u64)>,
    /// Lower bound of when an update is due.
    due: Option<Mono>,
    /// Number of changes.
    changes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Neighbour {
    side: Side,
    /// Whether frames of the neighbour arrive: only then its processes are reached, and it gets
    /// updates.
    is_up: bool,
    takes_updates: bool,
    /// The processes behind it, and the version of each range.
    behind: BTreeMap<u32, (u64, MemberBits)>,
    /// The version of each range that it has acknowledged.
    acked: Vec<u64>,
    /// When the first range that is not acknowledged is sent again.
    backoff: Backoff,
}

impl Neighbour {
    fn check_invariants(&self, versions: &[u64]) {
        assert_eq!(self.acked.len(), versions.len());
        let is_sent = |(acked, version): (&u64, &u64)| acked <= version;
        assert!(self.acked.iter().zip(versions).all(is_sent), "acknowledged before it was sent");
        let mut ranges = self.behind.keys().map(|range| *range as usize);
        assert!(ranges.all(|range| range < versions.len()), "ids out of range");
        let is_process = matches!(self.side, Side::Process { .. } | Side::Controller { .. });
        assert!(!is_process || self.behind.len() <= 1, "a process is itself only");
        let gets_updates = self.is_up && self.takes_updates;
        assert!(gets_updates || self.backoff.due().is_none(), "an update for a lost neighbour");
    }

    /// Returns the first range of which the last version is not acknowledged.
    fn first_pending(&self, versions: &[u64]) -> Option<usize> {
        let mut ranges = self.acked.iter().zip(versions);
        let gets_updates = self.is_up && self.takes_updates;
        gets_updates.then(|| ranges.position(|(acked, version)| acked < version))?
    }

    fn bits(&self, range: u32) -> MemberBits {
        self.behind.get(&range).filter(|_| self.is_up).map_or(EMPTY, |(_, bits)| *bits)
    }

    fn reaches(&self, process: ProcessId) -> bool {
        let (range, word, bit) = position(process);
        self.bits(range)[word] & bit != 0
    }
}

/// Returns the range of `process`, and its word and its bit there.
fn position(process: ProcessId) -> (u32, usize, u64) {
    let (range, at) = (process.0 / MEMBERS_PER_FRAME, process.0 % MEMBERS_PER_FRAME);
    (range, at as usize / 64, 1 << (at % 64))
}

const EMPTY: MemberBits = [0; MEMBERS_PER_FRAME as usize / 64];

impl Roster {
    /// Returns the roster of `own`, which has this number of ports; process ids lie below
    /// `processes_max`.
    pub fn new(own: Instance, ports: u16, processes_max: u32) -> Self {
        let ranges = processes_max.div_ceil(MEMBERS_PER_FRAME) as usize;
        let mut versions = vec![0; ranges];
        // A neighbour learns from the first update that this node sends them.
        versions.first_mut().into_iter().for_each(|version| *version = 1);
        Self {
            own,
            controllers: None,
            paths: vec![0; processes_max as usize],
            versions,
            ports: vec![None; usize::from(ports)],
            acks: BoundedQueue::new(usize::from(ports)),
            due: None,
            changes: 0,
        }
    }

    /// Sets the controllers of the fabric: they are no members, and are stated to switches only.
    #[must_use]
    pub fn with_controllers(mut self, controllers: Option<Controllers>) -> Self {
        self.controllers = controllers;
        self
    }

    /// Returns the roster of a process with one link, on port 0, to its switch.
    pub fn of_process(own: Instance, processes_max: u32) -> Self {
        let mut roster = Self::new(own, 1, processes_max);
        let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(0) };
        roster.open(now, Port(0), Side::Source);
        roster.set_up(now, Port(0), true);
        roster
    }

    /// Asserts what holds between any two calls. Takes time in proportion to the ids in the ranges
    /// of which a process is known.
    ///
    /// # Panics
    /// When an invariant is broken, which is a bug.
    pub fn check_invariants(&self) {
        self.check_neighbours();
        let behind = self.ports.iter().flatten().flat_map(|neighbour| neighbour.behind.keys());
        for range in behind.copied().collect::<BTreeSet<u32>>() {
            let first = range * MEMBERS_PER_FRAME;
            let end = (first + MEMBERS_PER_FRAME).min(self.paths.len() as u32);
            for process in (first..end).map(ProcessId) {
                let ports = self.ports.iter().flatten();
                let reached = ports.filter(|neighbour| neighbour.reaches(process)).count();
                assert_eq!(usize::from(self.paths[process.index()]), reached, "{process:?}");
            }
        }
    }

    /// As [`Roster::check_invariants`] without the ids.
    fn check_neighbours(&self) {
        let ranges = self.paths.len().div_ceil(MEMBERS_PER_FRAME as usize);
        assert_eq!(self.versions.len(), ranges);
        self.acks.check_invariants();
        let mut acks = self.acks.iter();
        assert!(acks.all(|(port, range, _)| {
            port.index() < self.ports.len() && (*range as usize) < ranges
        }));
        assert!(self.versions.first() != Some(&0), "a neighbour is never sent an update");
        for neighbour in self.ports.iter().flatten() {
            neighbour.check_invariants(&self.versions);
            let is_due = self.due <= neighbour.backoff.due() && self.due.is_some();
            assert!(neighbour.backoff.due().is_none() || is_due, "an update is not sent in time");
        }
    }

    /// Returns whether `frame` is for a roster, and not for the machine of a node.
    #[inline]
    pub fn takes(frame: &[u8]) -> bool {
        opcode_unchecked(frame) == Some(Opcode::Members)
    }

    //= spec/ordering.md#R75
    /// Notes that a neighbour was admitted at `port`. Its processes count from
    /// [`Roster::set_up`] on.
    pub fn open(&mut self, now: Now, port: Port, side: Side) {
        self.close(now, port);
        let mut behind = BTreeMap::new();
        if let Side::Process { process, .. } | Side::Controller { process } = side
            && process.index() < self.paths.len()
        {
            let (range, word, bit) = position(process);
            let mut bits = EMPTY;
            bits[word] |= bit;
            behind.insert(range, (0, bits));
        }
        let takes_updates = match side {
            Side::Process { wants_members, .. } | Side::Below { wants_members } => wants_members,
            Side::Controller { .. } | Side::Above | Side::Source => false,
        };
        let backoff = Backoff::new(RETRY_NS, RETRY_MAX_NS);
        let Some(slot) = self.ports.get_mut(port.index()) else { return };
        let acked = vec![0; self.versions.len()];
        *slot = Some(Neighbour { side, is_up: false, takes_updates, behind, acked, backoff });
    }

    /// Notes that the neighbour at `port` is gone.
    pub fn close(&mut self, now: Now, port: Port) {
        self.set_up(now, port, false);
        if let Some(slot) = self.ports.get_mut(port.index()) {
            *slot = None;
        }
    }

    /// Notes whether frames of the neighbour at `port` arrive.
    pub fn set_up(&mut self, now: Now, port: Port, is_up: bool) {
        let Some(Some(neighbour)) = self.ports.get_mut(port.index()) else { return };
        if neighbour.is_up == is_up {
            return;
        }
        neighbour.is_up = is_up;
        neighbour.backoff.reschedule(None);
        if is_up && neighbour.takes_updates {
            neighbour.backoff.on_change(now.mono);
            self.due = Mono::earlier(self.due, Some(now.mono));
        }
        let ranges: Vec<(u32, MemberBits)> =
            neighbour.behind.iter().map(|(range, (_, bits))| (*range, *bits)).collect();
        for (range, bits) in ranges {
            let (before, after) = if is_up { (EMPTY, bits) } else { (bits, EMPTY) };
            self.on_change(now, range, before, after);
        }
        if cfg!(debug_assertions) {
            self.check_neighbours();
        }
    }

    /// Drops what the neighbour at `port` has sent and acknowledged, because it has restarted.
    pub fn forget(&mut self, now: Now, port: Port) {
        let Some(Some(neighbour)) = self.ports.get_mut(port.index()) else { return };
        let (side, is_up) = (neighbour.side, neighbour.is_up);
        self.open(now, port, side);
        self.set_up(now, port, is_up);
    }

    /// Sends everything to the neighbour at `port` again, because it has forgotten it.
    pub fn repeat(&mut self, now: Now, port: Port) {
        let Some(Some(neighbour)) = self.ports.get_mut(port.index()) else { return };
        neighbour.acked.fill(0);
        if neighbour.is_up && neighbour.takes_updates {
            neighbour.backoff.on_change(now.mono);
            self.due = Mono::earlier(self.due, Some(now.mono));
        }
    }

    /// Returns the processes that are reached, in ascending order. Controllers are none of them.
    pub fn members(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let paths = self.paths.iter().enumerate();
        let reached = paths.filter(|(_, paths)| **paths > 0);
        let reached = reached.map(|(process, _)| ProcessId(process as u32));
        reached.filter(|process| !self.is_controller(*process))
    }

    /// Returns whether `process`, which may be a controller, is reached through `port`.
    pub fn is_reached(&self, port: Port, process: ProcessId) -> bool {
        let neighbour = self.ports.get(port.index()).and_then(Option::as_ref);
        neighbour.is_some_and(|neighbour| neighbour.reaches(process))
    }

    //= spec/ordering.md#R68
    /// Returns whether `process`, which may be a controller, is reached through a neighbouring
    /// switch.
    pub fn is_behind_switch(&self, process: ProcessId) -> bool {
        let mut neighbours = self.ports.iter().flatten();
        neighbours.any(|neighbour| neighbour.side.is_switch() && neighbour.reaches(process))
    }

    fn is_controller(&self, process: ProcessId) -> bool {
        self.controllers.is_some_and(|controllers| controllers.contains(process))
    }

    /// Returns whether [`Machine::poll_transmit`] may return a frame.
    #[inline]
    pub fn wants_transmit(&self, now: Mono) -> bool {
        !self.acks.is_empty() || self.due.is_some_and(|due| due <= now)
    }

    /// Returns a number that rises whenever [`Roster::members`] may have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Replaces what is reached through one port.
    fn on_change(&mut self, now: Now, range: u32, before: MemberBits, after: MemberBits) {
        if before == after {
            return;
        }
        let first = range * MEMBERS_PER_FRAME;
        for (word, (before, after)) in before.into_iter().zip(after).enumerate() {
            let mut differs = before ^ after;
            while differs != 0 {
                let bit = differs.trailing_zeros();
                differs &= differs - 1;
                let process = first as usize + 64 * word + bit as usize;
                let (paths, max) = (&mut self.paths[process], self.ports.len());
                *paths = if after >> bit & 1 == 1 { *paths + 1 } else { *paths - 1 };
                debug_assert!(usize::from(*paths) <= max, "{process} is reached twice at a port");
            }
        }
        self.changes += 1;
        let version = &mut self.versions[range as usize];
        // Above the versions of a previous incarnation of this node.
        let before = *version;
        *version = now.sync.as_ns().max(*version + 1);
        debug_assert!(*version > before, "versions rise");
        for neighbour in self.ports.iter_mut().flatten() {
            // One update is in flight at a time; the next one follows its acknowledgement.
            let gets_updates = neighbour.is_up && neighbour.takes_updates;
            if gets_updates && neighbour.backoff.due().is_none() {
                neighbour.backoff.on_change(now.mono);
            }
        }
        self.due = Mono::earlier(self.due, Some(now.mono));
    }

    /// Returns what is reached through any port but `port`, as far as it concerns the neighbour
    /// there: controllers concern switches only.
    fn behind_others(&self, port: Port, range: u32) -> MemberBits {
        let neighbour = self.ports[port.index()].as_ref();
        let own = neighbour.map_or(EMPTY, |own| own.bits(range));
        let is_switch = neighbour.is_some_and(|neighbour| neighbour.side.is_switch());
        let first = (range * MEMBERS_PER_FRAME) as usize;
        let end = self.paths.len().min(first + MEMBERS_PER_FRAME as usize);
        let mut bits = EMPTY;
        for (at, paths) in self.paths[first..end].iter().enumerate() {
            let is_own = (own[at / 64] >> (at % 64) & 1) as u16;
            let is_stated = *paths > is_own
                && (is_switch || !self.is_controller(ProcessId((first + at) as u32)));
            bits[at / 64] |= u64::from(is_stated) << (at % 64);
        }
        bits
    }

    //= spec/ordering.md#R76
    fn on_update(&mut self, now: Now, port: Port, range: u32, version: u64, bits: MemberBits) {
        let Some(Some(neighbour)) = self.ports.get_mut(port.index()) else { return };
        if matches!(neighbour.side, Side::Process { .. } | Side::Controller { .. }) {
            return;
        }
        if neighbour.side == Side::Above && !neighbour.takes_updates {
            neighbour.takes_updates = true;
            if neighbour.is_up {
                neighbour.backoff.on_change(now.mono);
                self.due = Mono::earlier(self.due, Some(now.mono));
            }
        }
        let is_up = neighbour.is_up;
        let known = neighbour.behind.entry(range).or_insert((0, EMPTY));
        if version < known.0 {
            return;
        }
        if version > known.0 {
            let (before, after) = (known.1, masked(bits, range, self.paths.len()));
            *known = (version, after);
            if is_up {
                self.on_change(now, range, before, after);
            }
        }
        self.acks.push((port, range, version));
    }

    fn on_ack(&mut self, now: Mono, port: Port, range: u32, version: u64) {
        let Some(Some(neighbour)) = self.ports.get_mut(port.index()) else { return };
        let acked = &mut neighbour.acked[range as usize];
        // What was never sent cannot be acknowledged.
        let version = version.min(self.versions[range as usize]);
        if version <= *acked {
            return;
        }
        *acked = version;
        if neighbour.first_pending(&self.versions).is_some() {
            neighbour.backoff.on_change(now);
            self.due = Mono::earlier(self.due, Some(now));
        } else {
            neighbour.backoff.reschedule(None);
        }
    }

    fn write(&self, now: Now, port: Port, members: Members, slot: &mut [u8]) -> Option<Transmit> {
        let len = members.write(slot.get_mut(HEADER_LEN..)?)?;
        let header = hop_header(Opcode::Members, self.own, None, now.sync);
        Some(Transmit { port, bytes: seal(slot, header, len) })
    }
}

/// Removes ids that are not below `processes_max`.
fn masked(mut bits: MemberBits, range: u32, processes_max: usize) -> MemberBits {
    let count = processes_max.saturating_sub((range * MEMBERS_PER_FRAME) as usize);
    for (at, word) in bits.iter_mut().enumerate() {
        let below = count.saturating_sub(64 * at).min(64) as u32;
        *word &= u64::MAX.checked_shr(64 - below).unwrap_or(0);
    }
    bits
}

impl Machine for Roster {
    type Event = core::convert::Infallible;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let Ok(frame) = Frame::parse(frame) else { return Verdict::Dropped };
        let Ok(members) = Members::parse(frame.payload) else { return Verdict::Dropped };
        let is_known = matches!(self.ports.get(port.index()), Some(Some(_)));
        if frame.opcode != Opcode::Members
            || !is_known
            || members.range as usize >= self.versions.len()
        {
            return Verdict::Dropped;
        }
        let (range, version) = (members.range, members.version);
        match members.bits {
            Some(bits) => self.on_update(now, port, range, version, bits),
            None => self.on_ack(now.mono, port, range, version),
        }
        if cfg!(debug_assertions) {
            self.check_neighbours();
        }
        Verdict::Consumed
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if slot.len() < HEADER_LEN + MEMBERS_UPDATE_LEN {
            return None;
        }
        while let Some((port, range, version)) = self.acks.pop() {
            let ack = Members { range, version, bits: None };
            if let Some(transmit) = self.write(now, port, ack, slot) {
                return Some(transmit);
            }
        }
        if self.due.is_none_or(|due| now.mono < due) {
            return None;
        }
        for at in 0..self.ports.len() {
            let Some(neighbour) = &mut self.ports[at] else { continue };
            let Some(pending) = neighbour.first_pending(&self.versions) else {
                neighbour.backoff.reschedule(None);
                continue;
            };
            if !neighbour.backoff.take(now.mono) {
                continue;
            }
            let (port, range) = (Port(at as u16), pending as u32);
            let bits = Some(self.behind_others(port, range));
            let update = Members { range, version: self.versions[pending], bits };
            return self.write(now, port, update, slot);
        }
        let dues = self.ports.iter().flatten().filter_map(|neighbour| neighbour.backoff.due());
        self.due = dues.min();
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.due
    }
}
