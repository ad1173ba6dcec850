//! Timeslot allocation: a matching of sources and destinations for each timeslot.
//!
//! One list holds the flows of all pairs with demand. A batch visits it in order and grants each
//! flow up to its share of the timeslots in which both ends are free. A flow that gets nothing
//! stays ahead of those that got something, so the list is ordered by last service and needs no
//! sorting for max–min fairness (`docs/design/arbiter.md`, "Who is served first?"). As an exception
//! a flow that finds neither end free yields, at most 64 times, to flows that find one end free:
//! that end may have stayed idle only because the flow came too late in the list. Fewer timeslots
//! stay unused that way, and the mean completion time is shorter.

mod batch;
mod capacity;
mod demand;
mod free_slots;
mod pick;
mod shortest;
mod stage;

use crate::flow::Flows;
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, RequestError};

pub use batch::{Batch, Grants};
pub use capacity::{Capacity, CapacityError};
pub use demand::DemandTable;
pub use stage::Stage;

/// Interval in batches at which debug builds count the demand of all pairs.
const CHECK_INTERVAL_BATCHES: u64 = 16;

/// Allocates timeslots to pairs on one core: a [`DemandTable`] and one [`Stage`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocator {
    config: Config,
    demand: DemandTable,
    stage: Stage,
    /// Flows passed on by the last batch, longest unserved first.
    waiting: Flows,
    forwarded: Flows,
    next: Timeslot,
}

impl Allocator {
    /// Creates an allocator without demand. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            demand: DemandTable::new(&config)?,
            stage: Stage::new(config)?,
            waiting: Flows::new(config.pairs_max),
            forwarded: Flows::new(config.pairs_max),
            next: Timeslot(0),
            config,
        })
    }

    /// Limits the traffic between racks, or out of the fabric, to a capacity from the next batch
    /// on.
    ///
    /// # Errors
    /// When the capacity was built for another number of endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        self.stage.limit(capacity)
    }

    /// Adds `slots` timeslots from `src` to `dst` to the demand.
    ///
    /// # Errors
    /// See [`RequestError`]; except for `TooMuch`, nothing was taken.
    #[inline]
    pub fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        self.demand.request(src, dst, slots)
    }

    /// Drops all demand of `src`, which was reset and will report its demand again.
    pub fn forget(&mut self, src: u32) {
        self.demand.forget(src);
        self.stage.forget(src);
    }

    /// Reports an overload: see [`DemandTable::on_overload`].
    pub fn on_overload(&mut self) {
        self.demand.on_overload();
    }

    /// Leaves all timeslots before `start` unused. Never goes back.
    pub fn skip_to(&mut self, start: Timeslot) {
        self.next = self.next.max(start);
    }

    /// Allocates the next batch.
    pub fn next_batch(&mut self) -> &Batch {
        let Self { demand, stage, waiting, forwarded, .. } = self;
        stage.begin(demand.number(), self.next);
        self.next = self.next.plus(self.config.batch_slots);
        forwarded.clear();
        stage.offer(waiting.as_slice(), forwarded);
        demand.close(|fresh| stage.admit(fresh, forwarded));
        demand.renew(|fresh| stage.admit(fresh, forwarded));
        let table = demand.renews_immediately().then_some(&mut *demand);
        stage.finish(table, forwarded);
        demand.on_batch(stage.batch().granted(), stage.dropped(), stage.drained());
        core::mem::swap(waiting, forwarded);
        if cfg!(debug_assertions) {
            self.stage.check_invariants(self.waiting.as_slice());
            // A count of all pairs takes longer than a batch.
            if self.demand.number().is_multiple_of(CHECK_INTERVAL_BATCHES) {
                self.check_demand();
            }
        }
        self.stage.batch()
    }

    /// Asserts what no request can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.demand.check_invariants();
    }

    //= spec/arbiter.md#R9
    /// Asserts what holds after a batch: no demand was granted twice or lost.
    fn check_demand(&self) {
        self.check_invariants();
        let waiting = self.waiting.as_slice();
        let (flows, queued) = self.demand.in_stages();
        assert_eq!(flows as usize, waiting.len(), "each flow waits, or came back");
        let backlog: u64 = waiting.iter().map(|flow| u64::from(flow.backlog())).sum();
        let wanted = backlog + queued + self.demand.new_backlog();
        assert_eq!(self.wanted(), wanted, "what is wanted waits somewhere");
    }

    /// Returns the last batch.
    pub fn batch(&self) -> &Batch {
        self.stage.batch()
    }

    /// Returns the first timeslot of the next batch.
    pub fn next(&self) -> Timeslot {
        self.next
    }

    /// Returns the timeslots requested and not granted. Those of an endpoint that was reset are
    /// counted until the next batch.
    pub fn wanted(&self) -> u64 {
        self.demand.wanted()
    }

    /// Returns the number of pairs that wait for timeslots, without those whose flow came back and
    /// is not renewed yet.
    pub fn pairs(&self) -> u32 {
        self.demand.pairs()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::{Grant, Policy};

    proptest! {
        //= spec/arbiter.md#R13
        #[test]
        fn portable_and_simd_allocations_are_equal(
            batch_slots in 1u32..=64,
            share_slots in 1u32..=64,
            is_fair in any::<bool>(),
            rounds in prop::collection::vec(
                prop::collection::vec((0u32..70, 0u32..70, 1u32..90), 0..200),
                1..10,
            ),
        ) {
            let policy = if is_fair { Policy::MaxMinFair } else { Policy::ShortestFirst };
            let config = Config { batch_slots, policy, share_slots, ..Config::new(70) };
            let mut simd = Allocator::new(config).expect("the settings are right");
            let mut portable = simd.clone();
            portable.stage.disable_simd();
            for requests in rounds {
                for (src, dst, slots) in requests {
                    prop_assert_eq!(
                        simd.request(src, dst, slots),
                        portable.request(src, dst, slots)
                    );
                }
                let grants: Vec<Grant> = simd.next_batch().grants().to_vec();
                prop_assert_eq!(&grants, portable.next_batch().grants());
            }
        }
    }
}
