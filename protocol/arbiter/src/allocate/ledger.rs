//! Who has asked for what.

use alloc::vec::Vec;

use crate::demand::{Flow, Flows};
use crate::pairs::{MORE_MAX, Pairs};
use crate::{Config, ConfigError, Policy, RequestError};

/// What is wanted, and by whom. A pair that wants something has one [`Flow`], which is here at
/// first and with the stages then; what it asks for meanwhile is counted here. A flow that was
/// given all comes back, and so many batches later ([`Config::return_batches`]) it goes out again
/// with what its pair had asked for when that one was closed, or is forgotten: always as many, so
/// that it changes nothing when it came back, and on which core it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: u32,
    pairs: Pairs,
    /// Who has come since the last batch, and before them who was held back: no more than
    /// `fresh_max`, that all may be `pairs_max`.
    fresh: Flows,
    fresh_max: usize,
    /// So many of these, the first ones, have gone to the stages.
    gone: usize,
    /// So many, these with them, came before the last batch was closed.
    held: usize,
    /// Flows that go out again.
    again: Flows,
    /// Flows that the stages may have at a time.
    flows_max: u32,
    /// They were late since the last batch was closed.
    is_late: bool,
    pairs_max: u32,
    /// Pairs whose flow is with the stages, or came back.
    handed: u32,
    /// Timeslots that are wanted and not known to be given, but for those of who has come since the
    /// last batch.
    wanted: u64,
    /// The batch that is closed next.
    number: u64,
    policy: Policy,
    /// The batch that flows which came back go out again with next: this one, or the one before.
    renewed: u64,
    /// The batch whose flows come back next.
    told: u64,
    /// Flows that came back, by batch.
    returned: Vec<Flows>,
    /// How many these are.
    returns: u32,
    /// The first batch of each endpoint since it began anew: flows of those before are no concern
    /// of anybody.
    since: Vec<u64>,
    /// The last of these.
    since_last: u64,
}

/// Flows of each endpoint that the stages have at a time at least, however late they are.
const FLOWS_MIN: u32 = 2;
/// Flows of all: with so few it is not they that take long.
const FLOWS_FEW: u32 = 512;
/// Batches in which they are given one more of each endpoint, as long as they are not late.
const RISE: u32 = 8;

impl Ledger {
    /// With nothing wanted. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let returned = (0..config.return_batches).map(|_| Flows::new(config.pairs_max));
        Ok(Self {
            nodes: config.nodes,
            pairs: Pairs::new(config.nodes),
            // With those that have gone and are not swept out yet.
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

    /// `src` wants `slots` more timeslots to send to `dst`.
    ///
    /// # Errors
    /// See [`RequestError`]; but for `TooMuch` nothing was taken.
    #[inline]
    pub fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        // As few steps as can be: many requests wait for the memory that their pair's count is in,
        // and the fewer steps each has, the more of them do so together.
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

    /// There is something special about it.
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

    /// Of a flow that comes now.
    fn stamp(&self) -> u8 {
        self.comes(self.number).unwrap_or(0)
    }

    /// The batch that a flow comes in, modulo 256, if it need be known of it.
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

    /// Forgets all that `src` wants. The stage of the batch that is closed next must be told, too:
    /// see [`crate::Stage::forget`]. Nobody is forgotten that there is not.
    pub fn forget(&mut self, src: u32) {
        let Some(since) = self.since.get_mut(src as usize) else { return };
        *since = self.number;
        self.since_last = self.number;
        if self.handed == 0 && self.kept() == 0 {
            // As when an arbiter takes over, and begins anew with everybody.
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

    /// The stages are late: batches take longer than they last. From the next one on they have a
    /// quarter fewer flows at a time, and who has come since is held back. When they are not late
    /// there may be a few more in each batch, and when nobody is held back any more, all.
    ///
    /// With fewer flows that wait a batch takes less time; and as each wants more when much is
    /// wanted hardly less is given.
    pub fn on_late(&mut self) {
        self.is_late = true;
    }

    /// Whether it can be told anything more: not between [`Ledger::close`] and [`Ledger::renew`],
    /// as what is asked for then is not to count in that batch.
    pub fn is_ready(&self) -> bool {
        self.renewed == self.number
    }

    /// Closes a batch: all that was asked for until now counts in it. Hands its new flows to
    /// `hand`, and answers what that does.
    ///
    /// # Panics
    /// When it is not [`Ledger::is_ready`].
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
        // All at once, or half of them, so that none is moved often.
        if self.gone >= self.fresh.len() / 2 {
            self.sweep_out();
        }
        self.make_room();
        handed
    }

    /// Whether flows that were given all do not come back, but are renewed by the stage.
    pub(super) fn is_at_hand(&self) -> bool {
        self.returned.is_empty()
    }

    /// The flows in `done` were given all that they wanted when they set out. Those that have asked
    /// for more since go to where they would be in `again`; the others are forgotten. `renewed` is
    /// for the work between, and empty before and after.
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

    /// Flows that have not gone to the stages.
    fn kept(&self) -> usize {
        self.fresh.len() - self.gone
    }

    /// Makes room where those were that have gone.
    fn sweep_out(&mut self) {
        self.fresh.remove_first(self.gone);
        self.held -= self.gone;
        self.gone = 0;
    }

    /// The last part of the batch closed last, once those flows have come back whose turn it is:
    /// they go out again, if their pairs had asked for more, and the others are forgotten. Hands
    /// them to `hand`, and answers what that does; `None` if they are not back, or have gone.
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

    /// A batch has given out so many timeslots, and dropped so many that were wanted by who has
    /// begun anew; the flows in `dry` have got all that they wanted when they set out. Takes these;
    /// batches are told in order.
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

    /// The batch that is closed next.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Timeslots that are wanted and not known to be given.
    pub fn wanted(&self) -> u64 {
        let fresh = &self.fresh.as_slice()[self.held..];
        self.wanted + fresh.iter().map(|flow| u64::from(flow.backlog())).sum::<u64>()
    }

    /// Pairs that wait for timeslots, but for those that have asked for more since they were given
    /// all.
    pub fn pairs(&self) -> u32 {
        self.handed - self.returns + self.kept() as u32
    }
}
