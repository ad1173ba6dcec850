//! A batch: up to 64 timeslots that are allocated together.

use alloc::vec::Vec;

use onepipe_simd::Bits;

use super::capacity::{Capacity, Limit, Unlimited};
use super::free_slots::{CHUNK, FreeSlots};
use super::pick::{Pick, Portable};
use crate::config::NODES_MAX;
use crate::flow::{Flow, Flows};
use crate::timeslot::{Grant, Timeslot};

/// Number of flows after which the hit rate is evaluated again.
const SERVE_CHUNK: usize = 64;

/// The share of recently visited flows that found a timeslot, as a prediction for the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HitRate {
    /// Flows are served without filtering.
    NearlyAll,
    Some,
    /// Many flows have an end without free timeslots; those are filtered out first.
    Few,
}

impl HitRate {
    fn of(served: usize, all: usize) -> Self {
        debug_assert!(served <= all, "the flows served are some of all");
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
    free_slots: FreeSlots,
    capacity: Option<Capacity>,
    /// Bit deposit instructions, if the CPU has them. The grants are the same without.
    bits: Option<Bits>,
    /// Hit rate of the flows visited last.
    hit_rate: HitRate,
    /// Scratch space for the flows that are examined together.
    open: Vec<Flow>,
    grants: Grants,
    granted_slots: u32,
}

/// A list of grants with a fixed capacity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grants {
    items: Vec<Grant>,
    /// Entries at or after `len` are undefined.
    len: usize,
}

impl Grants {
    /// Creates a list that holds any batch.
    pub fn new(nodes: u32, slots: u32) -> Self {
        // A grant has at least one timeslot. Branch-free serving also writes one entry for each
        // flow of a chunk that finds none.
        Self { items: alloc::vec![Grant::default(); (nodes * slots) as usize + CHUNK], len: 0 }
    }

    /// Returns the grants of the batch.
    pub fn as_slice(&self) -> &[Grant] {
        &self.items[..self.len]
    }
}

/// Lists that receive the flows that a batch has visited.
pub(super) struct Outputs<'a> {
    /// Flows without a timeslot left in this batch, passed to the next batch. Final, as a taken
    /// timeslot is never freed.
    pub forwarded: &'a mut Flows,
    /// A subset of the forwarded flows that goes to the end of the list.
    pub tail: Tail<'a>,
    /// Flows that got timeslots and want more.
    pub requeued: &'a mut Flows,
    /// Drained flows; each holds, in place of its backlog, the length of `requeued` at that time.
    pub done: &'a mut Flows,
}

