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
mod idle;
mod ledger;
mod pick;
mod shortest;
mod stage;

use crate::demand::Flows;
use crate::timeslot::Timeslot;
use crate::{Config, ConfigError, RequestError};

pub(crate) use batch::Grants;
pub use batch::{Batch, Grant};
pub use capacity::{Capacity, CapacityError};
pub use ledger::Ledger;
pub use stage::Stage;

/// Allocates timeslots to pairs on one core: a [`DemandTable`] and one [`Stage`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocator {
    config: Config,
    ledger: Ledger,
    stage: Stage,
    /// Flows passed on by the last batch, longest unserved first.
    waiting: Flows,
    onward: Flows,
    next: Timeslot,
}

impl Allocator {
    /// Creates an allocator without demand. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            ledger: Ledger::new(&config)?,
            stage: Stage::new(config)?,
            waiting: Flows::new(config.pairs_max),
            onward: Flows::new(config.pairs_max),
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
        self.ledger.request(src, dst, slots)
    }

    /// Drops all demand of `src`, which was reset and will report its demand again.
    pub fn forget(&mut self, src: u32) {
        self.ledger.forget(src);
        self.stage.forget(src);
    }

    /// Reports an overload: see [`DemandTable::on_overload`].
    pub fn on_late(&mut self) {
        self.ledger.on_late();
    }

    /// Leaves all timeslots before `start` unused. Never goes back.
    pub fn skip_to(&mut self, start: Timeslot) {
        self.next = self.next.max(start);
    }

    /// Allocates the next batch.
    pub fn next_batch(&mut self) -> &Batch {
        let Self { ledger, stage, waiting, onward, .. } = self;
        stage.begin(ledger.number(), self.next);
        self.next = self.next.plus(self.config.batch_slots);
        onward.clear();
        stage.offer(waiting.as_slice(), onward);
        ledger.close(|fresh| stage.admit(fresh, onward));
        ledger.renew(|fresh| stage.admit(fresh, onward));
        let at_hand = ledger.is_at_hand().then_some(&mut *ledger);
        stage.finish(at_hand, onward);
        ledger.on_batch(stage.batch().given(), stage.dropped(), stage.dry());
        core::mem::swap(waiting, onward);
        stage.batch()
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
        self.ledger.wanted()
    }

    /// Returns the number of pairs that wait for timeslots, without those whose flow came back and
    /// is not renewed yet.
    pub fn pairs(&self) -> u32 {
        self.ledger.pairs()
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
    use crate::Policy;

    proptest! {
        #[test]
        fn a_processor_without_the_instructions_gives_the_same(
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
            let mut able = Allocator::new(config).expect("the settings are right");
            let mut plain = able.clone();
            plain.stage.make_plain();
            for requests in rounds {
                for (src, dst, slots) in requests {
                    prop_assert_eq!(able.request(src, dst, slots), plain.request(src, dst, slots));
                }
                let grants: Vec<Grant> = able.next_batch().grants().to_vec();
                prop_assert_eq!(&grants, plain.next_batch().grants());
            }
        }
    }
}
