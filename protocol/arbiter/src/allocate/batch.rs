//! Up to 64 timeslots that are given out together.

use alloc::vec::Vec;

use onepipe_processor::Bits;

use super::capacity::{Capacity, Limit, Unlimited};
use super::idle::{Idle, LOOK};
use super::pick::{Pick, Plain};
use crate::demand::{Flow, Flows};
use crate::timeslot::Timeslot;

/// Timeslots that a pair was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Who may send.
    pub src: u16,
    /// To whom.
    pub dst: u16,
    /// In which timeslots: bit 0 is the first of the batch.
    pub slots: u64,
}

/// Flows that are served together: those that find nothing are known before.
const SERVED: usize = 64;

/// How many of some flows have found something: as many of the next, it is guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Found {
    /// They are not looked at first.
    NearlyAll,
    Some,
    /// Many have an end with nothing left: these are told apart first.
    Few,
}

impl Found {
    fn of(served: usize, all: usize) -> Self {
        match (all - served) * 8 / all {
            0 => Self::NearlyAll,
            1..2 => Self::Some,
            _ => Self::Few,
        }
    }
}

/// Consecutive timeslots, and who was given which.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    start: Timeslot,
    /// A bit for each timeslot of the batch.
    all: u64,
    idle: Idle,
    capacity: Option<Capacity>,
    /// If the processor has them. What is given is the same.
    bits: Option<Bits>,
    /// Of those that were visited last.
    found: Found,
    /// For those that are looked at together.
    open: Vec<Flow>,
    grants: Grants,
    given: u32,
}

/// Grants in a row, in memory that is taken once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grants {
    places: Vec<Grant>,
    /// What is behind is of no account.
    len: usize,
}

impl Grants {
    /// Room for those of a batch.
    pub fn new(nodes: u32, slots: u32) -> Self {
        // A grant is of one timeslot at least; and there is room for all that are visited
        // together, of whom some may find nothing.
        Self { places: alloc::vec![Grant::default(); (nodes * slots) as usize + LOOK], len: 0 }
    }

    pub fn as_slice(&self) -> &[Grant] {
        &self.places[..self.len]
    }
}

/// Where flows go that a batch has visited.
pub(super) struct Exits<'a> {
    /// Those that no timeslot of this batch is left for, which is final: what is taken stays taken.
    pub onward: &'a mut Flows,
    /// Some of these, which come after all others.
    pub behind: Behind<'a>,
    /// Those that were given some and want more.
    pub again: &'a mut Flows,
    /// Those that were given all; in the place of their backlog is how many were in `again` then.
    pub done: &'a mut Flows,
}

