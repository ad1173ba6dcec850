//! The demand of all pairs.

use alloc::vec::Vec;

use crate::flow::{Flow, Flows};
use crate::pairs::{Pairs, QUEUED_MAX};
use crate::{Config, ConfigError, Policy, RequestError};

//= spec/arbiter.md#R9
/// The demand of all pairs. A pair with demand has one [`Flow`], which waits here first and then
/// moves through the stages; further requests of the pair are queued here meanwhile. A drained
/// flow comes back, and [`Config::renew_after_batches`] batches later it is either renewed with
/// what its pair had queued when that batch was closed, or removed. The delay is always the same
/// number of batches, so that the outcome does not depend on when, or from which core, the flow
/// came back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DemandTable {
    nodes: u32,
    pairs: Pairs,
    /// Flows that have not been sent to the stages, in order of arrival, behind `handed_new` ones
    /// that have. At most `new_flows_max`, so that all flows fit `pairs_max`.
    new_flows: Flows,
    new_flows_max: usize,
    /// Number of leading entries of the list that were sent to the stages.
    handed_new: usize,
    /// Number of leading entries, including those, that arrived before the last batch was closed.
    seen_new: usize,
    /// Scratch space for renewed flows.
    renewals: Flows,
    /// Maximum number of flows in the stages; lowered on overload.
    flows_max: u32,
    /// An overload was reported since the last batch was closed.
    is_overloaded: bool,
    pairs_max: u32,
    /// Pairs whose flow is in the stages, or came back and was not renewed or removed yet.
    active: u32,
    /// Timeslots requested and not known to be granted, without those of flows that arrived since
    /// the last batch was closed.
    wanted: u64,
    /// The batch that is closed next.
    number: u64,
    policy: Policy,
    /// The batch whose returned flows are renewed next: the one closed next, or the one before.
    renewed: u64,
    /// The batch whose result is reported next.
    reported: u64,
    /// Drained flows that came back, by batch.
    returned: Vec<Flows>,
    /// Total number of flows in `returned`.
    returned_count: u32,
    /// For each endpoint the first batch since its demand was reset; results of earlier batches are
    /// ignored for it.
    reset_at: Vec<u64>,
    /// The highest entry of `reset_at`.
    last_reset: u64,
}

/// Flows per endpoint that the stages may always have, whatever the overload.
const FLOWS_MIN: u32 = 2;
/// Flows that the stages may always have in total: so few cannot be the cause of an overload.
const FLOWS_ALWAYS: u32 = 512;
/// Batches without overload in which the limit rises by one flow per endpoint.
const RISE_BATCHES: u32 = 8;

