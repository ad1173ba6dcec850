//! Who may send to whom in each timeslot.
//!
//! One list holds every pair that wants timeslots. A batch visits it in order: a pair gets up to
//! its share of the timeslots in which both ends are free, or nothing. Who got nothing keeps its
//! place before those who got something, so the order of the list is that of the last service, and
//! nothing need be sorted for max–min fairness (design: arbiter.md section 2). But who finds
//! neither end with a timeslot left gives way, 64 times in all, to those that find one end with
//! some: that end may have been idle for want of an earlier turn, and the others are not. So fewer
//! timeslots pass unused, and all are served sooner.

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

/// Gives timeslots to the pairs that want some: a [`Ledger`] and one [`Stage`], on one core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allocator {
    config: Config,
    ledger: Ledger,
    stage: Stage,
    /// Who has been handed on by the last batch, longest unserved first.
    waiting: Flows,
    onward: Flows,
    next: Timeslot,
}

impl Allocator {
    /// With nothing wanted. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
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

    /// Keeps what is shared between racks, or with the world outside, within its capacity from the
    /// next batch on.
    ///
    /// # Errors
    /// When the capacities are not of as many endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        self.stage.limit(capacity)
    }

    /// `src` wants `slots` more timeslots to send to `dst`.
    ///
    /// # Errors
    /// See [`RequestError`]; but for `TooMuch` nothing was taken.
    #[inline]
    pub fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<(), RequestError> {
        self.ledger.request(src, dst, slots)
    }

    /// Forgets all that `src` wants: it has begun anew, and will say what it still holds.
    pub fn forget(&mut self, src: u32) {
        self.ledger.forget(src);
        self.stage.forget(src);
    }

    /// It takes longer to give out a batch than that lasts: see [`Ledger::on_late`].
    pub fn on_late(&mut self) {
        self.ledger.on_late();
    }

    /// Goes on at `start`: what lies between is given to nobody. Not back.
    pub fn skip_to(&mut self, start: Timeslot) {
        self.next = self.next.max(start);
    }

    /// Gives out the timeslots of the next batch.
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

    /// The batch given out last.
    pub fn batch(&self) -> &Batch {
        self.stage.batch()
    }

    /// Where the next batch begins.
    pub fn next(&self) -> Timeslot {
        self.next
    }

    /// Timeslots that are wanted and not yet given. Those of an endpoint that began anew are known
    /// to be wanted no longer when the next batch was given out.
    pub fn wanted(&self) -> u64 {
        self.ledger.wanted()
    }

    /// Pairs that wait for timeslots, but for those that have asked for more since they were given
    /// all.
    pub fn pairs(&self) -> u32 {
        self.ledger.pairs()
    }

    /// As it was set up.
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
