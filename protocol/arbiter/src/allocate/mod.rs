//! Who may send to whom in each timeslot.
//!
//! One list holds every pair that wants timeslots. A batch visits it in order: a pair gets up to
//! its share of the timeslots in which both ends are free, or nothing. Who got nothing keeps its
//! place before those who got something, so the order of the list is that of the last service, and
//! nothing need be sorted for max–min fairness (design: arbiter.md section 2).

mod batch;
mod capacity;

use alloc::vec::Vec;

use crate::demand::{Flow, MORE_MAX, Pairs};
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, Policy, RequestError};

pub use batch::{Batch, Grant};
pub use capacity::{Capacity, CapacityError};

/// Batches without service after which a pair goes first whatever it has left (shortest first).
const AGE_URGENT: u32 = 32;
/// Lengths of backlogs that are told apart in the order of the shortest: all above are alike.
const LENGTHS: usize = 256;

/// Gives timeslots to the pairs that want some.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocator {
    config: Config,
    pairs: Pairs,
    /// Who wants some, longest unserved first.
    waiting: Vec<Flow>,
    batch: Batch,
    next: Timeslot,
    /// Timeslots that are wanted and not yet given.
    wanted: u64,
    /// Of the batch under way.
    again: Vec<Flow>,
    onward: Vec<Flow>,
}

impl Allocator {
    /// With nothing wanted. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let list = || Vec::with_capacity(config.pairs_max as usize);
        Ok(Self {
            pairs: Pairs::new(config.nodes, config.pairs_max),
            waiting: list(),
            batch: Batch::new(config.nodes, config.batch_slots),
            next: Timeslot(0),
            wanted: 0,
            again: list(),
            onward: list(),
            config,
        })
    }

    /// Keeps what is shared between racks, or with the world outside, within its capacity from the
    /// next batch on.
    ///
    /// # Errors
    /// When the capacities are not of as many endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        let (own, given) = (self.config.nodes, capacity.nodes());
        if own != given {
            return Err(CapacityError { own, given });
        }
        self.batch.limit(capacity);
        Ok(())
    }

    /// `src` wants `slots` more timeslots to send to `dst`.
    ///
    /// # Errors
    /// See [`RequestError`]; but for `TooMuch` nothing was taken.
    #[inline]
    pub fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        self.check(src, dst)?;
        let (from, to) = (src as u16, dst as u16);
        let taken = match self.pairs.ask(from, to, slots) {
            Some(taken) => taken,
            None if slots == 0 => 0,
            None if !self.pairs.begin(from, to) => {
                return Err(RequestError::Full(self.pairs.len()));
            }
            None => {
                let taken = slots.min(MORE_MAX);
                self.waiting.push(Flow::new(from, to, taken));
                taken
            }
        };
        self.wanted += u64::from(taken);
        match slots - taken {
            0 => Ok(()),
            refused => Err(RequestError::TooMuch { refused }),
        }
    }

    fn check(&self, src: u32, dst: u32) -> Result<(), RequestError> {
        let nodes = self.config.nodes;
        if let Some(node) = [src, dst].into_iter().find(|node| *node >= nodes) {
            return Err(RequestError::UnknownNode { node, nodes });
        }
        if src == dst {
            return Err(RequestError::ToItself(src));
        }
        Ok(())
    }

    /// Forgets all that `src` wants: it has begun anew, and will say what it still holds.
    pub fn forget(&mut self, src: u32) {
        let (pairs, wanted) = (&mut self.pairs, &mut self.wanted);
        self.waiting.retain(|flow| {
            if u32::from(flow.src()) != src {
                return true;
            }
            let more = pairs.take(flow.src(), flow.dst());
            if more > 0 {
                pairs.take(flow.src(), flow.dst());
            }
            *wanted -= u64::from(flow.backlog() + more);
            false
        });
    }

    /// Goes on at `start`: what lies between is given to nobody. Not back.
    pub fn skip_to(&mut self, start: Timeslot) {
        self.next = self.next.max(start);
    }

    /// Gives out the timeslots of the next batch.
    pub fn next_batch(&mut self) -> &Batch {
        self.batch.begin(self.next);
        self.next = self.next.plus(self.config.batch_slots);
        let share = match self.config.policy {
            Policy::MaxMinFair => self.config.share_slots,
            Policy::ShortestFirst => {
                self.sort_by_length();
                self.config.batch_slots
            }
        };
        let Self { batch, waiting, again, onward, pairs, .. } = self;
        let mut refill = |flow: Flow| pairs.take(flow.src(), flow.dst());
        batch.visit(waiting, share, &mut refill, again, onward);
        // Who was served and wants more has another turn when everybody has had one.
        while !again.is_empty() {
            waiting.clear();
            core::mem::swap(waiting, again);
            batch.visit(waiting, share, &mut refill, again, onward);
        }
        waiting.clear();
        core::mem::swap(waiting, onward);
        self.wanted -= u64::from(batch.given());
        &self.batch
    }

    /// Puts the shortest first, and before them who has waited for long.
    fn sort_by_length(&mut self) {
        let key = |flow: &Flow| match flow.age() < AGE_URGENT {
            true => (flow.backlog() as usize).min(LENGTHS - 1),
            false => 0,
        };
        let mut begins = [0u32; LENGTHS];
        for flow in &self.waiting {
            begins[key(flow)] += 1;
        }
        let mut begin = 0;
        for count in &mut begins {
            begin += core::mem::replace(count, begin);
        }
        self.again.resize(self.waiting.len(), Flow::new(0, 0, 0));
        for flow in &self.waiting {
            let place = &mut begins[key(flow)];
            self.again[*place as usize] = *flow;
            *place += 1;
        }
        core::mem::swap(&mut self.waiting, &mut self.again);
        self.again.clear();
    }

    /// The batch given out last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Where the next batch begins.
    pub fn next(&self) -> Timeslot {
        self.next
    }

    /// Timeslots that are wanted and not yet given.
    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Pairs that wait for timeslots.
    pub fn pairs(&self) -> u32 {
        self.pairs.len()
    }

    /// As it was set up.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
