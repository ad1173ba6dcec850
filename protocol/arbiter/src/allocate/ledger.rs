//! Who has asked for what.

use crate::demand::{Flow, Flows};
use crate::pairs::{MORE_MAX, Pairs};
use crate::{Config, ConfigError, RequestError};

/// What is wanted, and by whom. A pair that wants something has one [`Flow`], which is here at
/// first and with the stages then; what it asks for meanwhile is counted here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: u32,
    pairs: Pairs,
    /// Who has come since the last batch: no more than `fresh_max`, that all may be `pairs_max`.
    fresh: Flows,
    fresh_max: usize,
    pairs_max: u32,
    /// Pairs whose flow is with the stages.
    handed: u32,
    /// Timeslots that are wanted and not yet given, but for those of `fresh`.
    wanted: u64,
    /// The batch under way, or the next one: its number modulo 256.
    now: u8,
}

impl Ledger {
    /// With nothing wanted. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            nodes: config.nodes,
            pairs: Pairs::new(config.nodes),
            fresh: Flows::new(config.pairs_max),
            fresh_max: config.pairs_max as usize,
            pairs_max: config.pairs_max,
            handed: 0,
            wanted: 0,
            now: 0,
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
            self.fresh.push(Flow::new(src as u16, dst as u16, slots, self.now));
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
                return Err(RequestError::Full(self.pairs()));
            }
            None => {
                let taken = slots.min(MORE_MAX);
                self.pairs.begin(from, to);
                self.fresh.push(Flow::new(src as u16, dst as u16, taken, self.now));
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

    /// Forgets what `src` has come with since the last batch, and what it has in `waiting`.
    pub(crate) fn forget(&mut self, src: u32, waiting: &mut Flows) {
        let Self { pairs, wanted, .. } = self;
        let mut is_kept = |flow: Flow| {
            let is_gone = flow.src() == src as usize;
            let more = if is_gone { pairs.take(flow.src(), flow.dst()) } else { 0 };
            if more > 0 {
                pairs.take(flow.src(), flow.dst());
                *wanted -= u64::from(more);
            }
            !is_gone
        };
        self.fresh.retain(&mut is_kept);
        let (mut handed, mut backlog) = (0, 0);
        waiting.retain(|flow| {
            let is_kept = is_kept(flow);
            handed += u32::from(!is_kept);
            backlog += if is_kept { 0 } else { u64::from(flow.backlog()) };
            is_kept
        });
        self.handed -= handed;
        self.wanted -= backlog;
        self.make_room();
    }

    /// Who has come since the last batch goes `to` a stage.
    pub(super) fn hand_over(&mut self, to: &mut Flows) {
        to.extend(self.fresh.as_slice());
        (self.wanted, self.handed) = (self.wanted(), self.pairs());
        self.fresh.clear();
    }

    /// The flows in `done` were given all that they wanted when they set out. Those that have asked
    /// for more since go to where they would be in `again`; the others are forgotten. `renewed` is
    /// for the work between, and empty before and after.
    pub(super) fn renew(&mut self, done: &mut Flows, again: &mut Flows, renewed: &mut Flows) {
        let dry = done.len();
        self.pairs.renew(done, self.now, renewed);
        self.handed -= (dry - done.len()) as u32;
        again.insert(done.as_slice(), renewed.as_slice());
        done.clear();
        renewed.clear();
    }

    /// A batch is over that has given so many timeslots, and whoever came before it is with the
    /// stages.
    pub(super) fn close(&mut self, given: u32) {
        self.wanted -= u64::from(given);
        self.now = self.now.wrapping_add(1);
        self.make_room();
    }

    fn make_room(&mut self) {
        self.fresh_max = (self.pairs_max - self.handed) as usize;
    }

    /// The batch under way, modulo 256.
    pub(super) fn now(&self) -> u8 {
        self.now
    }

    /// Timeslots that are wanted and not yet given.
    pub fn wanted(&self) -> u64 {
        let fresh = self.fresh.as_slice().iter().map(|flow| u64::from(flow.backlog()));
        self.wanted + fresh.sum::<u64>()
    }

    /// Pairs that wait for timeslots.
    pub fn pairs(&self) -> u32 {
        self.handed + self.fresh.len() as u32
    }
}