impl DemandTable {
    /// Creates an empty table. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let returned = (0..config.renew_after_batches).map(|_| Flows::new(config.pairs_max));
        Ok(Self {
            nodes: config.nodes,
            pairs: Pairs::new(config.nodes),
            // Includes those sent to the stages and not compacted yet.
            new_flows: Flows::new(2 * config.pairs_max),
            handed_new: 0,
            seen_new: 0,
            renewals: Flows::new(config.pairs_max),
            flows_max: u32::MAX,
            is_overloaded: false,
            new_flows_max: config.pairs_max as usize,
            pairs_max: config.pairs_max,
            active: 0,
            wanted: 0,
            number: 0,
            policy: config.policy,
            renewed: 0,
            reported: 0,
            returned: returned.collect(),
            returned_count: 0,
            reset_at: alloc::vec![0; config.nodes as usize],
            last_reset: 0,
        })
    }

    /// Asserts what no request can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        assert!(self.handed_new <= self.new_flows.len(), "flows were sent from the list");
        assert!(self.seen_new <= self.new_flows.len(), "a batch counts flows of the list");
        assert!(self.handed_new <= self.seen_new, "flows are counted before they are sent");
        assert!(self.active + self.waiting_new() as u32 <= self.pairs_max, "pairs are bounded");
        let most = (self.pairs_max - self.active) as usize + self.handed_new;
        assert_eq!(self.new_flows_max, most, "new flows get what is left");
        let returned: usize = self.returned.iter().map(Flows::len).sum();
        assert_eq!(returned, self.returned_count as usize, "the flows that came back are counted");
        assert!(self.returned_count <= self.active, "a flow that came back was active");
        assert!(self.reported <= self.number && self.renewed <= self.number, "in the past");
        assert!(self.number - self.renewed <= 1, "a batch is complete before the next is closed");
        let last_reset = self.reset_at.iter().max().copied().unwrap_or_default();
        assert_eq!(self.last_reset, last_reset, "the last reset is a maximum");
        assert!(last_reset <= self.number, "a reset was before the batch closed next");
        assert!(self.flows_max >= FLOWS_ALWAYS, "a few flows are never held back");
        assert!(self.renewals.is_empty(), "renewed flows were sent");
        let (active, queued) = self.pairs.count();
        let flows = self.active as usize + self.waiting_new();
        assert_eq!(active, flows, "each active pair has one flow");
        assert!(self.wanted() >= queued + self.new_backlog(), "queued demand is wanted");
        for flow in &self.new_flows.as_slice()[self.handed_new..] {
            flow.check_invariants(self.nodes);
        }
    }

    /// Returns the flows that are in the stages, and what their pairs have queued.
    pub(super) fn in_stages(&self) -> (u32, u64) {
        (self.active - self.returned_count, self.pairs.count().1)
    }

    /// Returns the backlog of the flows that wait to be sent to the stages.
    pub(super) fn new_backlog(&self) -> u64 {
        let new_flows = self.new_flows.as_slice()[self.handed_new..].iter();
        new_flows.map(|flow| u64::from(flow.backlog())).sum()
    }

    /// Adds `slots` timeslots from `src` to `dst` to the demand.
    ///
    /// # Errors
    /// See [`RequestError`]; except for `TooMuch`, nothing was taken.
    #[inline]
    pub fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        // The fast path is as short as possible: requests are bound by the cache misses of their
        // counts, and the shorter each is, the more of these misses overlap.
        let is_known = src < self.nodes && dst < self.nodes && src != dst;
        let is_plain = is_known && (1..=QUEUED_MAX).contains(&slots);
        let has_space = self.new_flows.len() < self.new_flows_max;
        if is_plain && has_space {
            if self.pairs.activate(src as usize, dst as usize) {
                self.new_flows.push(Flow::new(src as u16, dst as u16, slots, self.stamp()));
                return Ok(());
            }
            if self.pairs.request_fast(src as usize, dst as usize, slots) {
                self.wanted += u64::from(slots);
                return Ok(());
            }
        }
        self.request_slow(src, dst, slots)
    }

    //= spec/arbiter.md#R3
    /// Handles requests that the fast path does not take.
    #[inline(never)]
    fn request_slow(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        self.check(src, dst)?;
        let (from, to) = (src as usize, dst as usize);
        let taken = match self.pairs.request(from, to, slots) {
            Some(taken) => {
                self.wanted += u64::from(taken);
                taken
            }
            None if slots == 0 => 0,
            None if self.new_flows.len() >= self.new_flows_max => {
                return Err(RequestError::Full(self.active + self.waiting_new() as u32));
            }
            None => {
                let taken = slots.min(QUEUED_MAX);
                self.pairs.activate(from, to);
                self.new_flows.push(Flow::new(src as u16, dst as u16, taken, self.stamp()));
                taken
            }
        };
        match slots - taken {
            0 => Ok(()),
            refused => Err(RequestError::TooMuch { refused }),
        }
    }

    /// Returns the stamp of a flow that arrives now.
    fn stamp(&self) -> u8 {
        self.arrival(self.number).unwrap_or(0)
    }

    /// Returns batch `number` modulo 256 if the policy needs the time of arrival.
    fn arrival(&self, number: u64) -> Option<u8> {
        (self.policy == Policy::ShortestFirst).then_some(number as u8)
    }

    fn check(&self, src: u32, dst: u32) -> Result<(), RequestError> {
        let nodes = self.nodes;
        if let Some(node) = [src, dst].into_iter().find(|node| *node >= nodes) {
            return Err(RequestError::UnknownNode { node, nodes });
        }
        if src == dst {
            return Err(RequestError::ToItself(src));
        }
        Ok(())
    }

    /// Drops all demand of `src`. The stage of the batch that is closed next must drop it too: see
    /// [`crate::Stage::forget`]. Unknown endpoints are ignored.
    pub fn forget(&mut self, src: u32) {
        let Some(reset_at) = self.reset_at.get_mut(src as usize) else { return };
        *reset_at = self.number;
        self.last_reset = self.number;
        if self.active == 0 && self.waiting_new() == 0 {
            // The common case of a takeover, which resets all endpoints at once.
            return;
        }
        let (flows, more) = self.pairs.forget(src as usize);
        let is_other = |flow: Flow| flow.src() != src as usize;
        self.compact();
        let seen_new = &self.new_flows.as_slice()[..self.seen_new];
        let seen_new = seen_new.iter().filter(|flow| !is_other(**flow));
        let (count, slots) = seen_new
            .fold((0, 0), |(count, slots), flow| (count + 1, slots + u64::from(flow.backlog())));
        let new_flows = self.new_flows.len();
        self.new_flows.retain(is_other);
        self.seen_new -= count;
        self.wanted -= slots;
        self.active -= flows - (new_flows - self.new_flows.len()) as u32;
        for returned in &mut self.returned {
            returned.retain(is_other);
        }
        self.returned_count = self.returned.iter().map(|returned| returned.len() as u32).sum();
        self.wanted -= more;
        self.update_capacity();
    }

    //= spec/arbiter.md#R14
    /// Reports that batches take longer to allocate than they last. From the next batch on the
    /// stages get a quarter fewer flows at a time, and new flows are held back. Without further
    /// overload the limit rises a little with each batch, and is lifted when no flow is held back.
    ///
    /// Fewer waiting flows make a batch cheaper. Hardly less is granted, as each flow has more
    /// backlog at high load.
    pub fn on_overload(&mut self) {
        self.is_overloaded = true;
    }

    /// Whether requests may be added: not between [`DemandTable::close`] and
    /// [`DemandTable::renew`], as they must not count in that batch.
    pub fn is_ready(&self) -> bool {
        self.renewed == self.number
    }

    /// Closes a batch, which counts all requests so far. Passes its new flows to `send` and returns
    /// the result of that.
    ///
    /// # Panics
    /// When the table is not ready: see [`DemandTable::is_ready`].
    pub fn close<R>(&mut self, send: impl FnOnce(&[Flow]) -> R) -> R {
        assert!(self.is_ready(), "the previous batch is not complete");
        self.number += 1;
        if self.renews_immediately() {
            self.renewed = self.number;
        }
        self.wanted = self.wanted();
        if core::mem::take(&mut self.is_overloaded) {
            let limit = self.flows_max.min(self.active);
            self.flows_max = (limit - limit / 4).max(FLOWS_ALWAYS).max(self.nodes * FLOWS_MIN);
        } else {
            self.flows_max = self.flows_max.saturating_add(self.nodes.div_ceil(RISE_BATCHES));
        }
        debug_assert!(self.number - self.reported <= self.returned.len() as u64 + 1, "in order");
        let count = self.waiting_new().min(self.flows_max.saturating_sub(self.active) as usize);
        if count == self.waiting_new() {
            self.flows_max = u32::MAX;
        }
        let active = send(&self.new_flows.as_slice()[self.handed_new..][..count]);
        self.handed_new += count;
        self.active += count as u32;
        self.seen_new = self.new_flows.len();
        // Compacts when at least half of the list is gone, so that each flow moves rarely.
        if self.handed_new >= self.new_flows.len() / 2 {
            self.compact();
        }
        self.update_capacity();
        active
    }

    /// Whether drained flows are renewed within their batch instead of coming back.
    pub(super) fn renews_immediately(&self) -> bool {
        self.returned.is_empty()
    }

    /// Renews the drained flows of `done` whose pairs have queued more, and inserts them into
    /// `renewals` at the recorded positions; the other pairs become inactive. `renewed` is scratch
    /// space, empty before and after.
    pub(super) fn renew_immediately(
        &mut self,
        done: &mut Flows,
        renewals: &mut Flows,
        renewed: &mut Flows,
    ) {
        let drained = done.len();
        self.pairs.renew(done, self.arrival(self.number.wrapping_sub(1)), renewed);
        self.active -= (drained - done.len()) as u32;
        renewals.insert(done.as_slice(), renewed.as_slice());
        done.clear();
        renewed.clear();
    }

    /// Returns the number of flows not sent to the stages.
    fn waiting_new(&self) -> usize {
        self.new_flows.len() - self.handed_new
    }

    /// Removes the flows that were sent to the stages from the list.
    fn compact(&mut self) {
        self.new_flows.remove_first(self.handed_new);
        self.seen_new -= self.handed_new;
        self.handed_new = 0;
    }

    /// Completes the batch closed last, once the flows due for renewal have come back: renews
    /// those whose pairs have queued more and removes the others. Passes the renewed flows to
    /// `send` and returns the result; `None` if they are not back, or the batch is complete.
    pub fn renew<R>(&mut self, send: impl FnOnce(&[Flow]) -> R) -> Option<R> {
        let returned_count = self.returned.len() as u64;
        if self.is_ready() || self.reported + returned_count <= self.renewed {
            return None;
        }
        let now = self.renewed;
        self.renewed += 1;
        let arrival = self.arrival(now);
        let drained = &mut self.returned[(now % returned_count) as usize];
        let all = drained.len() as u32;
        self.pairs.renew(drained, arrival, &mut self.renewals);
        drained.clear();
        self.active -= all;
        self.returned_count -= all;
        let active = send(self.renewals.as_slice());
        self.active += self.renewals.len() as u32;
        self.renewals.clear();
        self.update_capacity();
        Some(active)
    }

    /// Accounts for the result of a batch: `granted` timeslots were granted, `dropped` belonged to
    /// endpoints that were reset. Takes the flows in `drained`. Results are reported in the order
    /// of the batches.
    pub fn on_batch(&mut self, granted: u32, dropped: u64, drained: &mut Flows) {
        debug_assert!(self.reported < self.number, "the batch was closed");
        debug_assert!(self.wanted >= u64::from(granted) + dropped, "what was granted was wanted");
        self.wanted -= u64::from(granted) + dropped;
        let returned_count = self.returned.len().max(1) as u64;
        if let Some(returned) = self.returned.get_mut((self.reported % returned_count) as usize) {
            debug_assert!(returned.is_empty(), "the previous flows were renewed");
            core::mem::swap(returned, drained);
            if self.last_reset > self.reported {
                returned.retain(|flow| self.reset_at[flow.src()] <= self.reported);
            }
            self.returned_count += returned.len() as u32;
        }
        self.reported += 1;
        self.update_capacity();
    }

    fn update_capacity(&mut self) {
        self.new_flows_max = (self.pairs_max - self.active) as usize + self.handed_new;
    }

    /// Returns the number of the batch that is closed next.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the timeslots requested and not known to be granted.
    pub fn wanted(&self) -> u64 {
        let new_flows = &self.new_flows.as_slice()[self.seen_new..];
        self.wanted + new_flows.iter().map(|flow| u64::from(flow.backlog())).sum::<u64>()
    }

    /// Returns the number of pairs that wait for timeslots, without those whose flow came back and
    /// is not renewed yet.
    pub fn pairs(&self) -> u32 {
        self.active - self.returned_count + self.waiting_new() as u32
    }
}