/// Who comes after all others that go onward.
pub(super) enum Behind<'a> {
    /// Nobody. Those that were not seen to be blocked at the first look follow those that were
    /// looked at together with them.
    Nobody,
    /// Those that were not seen to be blocked at the first look: the others keep their order.
    Lost(&'a mut Flows),
    /// Those that give way: both of whose ends have no timeslot left. One of the others has an end
    /// that may be idle for want of an earlier turn.
    Way(&'a mut Flows),
}

impl Batch {
    pub(super) fn new(nodes: u32, slots: u32) -> Self {
        Self {
            start: Timeslot(0),
            all: u64::MAX >> (64 - slots),
            idle: Idle::new(nodes as usize),
            capacity: None,
            bits: Bits::detect(),
            found: Found::NearlyAll,
            open: alloc::vec![Flow::default(); LOOK],
            grants: Grants::new(nodes, slots),
            given: 0,
        }
    }

    /// Its grants go to who asks for them, for others that have been read.
    pub(super) fn exchange(&mut self, grants: &mut Grants) {
        core::mem::swap(&mut self.grants, grants);
    }

    /// It does without instructions that not every processor has.
    #[cfg(test)]
    pub(super) fn make_plain(&mut self) {
        self.bits = None;
        self.idle.make_plain();
    }

    pub(super) fn limit(&mut self, capacity: Capacity) {
        self.capacity = Some(capacity);
    }

    /// Nothing is given yet.
    pub(super) fn begin(&mut self, start: Timeslot) {
        self.start = start;
        self.idle.begin(self.all);
        if let Some(capacity) = &mut self.capacity {
            capacity.begin(self.all);
        }
        self.found = Found::NearlyAll;
        self.grants.len = 0;
        self.given = 0;
    }

    /// Visits each of `flows`, in order, and gives it up to `share` timeslots.
    pub(super) fn visit(&mut self, flows: &[Flow], share: u32, exits: &mut Exits<'_>) {
        match self.capacity.take() {
            Some(mut capacity) => {
                self.visit_within(&mut capacity, flows, share, exits);
                self.capacity = Some(capacity);
            }
            None => self.visit_within(&mut Unlimited, flows, share, exits),
        }
    }

    fn visit_within(
        &mut self,
        limit: &mut impl Limit,
        flows: &[Flow],
        share: u32,
        exits: &mut Exits<'_>,
    ) {
        match self.bits {
            Some(bits) => self.visit_by(bits, limit, flows, share, exits),
            None => self.visit_by(Plain, limit, flows, share, exits),
        }
    }

    /// Many flows find nothing left when the load is high, and which ones cannot be guessed. So
    /// some are looked at first, without a branch, and those that find something are served then;
    /// who wants more of them is told apart last, without a branch again. Each of these steps alone
    /// has few enough numbers in hand for a processor's registers.
    fn visit_by(
        &mut self,
        pick: impl Pick,
        limit: &mut impl Limit,
        flows: &[Flow],
        share: u32,
        exits: &mut Exits<'_>,
    ) {
        let mut open = core::mem::take(&mut self.open);
        for flows in flows.chunks(LOOK) {
            let mut rest = flows;
            while self.found == Found::NearlyAll && !rest.is_empty() {
                let (flows, behind) = rest.split_at(rest.len().min(SERVED));
                open[..flows.len()].copy_from_slice(flows);
                let served = self.serve(pick, limit, &mut open[..flows.len()], share, exits);
                self.found = Found::of(served, flows.len());
                rest = behind;
            }
            if rest.is_empty() {
                continue;
            }
            let count = match &mut exits.behind {
                Behind::Way(way) if self.found == Found::Few => {
                    self.idle.part(rest, &mut open, exits.onward, way)
                }
                _ => {
                    open[..rest.len()].copy_from_slice(rest);
                    rest.len()
                }
            };
            let mut served = 0;
            for flows in open[..count].chunks_mut(SERVED) {
                let count = self.idle.look(limit, flows, exits.onward);
                served += self.serve(pick, limit, &mut flows[..count], share, exits);
            }
            self.found = Found::of(served, rest.len());
        }
        self.open = open;
    }

    /// Gives each of `flows`, which have found something, up to `share` timeslots, and writes what
    /// they still want. Those whose timeslots were taken by one just before them are `lost`;
    /// answers how many are left. Which these are cannot be guessed: they are given nothing, with
    /// no branch.
    #[inline(always)]
    fn serve(
        &mut self,
        pick: impl Pick,
        limit: &mut impl Limit,
        flows: &mut [Flow],
        share: u32,
        exits: &mut Exits<'_>,
    ) -> usize {
        let lost = match &mut exits.behind {
            Behind::Lost(lost) => lost,
            _ => &mut *exits.onward,
        };
        let (from, to) = (&mut *self.idle.from, &mut *self.idle.to);
        let grants = &mut self.grants.places[self.grants.len..][..flows.len()];
        let lose = lost.room();
        let mut granted = 0;
        let mut losses = 0;
        let mut given = 0;
        for at in 0..flows.len() {
            let flow = flows[at];
            let (src, dst) = (flow.src(), flow.dst());
            let free = from[src] & to[dst] & limit.free(src, dst);
            lose[losses] = flow;
            losses += usize::from(free == 0);
            let (slots, count) = pick.lowest(free, flow.backlog().min(share));
            from[src] ^= slots;
            to[dst] ^= slots;
            limit.take(src, dst, slots);
            grants[granted] = Grant { src: src as u16, dst: dst as u16, slots };
            flows[granted] = flow.served(count);
            granted += usize::from(free != 0);
            given += count;
        }
        lost.grow(losses);
        self.grants.len += granted;
        self.given += given;
        if granted > 0 {
            self.idle.on_given();
        }
        part(&flows[..granted], exits);
        granted
    }

    /// Its first timeslot.
    pub fn start(&self) -> Timeslot {
        self.start
    }

    /// Its length in timeslots.
    pub fn slots(&self) -> u32 {
        self.all.count_ones()
    }

    /// What was given, each timeslot of a pair once; a pair may be here several times.
    pub fn grants(&self) -> &[Grant] {
        self.grants.as_slice()
    }

    /// How many packets may be sent in all.
    pub fn given(&self) -> u32 {
        self.given
    }
}

/// Tells those of `flows` that want more from those that have all.
#[inline]
fn part(flows: &[Flow], exits: &mut Exits<'_>) {
    let before = exits.again.len();
    let (again, done) = (exits.again.room(), exits.done.room());
    let (mut agains, mut dones) = (0, 0);
    for &flow in flows {
        again[agains] = flow;
        done[dones] = flow.dry_at(before + agains);
        let is_done = flow.backlog() == 0;
        dones += usize::from(is_done);
        agains = agains + 1 - usize::from(is_done);
    }
    exits.again.grow(agains);
    exits.done.grow(dones);
}
