//! Who has asked for what.

use alloc::vec::Vec;

use crate::demand::{Flow, Flows};
use crate::pairs::{MORE_MAX, Pairs};
use crate::{Config, ConfigError, RequestError};

/// What is wanted, and by whom. A pair that wants something has one [`Flow`], which is here at
/// first and with the stages then; what it asks for meanwhile is counted here. A flow that was
/// given all comes back, and so many batches later ([`Config::return_batches`]) it goes out again
/// with what its pair had asked for when that one was closed, or is forgotten: always as many, so
/// that it changes nothing when it came back, and on which core it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: u32,
    pairs: Pairs,
    /// Who has come since the last batch: no more than `fresh_max`, that all may be `pairs_max`.
    fresh: Flows,
    fresh_max: usize,
    pairs_max: u32,
    /// Pairs whose flow is with the stages, or came back.
    handed: u32,
    /// Timeslots that are wanted and not known to be given, but for those of `fresh`.
    wanted: u64,
    /// The batch that is closed next.
    number: u64,
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
            fresh: Flows::new(config.pairs_max),
            fresh_max: config.pairs_max as usize,
            pairs_max: config.pairs_max,
            handed: 0,
            wanted: 0,
            number: 0,
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
        if is_plain && has_room && self.pairs.begin(src as usize, dst as usize) {
            self.fresh.push(Flow::new(src as u16, dst as u16, slots, self.number as u8));
            return Ok(());
        }
        self.request_otherwise(src, dst, slots)
    }

    /// It is not a pair's first, or there is something special about it.
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
                return Err(RequestError::Full(self.handed + self.fresh.len() as u32));
            }
            None => {
                let taken = slots.min(MORE_MAX);
                self.pairs.begin(from, to);
                self.fresh.push(Flow::new(src as u16, dst as u16, taken, self.number as u8));
                taken
            }
        };
        match slots - taken {
            0 => Ok(()),
            refused => Err(RequestError::TooMuch { refused }),
        }
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
        if self.handed == 0 && self.fresh.is_empty() {
            // As when an arbiter takes over, and begins anew with everybody.
            return;
        }
        let (flows, more) = self.pairs.forget(src as usize);
        let is_other = |flow: Flow| flow.src() != src as usize;
        let fresh = self.fresh.len();
        self.fresh.retain(is_other);
        self.handed -= flows - (fresh - self.fresh.len()) as u32;
        for returned in &mut self.returned {
            returned.retain(is_other);
        }
        self.returns = self.returned.iter().map(|returned| returned.len() as u32).sum();
        self.wanted -= more;
        self.make_room();
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
        self.hand_over(hand)
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
        self.pairs.renew(done, self.number.wrapping_sub(1) as u8, renewed);
        self.handed -= (dry - done.len()) as u32;
        again.insert(done.as_slice(), renewed.as_slice());
        done.clear();
        renewed.clear();
    }

    fn hand_over<R>(&mut self, hand: impl FnOnce(&[Flow]) -> R) -> R {
        let handed = hand(self.fresh.as_slice());
        self.wanted = self.wanted();
        self.handed += self.fresh.len() as u32;
        self.fresh.clear();
        self.make_room();
        handed
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
        let dry = &mut self.returned[(now % returns) as usize];
        let (all, others) = (dry.len() as u32, self.fresh.len());
        self.pairs.renew(dry, now as u8, &mut self.fresh);
        dry.clear();
        let more = self.fresh.as_slice()[others..].iter().map(|flow| u64::from(flow.backlog()));
        self.wanted -= more.sum::<u64>();
        self.handed -= all;
        self.returns -= all;
        Some(self.hand_over(hand))
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
        self.fresh_max = (self.pairs_max - self.handed) as usize;
    }

    /// The batch that is closed next.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Timeslots that are wanted and not known to be given.
    pub fn wanted(&self) -> u64 {
        let fresh = self.fresh.as_slice().iter().map(|flow| u64::from(flow.backlog()));
        self.wanted + fresh.sum::<u64>()
    }

    /// Pairs that wait for timeslots, but for those that have asked for more since they were given
    /// all.
    pub fn pairs(&self) -> u32 {
        self.handed - self.returns + self.fresh.len() as u32
    }
}
