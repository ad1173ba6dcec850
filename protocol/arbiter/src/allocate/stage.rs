//! A stage of the allocator: the batch that is being allocated.

use alloc::vec::Vec;

use super::batch::{Batch, Behind, Exits, Grants};
use super::capacity::{Capacity, CapacityError};
use super::idle::LOOK;
use super::ledger::Ledger;
use super::shortest;
use crate::demand::{Flow, Flows};
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, Policy};

/// Allocates one batch after another. Flows that it cannot serve go to the stage of the next batch
/// one by one, and finally, so that the next batch starts before this one has ended: several stages
/// on several cores form a pipeline (`docs/design/arbiter.md`, "How do several cores give out what
/// one would?").
///
/// The order of calls for each batch is `forget` for endpoints reset since the last batch, `begin`,
/// `offer` for the flows that the last batch has forwarded, in their order, `admit` for new flows,
/// and `finish`. The grants do not depend on the number of stages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stage {
    config: Config,
    batch: Batch,
    /// The number of the batch, modulo 256.
    now: u8,
    again: Flows,
    turn: Flows,
    done: Flows,
    /// Flows that are forwarded after all others: under shortest-first those out of the sort order,
    /// under max–min fairness those that yield.
    late: Flows,
    /// One bit for each endpoint whose flows of earlier batches are dropped.
    forgotten: Vec<u64>,
    forgets: bool,
    /// Timeslots that the dropped flows wanted.
    dropped: u64,
}

impl Stage {
    /// Allocates all memory.
    ///
    /// # Errors
    /// When a setting is out of range.
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

    /// Limits the traffic between racks, or out of the fabric, to a capacity from the next batch
    /// on.
    ///
    /// # Errors
    /// When the capacity was built for another number of endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        let (own, given) = (self.config.nodes, capacity.nodes());
        if own != given {
            return Err(CapacityError { own, given });
        }
        self.batch.limit(capacity);
        Ok(())
    }

    /// Starts batch `number` with all timeslots free.
    pub fn begin(&mut self, number: u64, start: Timeslot) {
        self.batch.begin(start);
        self.now = number as u8;
        self.again.clear();
        self.turn.clear();
        self.done.clear();
        self.dropped = 0;
    }

    /// Drops flows of `src` that the last batch has forwarded, as the endpoint was reset. Unknown
    /// endpoints are ignored.
    pub fn forget(&mut self, src: u32) {
        if let Some(bits) = self.forgotten.get_mut((src / u64::BITS) as usize) {
            *bits |= 1 << (src % u64::BITS);
            self.forgets = true;
        }
    }

    /// Takes flows of the last batch. Those that find no timeslot are appended to the output.
    ///
    /// The result does not depend on how the flows are divided among calls.
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

    /// Takes new flows. Those that find no timeslot are appended to the output.
    ///
    /// The result does not depend on how the flows are divided among calls: chunks are always the
    /// same.
    pub fn admit(&mut self, mut flows: &[Flow], onward: &mut Flows) {
        if self.config.policy == Policy::ShortestFirst {
            // All flows must be known before the shortest can be served.
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

    /// Ends the batch: serves the flows that want more until none finds a timeslot, and appends the
    /// rest to the output. With a demand table at hand, drained flows are renewed within the batch.
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

    /// Serves flows that want more, in rounds, until no timeslot or no flow is left.
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

    /// Serves flows by length. Blocked flows are forwarded in their sort order, so that the next
    /// batch sorts only the others, which follow them.
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

    /// Returns the current or last batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Returns the timeslots wanted by flows that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the drained flows, which go back to the demand table.
    pub fn dry(&mut self) -> &mut Flows {
        &mut self.done
    }

    /// Swaps out the result of the batch: the grants and the drained flows.
    pub(crate) fn exchange(&mut self, grants: &mut Grants, dry: &mut Flows) {
        self.batch.exchange(grants);
        core::mem::swap(&mut self.done, dry);
    }
}
