//! A worker: one core that allocates batches.

use crate::between::Routes;
use crate::demand::{Flow, Flows};
use crate::{
    Allocated, ArbiterConfig, ArbiterError, Capacity, CapacityError, CorePaths, Order, Stage,
};

/// Allocates every n-th batch of n workers, and chooses its paths.
///
/// The driver passes commands until the batch is open, then the flows of the previous worker as
/// they arrive, then the new flows. When the renewed flows have been commanded and taken as well,
/// the batch can be finished. After each of these calls the driver moves [`Worker::forwarded`] to
/// the next worker, and after the end of a batch it calls [`Worker::write`] before the next
/// command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    stage: Stage,
    paths: CorePaths,
    /// The number of the current or next batch.
    number: u64,
    workers: u64,
    open: Option<Open>,
    /// All flows of the previous batch have arrived.
    has_all: bool,
    onward: Flows,
    /// The number of the last finished batch.
    ended: u64,
}

/// State of the current batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Open {
    /// Number of new flows that were commanded and not taken.
    lacks: u32,
    /// Whether no more follow.
    is_whole: bool,
}

impl Worker {
    /// Creates worker `at` of `workers`. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: &ArbiterConfig, at: usize, workers: usize) -> Result<Self, ArbiterError> {
        Ok(Self {
            stage: Stage::new(config.allocator)?,
            paths: CorePaths::new(config.core)?,
            number: at as u64,
            workers: workers.max(1) as u64,
            open: None,
            has_all: false,
            // One more for the end marker.
            onward: Flows::new(config.allocator.pairs_max + 1),
            ended: 0,
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

    /// Whether a batch is open: its dropped endpoints are known, and it takes flows.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the number of new flows it takes now: 0 until all forwarded flows have arrived.
    pub fn lacks(&self) -> u32 {
        self.open.filter(|_| self.has_all).map_or(0, |open| open.lacks)
    }

    /// Whether the batch has all of its flows.
    pub fn is_whole(&self) -> bool {
        self.has_all && self.open == Some(Open { lacks: 0, is_whole: true })
    }

    /// Returns the input of the first worker, which has no predecessor at the start.
    pub fn first_flows() -> [Flow; 1] {
        [Flow::END]
    }

    /// Executes commands of one batch and returns their number; the rest belongs to a later batch.
    ///
    /// # Panics
    /// When a fault does not exist in the fabric.
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

    /// Takes flows of the previous worker up to the end of its batch, and returns their number; the
    /// rest belongs to a later batch.
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

    /// Takes new flows, at most [`Worker::missing`].
    pub fn on_fresh(&mut self, flows: &[Flow]) {
        debug_assert!(self.has_all, "the others come before");
        if let Some(open) = &mut self.open {
            open.lacks -= flows.len() as u32;
            self.stage.admit(flows, &mut self.onward);
        }
    }

    /// Ends a complete batch.
    pub fn finish(&mut self) {
        debug_assert!(self.is_whole(), "there is more to come");
        self.stage.finish(None, &mut self.onward);
        self.onward.push(Flow::END);
        self.has_all = false;
        self.ended = self.number;
        self.number += self.workers;
        self.open = None;
    }

    /// Returns the flows for the next worker, in order.
    pub fn onward(&self) -> &[Flow] {
        self.onward.as_slice()
    }

    /// Removes the flows that were moved to the next worker.
    pub fn clear_onward(&mut self) {
        self.onward.clear();
    }

    /// Chooses the paths of the finished batch, if the fabric has any, and writes its result.
    ///
    /// # Panics
    /// When `into` was built for fewer endpoints.
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
