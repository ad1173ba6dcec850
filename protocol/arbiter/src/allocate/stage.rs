//! One batch under way: flows come in, timeslots are given, flows go on.

use super::batch::{Batch, Exits, LOOK};
use super::capacity::{Capacity, CapacityError};
use super::ledger::Ledger;
use crate::demand::{Flow, Flows};
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, Policy};

/// Batches without service after which a pair goes first whatever it has left (shortest first).
const AGE_URGENT: u8 = 32;
/// The age that those keep which are older: ages are counted modulo 256.
const AGE_KEPT: u8 = 128;
/// Lengths of backlogs that are told apart in the order of the shortest: all above are alike.
const LENGTHS: usize = 256;

/// Gives out the timeslots of a batch, then those of another. What it cannot serve it hands on to
/// the stage of the next batch, one by one and for good, so that this one can begin before it has
/// ended (design: arbiter.md section 2): several stages on several cores make a pipeline.
///
/// `begin`, then `offer` for all flows that the batch before has handed on, in that order, and when
/// that has ended `finish`. What comes out is the same on however many cores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stage {
    config: Config,
    batch: Batch,
    /// The number of the batch, modulo 256.
    now: u8,
    again: Flows,
    turn: Flows,
    done: Flows,
}

impl Stage {
    /// All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let flows = || Flows::new(config.pairs_max);
        Ok(Self {
            batch: Batch::new(config.nodes, config.batch_slots),
            now: 0,
            again: flows(),
            turn: flows(),
            done: flows(),
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

    /// Nothing is given yet. `number`: how many batches there have been before.
    pub fn begin(&mut self, number: u64, start: Timeslot) {
        self.batch.begin(start);
        self.now = number as u8;
        self.again.clear();
        self.turn.clear();
        self.done.clear();
    }

    /// These come from the batch before. Who must wait for the next one goes `onward`.
    ///
    /// How they are divided among calls changes nothing: those that are looked at together are
    /// always the same.
    pub fn offer(&mut self, mut flows: &[Flow], onward: &mut Flows) {
        if self.config.policy == Policy::ShortestFirst {
            // Nobody can be served before it is known who is the shortest.
            self.turn.extend(flows);
            return;
        }
        if !self.turn.is_empty() {
            let (first, rest) = flows.split_at(flows.len().min(LOOK - self.turn.len()));
            self.turn.extend(first);
            flows = rest;
            if self.turn.len() < LOOK {
                return;
            }
            self.visit_turn(onward);
        }
        let (whole, rest) = flows.split_at(flows.len() / LOOK * LOOK);
        self.visit(whole, onward);
        self.turn.extend(rest);
    }

    /// The batch before has ended, and `ledger` has heard all that is to count in this one. Who
    /// must wait for the next one goes `onward`; nobody else waits any longer.
    pub fn finish(&mut self, ledger: &mut Ledger, onward: &mut Flows) {
        debug_assert_eq!(self.now, ledger.now(), "batches are finished one after the other");
        ledger.hand_over(&mut self.turn);
        if self.config.policy == Policy::ShortestFirst {
            self.sort_by_length();
        }
        self.visit_turn(onward);
        // Who was served and wants more has another turn when everybody has had one.
        loop {
            ledger.renew(&mut self.done, &mut self.again, &mut self.turn);
            if self.again.is_empty() {
                break;
            }
            core::mem::swap(&mut self.turn, &mut self.again);
            self.visit_turn(onward);
        }
        ledger.close(self.batch.given());
    }

    fn visit(&mut self, flows: &[Flow], onward: &mut Flows) {
        let (again, done) = (&mut self.again, &mut self.done);
        let share = self.config.share();
        self.batch.visit(flows, share, self.now, &mut Exits { onward, again, done });
    }

    fn visit_turn(&mut self, onward: &mut Flows) {
        let (again, done) = (&mut self.again, &mut self.done);
        let (flows, share) = (self.turn.as_slice(), self.config.share());
        self.batch.visit(flows, share, self.now, &mut Exits { onward, again, done });
        self.turn.clear();
    }

    /// Puts the shortest first, and before them who has waited for long.
    fn sort_by_length(&mut self) {
        let key = |flow: &Flow| match flow.age(self.now) < AGE_URGENT {
            true => (flow.backlog() as usize).min(LENGTHS - 1),
            false => 0,
        };
        let mut begins = [0u32; LENGTHS];
        for flow in self.turn.as_slice() {
            begins[key(flow)] += 1;
        }
        let mut begin = 0;
        for count in &mut begins {
            begin += core::mem::replace(count, begin);
        }
        let sorted = self.again.room();
        for flow in self.turn.as_slice() {
            let place = &mut begins[key(flow)];
            let is_urgent = flow.age(self.now) >= AGE_URGENT;
            sorted[*place as usize] =
                if is_urgent { flow.with_age(AGE_KEPT, self.now) } else { *flow };
            *place += 1;
        }
        self.again.grow(self.turn.len());
        core::mem::swap(&mut self.turn, &mut self.again);
        self.again.clear();
    }

    /// The batch under way, or given out last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }
}
