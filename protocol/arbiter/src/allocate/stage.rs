//! One batch under way: flows come in, timeslots are given, flows go on.

use super::batch::{Batch, Exits, LOOK};
use super::capacity::{Capacity, CapacityError};
use super::ledger::Ledger;
use super::shortest;
use crate::demand::{Flow, Flows};
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, Policy};

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
    /// Shortest first: who goes onward, and not in the order of lengths.
    late: Flows,
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
            late: flows(),
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
        match self.config.policy {
            Policy::MaxMinFair => {
                self.visit_turn(onward);
                self.visit_again(ledger, onward);
            }
            Policy::ShortestFirst => self.visit_by_length(ledger, onward),
        }
        ledger.close(self.batch.given());
    }

    fn visit(&mut self, flows: &[Flow], onward: &mut Flows) {
        let (again, done) = (&mut self.again, &mut self.done);
        let share = self.config.share();
        self.batch.visit(flows, share, self.now, &mut Exits { onward, lost: None, again, done });
    }

    fn visit_turn(&mut self, onward: &mut Flows) {
        let (again, done) = (&mut self.again, &mut self.done);
        let (flows, share) = (self.turn.as_slice(), self.config.share());
        self.batch.visit(flows, share, self.now, &mut Exits { onward, lost: None, again, done });
        self.turn.clear();
    }

    /// Who was served and wants more has another turn when everybody has had one.
    fn visit_again(&mut self, ledger: &mut Ledger, onward: &mut Flows) {
        loop {
            ledger.renew(&mut self.done, &mut self.again, &mut self.turn);
            if self.again.is_empty() {
                break;
            }
            core::mem::swap(&mut self.turn, &mut self.again);
            self.visit_turn(onward);
        }
    }

    /// Who is blocked keeps its place among the others, so that few need be sorted for the next
    /// batch. Everybody else follows.
    fn visit_by_length(&mut self, ledger: &mut Ledger, onward: &mut Flows) {
        let urgent = shortest::sort(self.turn.as_slice(), self.now, self.again.room());
        self.again.grow(self.turn.len());
        core::mem::swap(&mut self.turn, &mut self.again);
        self.again.clear();
        let (first, others) = self.turn.as_slice().split_at(urgent);
        let (again, done, late) = (&mut self.again, &mut self.done, &mut self.late);
        let share = self.config.share();
        let mut exits = Exits { onward: late, lost: None, again, done };
        self.batch.visit(first, share, self.now, &mut exits);
        let Exits { onward: late, again, done, .. } = exits;
        let mut exits = Exits { onward, lost: Some(late), again, done };
        self.batch.visit(others, share, self.now, &mut exits);
        self.turn.clear();
        onward.extend(self.late.as_slice());
        self.late.clear();
        self.visit_again(ledger, onward);
    }

    /// The batch under way, or given out last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }
}
