//! The demand of all pairs.

use alloc::vec::Vec;

use crate::demand::{Flow, Flows};
use crate::pairs::{MORE_MAX, Pairs};
use crate::{Config, ConfigError, Policy, RequestError};

/// The demand of all pairs. A pair with demand has one [`Flow`], which waits here first and then
/// moves through the stages; further requests of the pair are queued here meanwhile. A drained
/// flow comes back, and [`Config::return_batches`] batches later it is either renewed with what its
/// pair had queued when that batch was closed, or removed. The delay is always the same number of
/// batches, so that the outcome does not depend on when the flow came back, nor from which core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: u32,
    pairs: Pairs,
    /// Flows that have not been sent to the stages, in order of arrival, behind `handed_new` ones
    /// that have. At most `fresh_max`, so that all flows fit `pairs_max`.
    fresh: Flows,
    fresh_max: usize,
    /// Number of leading entries of the list that were sent to the stages.
    gone: usize,
    /// Number of leading entries, including those, that arrived before the last batch was closed.
    held: usize,
    /// Scratch space for renewed flows.
    again: Flows,
    /// Maximum number of flows in the stages; lowered on overload.
    flows_max: u32,
    /// An overload was reported since the last batch was closed.
    is_late: bool,
    pairs_max: u32,
    /// Pairs whose flow is in the stages, or came back and was not renewed or removed yet.
    handed: u32,
    /// Timeslots requested and not known to be granted, without those of flows that arrived since
    /// the last batch was closed.
    wanted: u64,
    /// The batch that is closed next.
    number: u64,
    policy: Policy,
    /// The batch whose returned flows are renewed next: the one closed next, or the one before.
    renewed: u64,
    /// The batch whose result is reported next.
    told: u64,
    /// Drained flows that came back, by batch.
    returned: Vec<Flows>,
    /// Total number of these.
    returns: u32,
    /// For each endpoint the first batch since its demand was reset; results of earlier batches are
    /// ignored for it.
    since: Vec<u64>,
    /// The highest of those.
    since_last: u64,
}

/// Flows per endpoint that the stages may always have, whatever the overload.
const FLOWS_MIN: u32 = 2;
/// Flows that the stages may always have in total: so few cannot be the cause of an overload.
const FLOWS_FEW: u32 = 512;
/// Batches without overload in which the limit rises by one flow per endpoint.
const RISE: u32 = 8;

