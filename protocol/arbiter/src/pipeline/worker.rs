//! One core that gives out timeslots.

use crate::between::Routes;
use crate::demand::{Flow, Flows};
use crate::{
    Allocated, ArbiterConfig, ArbiterError, Capacity, CapacityError, CorePaths, Order, Stage,
};

/// One core that gives out every so many-th batch, and chooses its paths.
///
/// Orders until its batch is open; then flows of the worker before, as they come; with the last of
/// them those that are new. When they have been ordered and taken, too, that go out again, the
/// batch ends. After each of these what is [`Worker::onward`] goes to the next worker; and when a
/// batch has ended [`Worker::write`] says what it was, before the next order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    stage: Stage,
    paths: CorePaths,
    /// The batch that is open, or will be next.
    number: u64,
    workers: u64,
    open: Option<Open>,
    /// All flows of the batch before have come.
    has_all: bool,
    onward: Flows,
    /// Which batch ended last.
    ended: u64,
}

/// What is known of the batch that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Open {
    /// How many new flows it has yet to take.
    lacks: u32,
    /// Whether these are the last.
    is_whole: bool,
}

impl Worker {
    /// Number `at` of so many workers. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: &ArbiterConfig, at: usize, workers: usize) -> Result<Self, ArbiterError> {
        Ok(Self {
            stage: Stage::new(config.allocator)?,
            paths: CorePaths::new(config.core)?,
            number: at as u64,
            workers: workers.max(1) as u64,
            open: None,
            has_all: false,
            // And the end.
            onward: Flows::new(config.allocator.pairs_max + 1),
            ended: 0,
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

    /// Whether it is known who is forgotten in its batch: it takes flows.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How many new flows it takes now: none before all have come that were handed on.
    pub fn lacks(&self) -> u32 {
        self.open.filter(|_| self.has_all).map_or(0, |open| open.lacks)
    }

    /// Whether its batch lacks nothing.
    pub fn is_whole(&self) -> bool {
        self.has_all && self.open == Some(Open { lacks: 0, is_whole: true })
    }

    /// The first of all workers has nobody before it at first: this is what comes to it.
    pub fn first_flows() -> [Flow; 1] {
        [Flow::END]
    }

    /// Takes orders of one batch. Answers how many: those behind are of a later one.
    ///
    /// # Panics
    /// When it is told to avoid what there is not.
    pub fn on_orders(&mut self, orders: &[Order]) -> usize {
        let taken = orders.iter().take_while(|order| {
            let is_taken = !self.open.is_some_and(|open| open.is_whole);
            if is_taken {
                self.on_order(**order);
            }
            is_taken
        });
        taken.count()
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Forget(src) => self.stage.forget(src),
            Order::Avoid { fault, avoids } => {
                self.paths.avoid(fault, avoids).expect("it was found among those there are");
            }
            Order::Batch { start, fresh } => {
                self.stage.begin(self.number, start);
                self.open = Some(Open { lacks: fresh, is_whole: false });
            }
            Order::Renew { fresh } => {
                if let Some(open) = &mut self.open {
                    open.lacks += fresh;
                    open.is_whole = true;
                }
            }
        }
    }

    /// Takes flows that the worker before has handed on, up to the last of its batch. Answers how
    /// many: those behind are for a later one.
    pub fn on_flows(&mut self, flows: &[Flow]) -> usize {
        if self.has_all {
            return 0;
        }
        debug_assert!(self.is_open(), "it is not known yet who is forgotten");
        let end = flows.iter().position(|flow| *flow == Flow::END);
        let own = &flows[..end.unwrap_or(flows.len())];
        self.has_all = end.is_some();
        self.stage.offer(own, &mut self.onward);
        own.len() + usize::from(self.has_all)
    }

    /// Takes new flows, no more than it [`Worker::lacks`].
    pub fn on_fresh(&mut self, flows: &[Flow]) {
        debug_assert!(self.has_all, "the others come before");
        if let Some(open) = &mut self.open {
            open.lacks -= flows.len() as u32;
            self.stage.admit(flows, &mut self.onward);
        }
    }

    /// Ends the batch, when it is whole.
    pub fn finish(&mut self) {
        debug_assert!(self.is_whole(), "there is more to come");
        self.stage.finish(None, &mut self.onward);
        self.onward.push(Flow::END);
        self.has_all = false;
        self.ended = self.number;
        self.number += self.workers;
        self.open = None;
    }

    /// Flows for the next worker, in order.
    pub fn onward(&self) -> &[Flow] {
        self.onward.as_slice()
    }

    /// They have been handed on.
    pub fn clear_onward(&mut self) {
        self.onward.clear();
    }

    /// Chooses the paths of the batch that has ended, if there are any, and writes all that there
    /// is to say of it.
    ///
    /// # Panics
    /// When `into` is of fewer endpoints.
    pub fn write(&mut self, into: &mut Allocated) {
        let batch = self.stage.batch();
        into.given.number = self.ended;
        into.given.start = batch.start();
        into.given.slots = batch.slots();
        into.given.given = batch.given();
        into.dropped = self.stage.dropped();
        into.dry.clear();
        self.stage.exchange(&mut into.grants, &mut into.dry);
        into.is_spread = false;
        into.rack_nodes = self.paths.rack_nodes();
        if let CorePaths::One(_) = self.paths {
            return;
        }
        into.spread();
        let (start, slots) = (into.given.start, into.given.slots);
        into.given.unplaced = self.paths.assign(&into.schedule, start, slots);
        for (src, routes) in into.routes.iter_mut().enumerate() {
            if into.schedule.busy(src as u32) != 0 {
                *routes = *self.paths.of(src as u32);
            }
        }
    }
}
