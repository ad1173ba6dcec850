//! A batch: up to 64 timeslots that are allocated together.

use alloc::vec::Vec;

use onepipe_processor::Bits;

use super::capacity::{Capacity, Limit, Unlimited};
use super::idle::{Idle, LOOK};
use super::pick::{Pick, Plain};
use crate::demand::{Flow, Flows};
use crate::timeslot::Timeslot;

/// Timeslots granted to a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The source.
    pub src: u16,
    /// The destination.
    pub dst: u16,
    /// The granted timeslots: bit 0 is the first of the batch.
    pub slots: u64,
}

/// Number of flows after which the hit rate is evaluated again.
const SERVED: usize = 64;

/// The share of recently visited flows that found a timeslot, as a prediction for the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Found {
    /// Flows are served without filtering.
    NearlyAll,
    Some,
    /// Many flows have an end without free timeslots; those are filtered out first.
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

/// Consecutive timeslots and their grants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    start: Timeslot,
    /// One bit for each timeslot of the batch.
    all: u64,
    idle: Idle,
    capacity: Option<Capacity>,
    /// Bit deposit instructions, if the CPU has them. The grants are the same without.
    bits: Option<Bits>,
    /// Hit rate of the flows visited last.
    found: Found,
    /// Scratch space for the flows that are examined together.
    open: Vec<Flow>,
    grants: Grants,
    given: u32,
}

/// A list of grants with a fixed capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grants {
    places: Vec<Grant>,
    /// Entries at or after `len` are undefined.
    len: usize,
}

impl Grants {
    /// Creates a list that holds any batch.
    pub fn new(nodes: u32, slots: u32) -> Self {
        // A grant has at least one timeslot. Branch-free serving also writes one entry for each
        // flow of a chunk that finds none.
        Self { places: alloc::vec![Grant::default(); (nodes * slots) as usize + LOOK], len: 0 }
    }

    pub fn as_slice(&self) -> &[Grant] {
        &self.places[..self.len]
    }
}

/// Where the flows go that a batch has visited.
pub(super) struct Exits<'a> {
    /// Flows without a timeslot left in this batch, passed to the next batch. Final, as a taken
    /// timeslot is never freed.
    pub onward: &'a mut Flows,
    /// A subset of those that goes to the end of the list.
    pub behind: Behind<'a>,
    /// Flows that got timeslots and want more.
    pub again: &'a mut Flows,
    /// Drained flows; each holds, in place of its backlog, the length of `requeued` at that time.
    pub done: &'a mut Flows,
}

/// Which flows go to the end of the list instead of to their place.
pub(super) enum Behind<'a> {
    /// None. Flows that pass the filter and then find nothing follow those filtered with them.
    Nobody,
    /// Flows that passed the filter and then lost their timeslots to a flow just before them; the
    /// others keep their order.
    Lost(&'a mut Flows),
    /// Flows that yield: neither end has a timeslot left. Any other blocked flow has one end that
    /// may stay idle because the flow was visited too late.
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

    /// Swaps the list of grants with one that has been read.
    pub(super) fn exchange(&mut self, grants: &mut Grants) {
        core::mem::swap(&mut self.grants, grants);
    }

    /// Disables CPU-specific instructions.
    #[cfg(test)]
    pub(super) fn make_plain(&mut self) {
        self.bits = None;
        self.idle.make_plain();
    }

    pub(super) fn limit(&mut self, capacity: Capacity) {
        self.capacity = Some(capacity);
    }

    /// Starts a batch without grants.
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

    /// Visits `flows` in order and grants up to `share` timeslots to each.
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

    /// Visits flows chunk by chunk. At high load many flows find no timeslot, and a branch on that
    /// would be mispredicted. So a chunk is first filtered without branches, then the remaining
    /// flows are served, and last the drained ones are separated, again without branches. Each of
    /// the three loops has few enough live values for the CPU's registers.
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

    /// Grants up to `share` timeslots to each of `flows`, which passed the filter, and updates
    /// their backlogs. A flow whose timeslots were taken by one just before it gets an empty grant
    /// and goes to the lost flows, without a branch. Returns the number of flows served.
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

    /// Returns the first timeslot.
    pub fn start(&self) -> Timeslot {
        self.start
    }

    /// Returns the length in timeslots.
    pub fn slots(&self) -> u32 {
        self.all.count_ones()
    }

    /// Returns the grants. A pair may occur several times, each time with other timeslots.
    pub fn grants(&self) -> &[Grant] {
        self.grants.as_slice()
    }

    /// Returns the number of packets granted.
    pub fn given(&self) -> u32 {
        self.given
    }
}

/// Separates served flows into those that want more and those that are drained.
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