impl Ledger {
    /// Creates an empty table. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let returned = (0..config.return_batches).map(|_| Flows::new(config.pairs_max));
        Ok(Self {
            nodes: config.nodes,
            pairs: Pairs::new(config.nodes),
            // Includes those sent to the stages and not compacted yet.
            fresh: Flows::new(2 * config.pairs_max),
            gone: 0,
            held: 0,
            again: Flows::new(config.pairs_max),
            flows_max: u32::MAX,
            is_late: false,
            fresh_max: config.pairs_max as usize,
            pairs_max: config.pairs_max,
            handed: 0,
            wanted: 0,
            number: 0,
            policy: config.policy,
            renewed: 0,
            told: 0,
            returned: returned.collect(),
            returns: 0,
            since: alloc::vec![0; config.nodes as usize],
            since_last: 0,
        })
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
        let is_plain = is_known && (1..=MORE_MAX).contains(&slots);
        let has_room = self.fresh.len() < self.fresh_max;
        if is_plain && has_room {
            if self.pairs.begin(src as usize, dst as usize) {
                self.fresh.push(Flow::new(src as u16, dst as u16, slots, self.stamp()));
                return Ok(());
            }
            if self.pairs.ask_plainly(src as usize, dst as usize, slots) {
                self.wanted += u64::from(slots);
                return Ok(());
            }
        }
        self.request_otherwise(src, dst, slots)
    }

    /// Handles requests that the fast path does not take.
    #[inline(never)]
    fn request_otherwise(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        self.check(src, dst)?;
        let (from, to) = (src as usize, dst as usize);
        let taken = match self.pairs.ask(from, to, slots) {
            Some(taken) => {
                self.wanted += u64::from(taken);
                taken
            }
            None if slots == 0 => 0,
            None if self.fresh.len() >= self.fresh_max => {
                return Err(RequestError::Full(self.handed + self.kept() as u32));
            }
            None => {
                let taken = slots.min(MORE_MAX);
                self.pairs.begin(from, to);
                self.fresh.push(Flow::new(src as u16, dst as u16, taken, self.stamp()));
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
        self.comes(self.number).unwrap_or(0)
    }

    /// Returns batch `number` modulo 256 if the policy needs the time of arrival.
    fn comes(&self, number: u64) -> Option<u8> {
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
        let Some(since) = self.since.get_mut(src as usize) else { return };
        *since = self.number;
        self.since_last = self.number;
        if self.handed == 0 && self.kept() == 0 {
            // The common case of a takeover, which resets all endpoints at once.
            return;
        }
        let (flows, more) = self.pairs.forget(src as usize);
        let is_other = |flow: Flow| flow.src() != src as usize;
        self.sweep_out();
        let held = &self.fresh.as_slice()[..self.held];
        let held = held.iter().filter(|flow| !is_other(**flow));
        let (count, slots) = held
            .fold((0, 0), |(count, slots), flow| (count + 1, slots + u64::from(flow.backlog())));
        let fresh = self.fresh.len();
        self.fresh.retain(is_other);
        self.held -= count;
        self.wanted -= slots;
        self.handed -= flows - (fresh - self.fresh.len()) as u32;
        for returned in &mut self.returned {
            returned.retain(is_other);
        }
        self.returns = self.returned.iter().map(|returned| returned.len() as u32).sum();
        self.wanted -= more;
        self.make_room();
    }

    /// Reports that batches take longer to allocate than they last. From the next batch on the
    /// stages get a quarter fewer flows at a time, and new flows are held back. Without further
    /// overload the limit rises a little with each batch, and is lifted when no flow is held back.
    ///
    /// Fewer waiting flows make a batch cheaper. Hardly less is granted, as each flow has more
    /// backlog at high load.
    pub fn on_late(&mut self) {
        self.is_late = true;
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
    pub fn close<R>(&mut self, hand: impl FnOnce(&[Flow]) -> R) -> R {
        assert!(self.is_ready(), "the batch before is not whole");
        self.number += 1;
        if self.is_at_hand() {
            self.renewed = self.number;
        }
        self.wanted = self.wanted();
        if core::mem::take(&mut self.is_late) {
            let most = self.flows_max.min(self.handed);
            self.flows_max = (most - most / 4).max(FLOWS_FEW).max(self.nodes * FLOWS_MIN);
        } else {
            self.flows_max = self.flows_max.saturating_add(self.nodes.div_ceil(RISE));
        }
        let goes = self.kept().min(self.flows_max.saturating_sub(self.handed) as usize);
        if goes == self.kept() {
            self.flows_max = u32::MAX;
        }
        let handed = hand(&self.fresh.as_slice()[self.gone..][..goes]);
        self.gone += goes;
        self.handed += goes as u32;
        self.held = self.fresh.len();
        // Compacts when at least half of the list is gone, so that each flow moves rarely.
        if self.gone >= self.fresh.len() / 2 {
            self.sweep_out();
        }
        self.make_room();
        handed
    }

    /// Whether drained flows are renewed within their batch instead of coming back.
    pub(super) fn is_at_hand(&self) -> bool {
        self.returned.is_empty()
    }

    /// Renews the drained flows of `done` whose pairs have queued more, and inserts them into
    /// `again` at the recorded positions; the other pairs become inactive. `renewed` is scratch
    /// space, empty before and after.
    pub(super) fn renew_at_once(
        &mut self,
        done: &mut Flows,
        again: &mut Flows,
        renewed: &mut Flows,
    ) {
        let dry = done.len();
        self.pairs.renew(done, self.comes(self.number.wrapping_sub(1)), renewed);
        self.handed -= (dry - done.len()) as u32;
        again.insert(done.as_slice(), renewed.as_slice());
        done.clear();
        renewed.clear();
    }

    /// Returns the number of flows not sent to the stages.
    fn kept(&self) -> usize {
        self.fresh.len() - self.gone
    }

    /// Removes the flows that were sent to the stages from the list.
    fn sweep_out(&mut self) {
        self.fresh.remove_first(self.gone);
        self.held -= self.gone;
        self.gone = 0;
    }

    /// Completes the batch closed last, once the flows due for renewal have come back: renews
    /// those whose pairs have queued more and removes the others. Passes the renewed flows to
    /// `send` and returns the result; `None` if they are not back, or the batch is complete.
    pub fn renew<R>(&mut self, hand: impl FnOnce(&[Flow]) -> R) -> Option<R> {
        let returns = self.returned.len() as u64;
        if self.is_ready() || self.told + returns <= self.renewed {
            return None;
        }
        let now = self.renewed;
        self.renewed += 1;
        let comes = self.comes(now);
        let dry = &mut self.returned[(now % returns) as usize];
        let all = dry.len() as u32;
        self.pairs.renew(dry, comes, &mut self.again);
        dry.clear();
        self.handed -= all;
        self.returns -= all;
        let handed = hand(self.again.as_slice());
        self.handed += self.again.len() as u32;
        self.again.clear();
        self.make_room();
        Some(handed)
    }

    /// Accounts for the result of a batch: `given` timeslots were granted, `dropped` belonged to
    /// endpoints that were reset, and the flows in `dry` are drained. Takes those flows. Results
    /// are reported in the order of the batches.
    pub fn on_batch(&mut self, given: u32, dropped: u64, dry: &mut Flows) {
        self.wanted -= u64::from(given) + dropped;
        let returns = self.returned.len().max(1) as u64;
        if let Some(returned) = self.returned.get_mut((self.told % returns) as usize) {
            debug_assert!(returned.is_empty(), "those before have gone out again");
            core::mem::swap(returned, dry);
            if self.since_last > self.told {
                returned.retain(|flow| self.since[flow.src()] <= self.told);
            }
            self.returns += returned.len() as u32;
        }
        self.told += 1;
        self.make_room();
    }

    fn make_room(&mut self) {
        self.fresh_max = (self.pairs_max - self.handed) as usize + self.gone;
    }

    /// Returns the number of the batch that is closed next.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the timeslots requested and not known to be granted.
    pub fn wanted(&self) -> u64 {
        let fresh = &self.fresh.as_slice()[self.held..];
        self.wanted + fresh.iter().map(|flow| u64::from(flow.backlog())).sum::<u64>()
    }

    /// Returns the number of pairs that wait for timeslots, without those whose flow came back and
    /// is not renewed yet.
    pub fn pairs(&self) -> u32 {
        self.handed - self.returns + self.kept() as u32
    }
}
