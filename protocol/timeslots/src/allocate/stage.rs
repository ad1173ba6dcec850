//! A stage of the allocator: the batch that is being allocated.

use alloc::vec::Vec;

use super::batch::{Batch, Grants, Outputs, Tail};
use super::capacity::{Capacity, CapacityError};
use super::demand::DemandTable;
use super::free_slots::CHUNK;
use super::shortest;
use crate::flow::{Flow, Flows};
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, Policy};

//= spec/arbiter.md#R13
/// Allocates one batch after another. A flow that it cannot serve is forwarded to the stage of the
/// next batch at once, and does not come back. So the next batch starts before this one has ended:
/// several stages on several cores form a pipeline (`docs/design/arbiter.md`, "How do several cores
/// give out what one would?").
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
    requeued: Flows,
    input: Flows,
    done: Flows,
    /// Flows that are forwarded after all others: under shortest-first those out of the sort order,
    /// under max–min fairness those that yield.
    yielded: Flows,
    /// One bit for each endpoint whose flows of earlier batches are dropped.
    forgotten: Vec<u64>,
    has_forgotten: bool,
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
            requeued: flows(),
            input: flows(),
            done: flows(),
            yielded: flows(),
            forgotten: alloc::vec![0; config.nodes.div_ceil(u64::BITS) as usize],
            has_forgotten: false,
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
        let (expected, actual) = (self.config.nodes, capacity.nodes());
        if expected != actual {
            return Err(CapacityError { expected, actual });
        }
        self.batch.limit(capacity);
        Ok(())
    }

    /// Starts batch `number` with all timeslots free.
    pub fn begin(&mut self, number: u64, start: Timeslot) {
        self.batch.begin(start);
        self.now = number as u8;
        self.requeued.clear();
        self.input.clear();
        self.done.clear();
        self.dropped = 0;
    }

    /// Drops flows of `src` that the last batch has forwarded, as the endpoint was reset. Unknown
    /// endpoints are ignored.
    pub fn forget(&mut self, src: u32) {
        if let Some(bits) = self.forgotten.get_mut((src / u64::BITS) as usize) {
            *bits |= 1 << (src % u64::BITS);
            self.has_forgotten = true;
        }
    }

    /// Takes flows of the last batch. Those that find no timeslot are appended to the output.
    ///
    /// The result does not depend on how the flows are divided among calls.
    pub fn offer(&mut self, flows: &[Flow], forwarded: &mut Flows) {
        if !self.has_forgotten {
            return self.admit(flows, forwarded);
        }
        let is_retained = |forgotten: &[u64], flow: &Flow| {
            let bits = u64::BITS as usize;
            forgotten[flow.src() / bits] >> (flow.src() % bits) & 1 == 0
        };
        let mut rest = flows;
        while let Some(first) = rest.first() {
            let keep_run = is_retained(&self.forgotten, first);
            let end = rest.iter().position(|flow| is_retained(&self.forgotten, flow) != keep_run);
            let (run, tail) = rest.split_at(end.unwrap_or(rest.len()));
            if keep_run {
                self.admit(run, forwarded);
            } else {
                self.dropped += run.iter().map(|flow| u64::from(flow.backlog())).sum::<u64>();
            }
            rest = tail;
        }
    }

    /// Takes new flows. Those that find no timeslot are appended to the output.
    ///
    /// The result does not depend on how the flows are divided among calls: chunks are always the
    /// same.
    pub fn admit(&mut self, mut flows: &[Flow], forwarded: &mut Flows) {
        if self.config.policy == Policy::ShortestFirst {
            // All flows must be known before the shortest can be served.
            self.input.extend(flows);
            return;
        }
        if !self.input.is_empty() {
            let (first, rest) = flows.split_at(flows.len().min(CHUNK - self.input.len()));
            self.input.extend(first);
            flows = rest;
            if self.input.len() < CHUNK {
                return;
            }
            self.visit_input(forwarded);
        }
        let (whole, rest) = flows.split_at(flows.len() / CHUNK * CHUNK);
        self.visit(whole, forwarded);
        self.input.extend(rest);
    }

    //= spec/arbiter.md#R8
    /// Ends the batch: serves the flows that want more until none finds a timeslot, and appends the
    /// rest to the output. With a demand table at hand, drained flows are renewed within the batch.
    pub fn finish(&mut self, demand: Option<&mut DemandTable>, forwarded: &mut Flows) {
        match self.config.policy {
            Policy::MaxMinFair => {
                self.visit_input(forwarded);
                self.visit_requeued(demand, forwarded);
                forwarded.extend(self.yielded.as_slice());
                self.yielded.clear();
            }
            Policy::ShortestFirst => self.visit_by_length(demand, forwarded),
        }
        if self.has_forgotten {
            self.forgotten.fill(0);
            self.has_forgotten = false;
        }
    }

    fn visit(&mut self, flows: &[Flow], forwarded: &mut Flows) {
        let (requeued, done) = (&mut self.requeued, &mut self.done);
        let tail = Tail::Yielded(&mut self.yielded);
        let share = self.config.share();
        self.batch.visit(flows, share, &mut Outputs { forwarded, tail, requeued, done });
    }

    fn visit_input(&mut self, forwarded: &mut Flows) {
        let (requeued, done) = (&mut self.requeued, &mut self.done);
        let (flows, share) = (self.input.as_slice(), self.config.share());
        let tail = match self.config.policy {
            Policy::MaxMinFair => Tail::Yielded(&mut self.yielded),
            Policy::ShortestFirst => Tail::None,
        };
        self.batch.visit(flows, share, &mut Outputs { forwarded, tail, requeued, done });
        self.input.clear();
    }

    /// Serves flows that want more, in rounds, until no timeslot or no flow is left.
    fn visit_requeued(&mut self, mut demand: Option<&mut DemandTable>, forwarded: &mut Flows) {
        loop {
            if let Some(demand) = &mut demand {
                demand.renew_immediately(&mut self.done, &mut self.requeued, &mut self.input);
            }
            if self.requeued.is_empty() {
                break;
            }
            core::mem::swap(&mut self.input, &mut self.requeued);
            if self.config.policy == Policy::ShortestFirst {
                self.input.restamp(self.now);
            }
            self.visit_input(forwarded);
        }
    }

    /// Serves flows by length. Blocked flows are forwarded in their sort order, so that the next
    /// batch sorts only the others, which follow them.
    fn visit_by_length(&mut self, demand: Option<&mut DemandTable>, forwarded: &mut Flows) {
        let urgent = shortest::sort(self.input.as_slice(), self.now, self.requeued.spare_mut());
        self.requeued.grow(self.input.len());
        core::mem::swap(&mut self.input, &mut self.requeued);
        self.requeued.clear();
        let (first, others) = self.input.as_slice().split_at(urgent);
        let (requeued, done, yielded) = (&mut self.requeued, &mut self.done, &mut self.yielded);
        let share = self.config.share();
        let mut outputs = Outputs { forwarded: yielded, tail: Tail::None, requeued, done };
        self.batch.visit(first, share, &mut outputs);
        let Outputs { forwarded: yielded, requeued, done, .. } = outputs;
        let mut outputs = Outputs { forwarded, tail: Tail::LostRace(yielded), requeued, done };
        self.batch.visit(others, share, &mut outputs);
        self.input.clear();
        forwarded.extend(self.yielded.as_slice());
        self.yielded.clear();
        self.visit_requeued(demand, forwarded);
    }

    #[cfg(test)]
    pub(super) fn disable_simd(&mut self) {
        self.batch.disable_simd();
    }

    /// Asserts that the last batch is a matching, that it is maximal without the flows that it
    /// has forwarded, and that these are flows. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self, forwarded: &[Flow]) {
        self.batch.check_invariants();
        self.batch.check_maximal(forwarded);
        forwarded.iter().for_each(|flow| flow.check_invariants(self.config.nodes));
        assert!(self.yielded.is_empty(), "flows that yield were forwarded");
        let has_forgotten = self.forgotten.iter().any(|word| *word != 0);
        assert_eq!(has_forgotten, self.has_forgotten, "some endpoints are forgotten, or none");
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
    pub fn drained(&mut self) -> &mut Flows {
        &mut self.done
    }

    /// Swaps out the result of the batch: the grants and the drained flows.
    pub fn exchange(&mut self, grants: &mut Grants, drained: &mut Flows) {
        self.batch.exchange(grants);
        core::mem::swap(&mut self.done, drained);
    }
}