/// Which flows go to the end of the list instead of to their position.
pub(super) enum Tail<'a> {
    /// None. A flow that passes the filter and finds no timeslot follows those of its chunk that
    /// were filtered out.
    None,
    /// Flows that passed the filter and then lost their timeslots to a flow just before them; the
    /// others keep their order.
    LostRace(&'a mut Flows),
    /// Flows that yield: neither end has a timeslot left. Any other blocked flow has one end that
    /// may stay idle because the flow was visited too late.
    Yielded(&'a mut Flows),
}

impl Batch {
    pub(super) fn new(nodes: u32, slots: u32) -> Self {
        Self {
            start: Timeslot(0),
            all: u64::MAX >> (64 - slots),
            free_slots: FreeSlots::new(nodes as usize),
            capacity: None,
            bits: Bits::detect(),
            hit_rate: HitRate::NearlyAll,
            open: alloc::vec![Flow::default(); CHUNK],
            grants: Grants::new(nodes, slots),
            granted_slots: 0,
        }
    }

    /// Swaps the list of grants with one that has been read.
    pub(super) fn exchange(&mut self, grants: &mut Grants) {
        core::mem::swap(&mut self.grants, grants);
    }

    /// Disables CPU-specific instructions.
    #[cfg(test)]
    pub(super) fn disable_simd(&mut self) {
        self.bits = None;
        self.free_slots.disable_simd();
    }

    pub(super) fn limit(&mut self, capacity: Capacity) {
        self.capacity = Some(capacity);
    }

    /// Starts a batch without grants.
    pub(super) fn begin(&mut self, start: Timeslot) {
        self.start = start;
        self.free_slots.begin(self.all);
        if let Some(capacity) = &mut self.capacity {
            capacity.begin(self.all);
        }
        self.hit_rate = HitRate::NearlyAll;
        self.grants.len = 0;
        self.granted_slots = 0;
    }

    //= spec/arbiter.md#R10
    /// Visits `flows` in order and grants up to `share` timeslots to each.
    pub(super) fn visit(&mut self, flows: &[Flow], share: u32, outputs: &mut Outputs<'_>) {
        match self.capacity.take() {
            Some(mut capacity) => {
                self.visit_within(&mut capacity, flows, share, outputs);
                self.capacity = Some(capacity);
            }
            None => self.visit_within(&mut Unlimited, flows, share, outputs),
        }
    }

    fn visit_within(
        &mut self,
        limit: &mut impl Limit,
        flows: &[Flow],
        share: u32,
        outputs: &mut Outputs<'_>,
    ) {
        match self.bits {
            Some(bits) => self.visit_by(bits, limit, flows, share, outputs),
            None => self.visit_by(Portable, limit, flows, share, outputs),
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
        outputs: &mut Outputs<'_>,
    ) {
        let mut open = core::mem::take(&mut self.open);
        for flows in flows.chunks(CHUNK) {
            let mut rest = flows;
            while self.hit_rate == HitRate::NearlyAll && !rest.is_empty() {
                let (flows, tail) = rest.split_at(rest.len().min(SERVE_CHUNK));
                open[..flows.len()].copy_from_slice(flows);
                let served = self.serve(pick, limit, &mut open[..flows.len()], share, outputs);
                self.hit_rate = HitRate::of(served, flows.len());
                rest = tail;
            }
            if rest.is_empty() {
                continue;
            }
            let count = match &mut outputs.tail {
                Tail::Yielded(yielded) if self.hit_rate == HitRate::Few => {
                    self.free_slots.partition(rest, &mut open, outputs.forwarded, yielded)
                }
                _ => {
                    open[..rest.len()].copy_from_slice(rest);
                    rest.len()
                }
            };
            let mut served = 0;
            for flows in open[..count].chunks_mut(SERVE_CHUNK) {
                let count = self.free_slots.retain_open(limit, flows, outputs.forwarded);
                served += self.serve(pick, limit, &mut flows[..count], share, outputs);
            }
            self.hit_rate = HitRate::of(served, rest.len());
        }
        self.open = open;
    }

    //= spec/arbiter.md#R7
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
        outputs: &mut Outputs<'_>,
    ) -> usize {
        let lost_flows = match &mut outputs.tail {
            Tail::LostRace(lost_flows) => lost_flows,
            _ => &mut *outputs.forwarded,
        };
        let (from, to) = (&mut *self.free_slots.from, &mut *self.free_slots.to);
        let grants = &mut self.grants.items[self.grants.len..][..flows.len()];
        let lost_slots = lost_flows.spare_mut();
        let mut granted = 0;
        let mut lost_count = 0;
        let mut granted_slots = 0;
        for at in 0..flows.len() {
            let flow = flows[at];
            let (src, dst) = (flow.src(), flow.dst());
            let free = from[src] & to[dst] & limit.free(src, dst);
            lost_slots[lost_count] = flow;
            lost_count += usize::from(free == 0);
            let (slots, count) = pick.lowest(free, flow.backlog().min(share));
            from[src] ^= slots;
            to[dst] ^= slots;
            limit.take(src, dst, slots);
            grants[granted] = Grant { src: src as u16, dst: dst as u16, slots };
            flows[granted] = flow.served(count);
            granted += usize::from(free != 0);
            granted_slots += count;
        }
        debug_assert_eq!(granted + lost_count, flows.len(), "each flow is served, or has lost");
        lost_flows.grow(lost_count);
        self.grants.len += granted;
        self.granted_slots += granted_slots;
        if granted > 0 {
            self.free_slots.on_granted();
        }
        split_served(&flows[..granted], outputs);
        granted
    }

    //= spec/arbiter.md#R7
    /// Asserts that every timeslot is a matching, and that what is free was not granted.
    pub(super) fn check_invariants(&self) {
        let mut taken = [[0u64; NODES_MAX as usize]; 2];
        let mut granted = 0;
        for grant in self.grants() {
            assert_ne!(grant.src, grant.dst, "no endpoint sends to itself");
            assert_ne!(grant.slots, 0, "a grant has a timeslot");
            assert_eq!(grant.slots & !self.all, 0, "a grant is of this batch");
            granted += grant.slots.count_ones();
            for (end, taken) in [grant.src, grant.dst].into_iter().zip(&mut taken) {
                let taken = &mut taken[usize::from(end)];
                assert_eq!(*taken & grant.slots, 0, "{end} has one packet in a timeslot");
                *taken |= grant.slots;
            }
        }
        assert_eq!(granted, self.granted_slots, "the packets granted");
        self.free_slots.check_invariants(self.all, &taken);
    }

    //= spec/arbiter.md#R8
    /// Asserts that no timeslot is free at both ends of a flow that was not served.
    pub(super) fn check_maximal(&self, flows: &[Flow]) {
        for flow in flows {
            let (src, dst) = (flow.src(), flow.dst());
            let within = self.capacity.as_ref().map_or(u64::MAX, |limit| limit.free(src, dst));
            let free = self.free_slots.from[src] & self.free_slots.to[dst] & within;
            assert_eq!(free, 0, "{src} and {dst} have no free timeslot in common");
        }
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
    pub fn granted(&self) -> u32 {
        self.granted_slots
    }
}

/// Separates served flows into those that want more and those that are drained.
#[inline]
fn split_served(flows: &[Flow], outputs: &mut Outputs<'_>) {
    let before = outputs.requeued.len();
    let (requeued, done) = (outputs.requeued.spare_mut(), outputs.done.spare_mut());
    let (mut requeued_count, mut done_count) = (0, 0);
    for &flow in flows {
        requeued[requeued_count] = flow;
        done[done_count] = flow.drained_at(before + requeued_count);
        let is_done = flow.backlog() == 0;
        done_count += usize::from(is_done);
        requeued_count = requeued_count + 1 - usize::from(is_done);
    }
    outputs.requeued.grow(requeued_count);
    outputs.done.grow(done_count);
}
