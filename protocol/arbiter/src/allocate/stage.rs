//! One batch under way: flows come in, timeslots are given, flows go on.

use alloc::vec::Vec;

use super::batch::{Batch, Behind, Exits, Grants};
use super::capacity::{Capacity, CapacityError};
use super::idle::LOOK;
use super::ledger::Ledger;
use super::shortest;
use crate::demand::{Flow, Flows};
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, Policy};

/// Gives out the timeslots of a batch, then those of another. What it cannot serve it hands on to
/// the stage of the next batch, one by one and for good, so that this one can begin before it has
/// ended (design: arbiter.md section 2): several stages on several cores make a pipeline.
///
/// `forget` for who has begun anew since the batch before, `begin`, then `offer` for all flows that
/// the batch before has handed on, in that order, `admit` for those that are new, and `finish`.
/// What comes out is the same on however many cores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stage {
    config: Config,
    batch: Batch,
    /// The number of the batch, modulo 256.
    now: u8,
    again: Flows,
    turn: Flows,
    done: Flows,
    /// Who goes onward after all others: shortest first, who is not in the order of lengths;
    /// max–min fair, who gives way.
    late: Flows,
    /// A bit for each endpoint of which flows of batches before are dropped.
    forgotten: Vec<u64>,
    forgets: bool,
    /// Timeslots that these wanted.
    dropped: u64,
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
            forgotten: alloc::vec![0; config.nodes.div_ceil(u64::BITS) as usize],
            forgets: false,
            dropped: 0,
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
        self.dropped = 0;
    }

    /// Flows of `src` that the batch before has handed on are dropped in this one: nobody waits for
    /// them any more. Nobody is forgotten that there is not.
    pub fn forget(&mut self, src: u32) {
        if let Some(bits) = self.forgotten.get_mut((src / u64::BITS) as usize) {
            *bits |= 1 << (src % u64::BITS);
            self.forgets = true;
        }
    }

    /// These come from the batch before. Who must wait for the next one goes `onward`.
    ///
    /// How they are divided among calls changes nothing.
    pub fn offer(&mut self, flows: &[Flow], onward: &mut Flows) {
        if !self.forgets {
            return self.admit(flows, onward);
        }
        let is_kept = |forgotten: &[u64], flow: &Flow| {
            let bits = u64::BITS as usize;
            forgotten[flow.src() / bits] >> (flow.src() % bits) & 1 == 0
        };
        let mut rest = flows;
        while let Some(first) = rest.first() {
            let keeps = is_kept(&self.forgotten, first);
            let end = rest.iter().position(|flow| is_kept(&self.forgotten, flow) != keeps);
            let (run, behind) = rest.split_at(end.unwrap_or(rest.len()));
            if keeps {
                self.admit(run, onward);
            } else {
                self.dropped += run.iter().map(|flow| u64::from(flow.backlog())).sum::<u64>();
            }
            rest = behind;
        }
    }

    /// These are new. Who must wait for the next one goes `onward`.
    ///
    /// How they are divided among calls changes nothing: those that are looked at together are
    /// always the same.
    pub fn admit(&mut self, mut flows: &[Flow], onward: &mut Flows) {
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

    /// That was all. Who must wait for the next one goes `onward`; nobody else waits any longer.
    /// Who was given all goes on at once with what `ledger` says that it has asked for since, if
    /// that is at hand.
    pub fn finish(&mut self, ledger: Option<&mut Ledger>, onward: &mut Flows) {
        match self.config.policy {
            Policy::MaxMinFair => {
                self.visit_turn(onward);
                self.visit_again(ledger, onward);
                onward.extend(self.late.as_slice());
                self.late.clear();
            }
            Policy::ShortestFirst => self.visit_by_length(ledger, onward),
        }
        if self.forgets {
            self.forgotten.fill(0);
            self.forgets = false;
        }
    }

    fn visit(&mut self, flows: &[Flow], onward: &mut Flows) {
        let (again, done) = (&mut self.again, &mut self.done);
        let behind = Behind::Way(&mut self.late);
        let share = self.config.share();
        self.batch.visit(flows, share, &mut Exits { onward, behind, again, done });
    }

    fn visit_turn(&mut self, onward: &mut Flows) {
        let (again, done) = (&mut self.again, &mut self.done);
        let (flows, share) = (self.turn.as_slice(), self.config.share());
        let behind = match self.config.policy {
            Policy::MaxMinFair => Behind::Way(&mut self.late),
            Policy::ShortestFirst => Behind::Nobody,
        };
        self.batch.visit(flows, share, &mut Exits { onward, behind, again, done });
        self.turn.clear();
    }

    /// Who was served and wants more has another turn when everybody has had one.
    fn visit_again(&mut self, mut ledger: Option<&mut Ledger>, onward: &mut Flows) {
        loop {
            if let Some(ledger) = &mut ledger {
                ledger.renew_at_once(&mut self.done, &mut self.again, &mut self.turn);
            }
            if self.again.is_empty() {
                break;
            }
            core::mem::swap(&mut self.turn, &mut self.again);
            if self.config.policy == Policy::ShortestFirst {
                self.turn.restamp(self.now);
            }
            self.visit_turn(onward);
        }
    }

    /// Who is blocked keeps its place among the others, so that few need be sorted for the next
    /// batch. Everybody else follows.
    fn visit_by_length(&mut self, ledger: Option<&mut Ledger>, onward: &mut Flows) {
        let urgent = shortest::sort(self.turn.as_slice(), self.now, self.again.room());
        self.again.grow(self.turn.len());
        core::mem::swap(&mut self.turn, &mut self.again);
        self.again.clear();
        let (first, others) = self.turn.as_slice().split_at(urgent);
        let (again, done, late) = (&mut self.again, &mut self.done, &mut self.late);
        let share = self.config.share();
        let mut exits = Exits { onward: late, behind: Behind::Nobody, again, done };
        self.batch.visit(first, share, &mut exits);
        let Exits { onward: late, again, done, .. } = exits;
        let mut exits = Exits { onward, behind: Behind::Lost(late), again, done };
        self.batch.visit(others, share, &mut exits);
        self.turn.clear();
        onward.extend(self.late.as_slice());
        self.late.clear();
        self.visit_again(ledger, onward);
    }

    #[cfg(test)]
    pub(super) fn make_plain(&mut self) {
        self.batch.make_plain();
    }

    /// The batch under way, or given out last.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Timeslots that were wanted by flows that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The flows that were given all that they wanted, which go back to the ledger.
    pub fn dry(&mut self) -> &mut Flows {
        &mut self.done
    }

    /// What came of the batch goes to who asks for it: its grants, and the flows that were given
    /// all.
    pub(crate) fn exchange(&mut self, grants: &mut Grants, dry: &mut Flows) {
        self.batch.exchange(grants);
        core::mem::swap(&mut self.done, dry);
    }
}
