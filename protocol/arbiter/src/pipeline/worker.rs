//! A worker: one core that allocates batches.

use crate::{
    AllocatedBatch, ArbiterConfig, ArbiterError, Capacity, CapacityError, CorePaths, Flow, Flows,
    Routes, Stage, WorkerCommand,
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
    open: Option<OpenBatch>,
    /// All flows of the previous batch have arrived.
    has_all: bool,
    forwarded: Flows,
    /// The number of the last finished batch.
    ended: u64,
}

/// State of the current batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenBatch {
    /// Number of new flows that were commanded and not taken.
    missing: u32,
    /// Whether no more follow.
    is_complete: bool,
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
            forwarded: Flows::new(config.allocator.pairs_max + 1),
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
    pub fn missing(&self) -> u32 {
        self.open.filter(|_| self.has_all).map_or(0, |open| open.missing)
    }

    /// Whether the batch has all of its flows.
    pub fn is_complete(&self) -> bool {
        self.has_all && self.open == Some(OpenBatch { missing: 0, is_complete: true })
    }

    /// Returns the input of the first worker, which has no predecessor at the start.
    pub fn initial_flows() -> [Flow; 1] {
        [Flow::END]
    }

    /// Executes commands of one batch and returns their number; the rest belongs to a later batch.
    ///
    /// # Panics
    /// When a fault does not exist in the fabric.
    pub fn on_commands(&mut self, commands: &[WorkerCommand]) -> usize {
        let taken = commands.iter().take_while(|command| {
            let is_taken = !self.open.is_some_and(|open| open.is_complete);
            if is_taken {
                self.on_command(**command);
            }
            is_taken
        });
        taken.count()
    }

    fn on_command(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Forget(src) => self.stage.forget(src),
            WorkerCommand::Avoid { fault, is_avoided } => {
                self.paths.avoid(fault, is_avoided).expect("faults are found in this fabric");
            }
            WorkerCommand::Batch { start, fresh } => {
                debug_assert!(self.open.is_none(), "the last batch has ended");
                self.stage.begin(self.number, start);
                self.open = Some(OpenBatch { missing: fresh, is_complete: false });
            }
            WorkerCommand::Renew { fresh } => {
                if let Some(open) = &mut self.open {
                    open.missing += fresh;
                    open.is_complete = true;
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
        debug_assert!(self.is_open(), "the batch is not open");
        let end = flows.iter().position(|flow| *flow == Flow::END);
        let own = &flows[..end.unwrap_or(flows.len())];
        self.has_all = end.is_some();
        self.stage.offer(own, &mut self.forwarded);
        own.len() + usize::from(self.has_all)
    }

    /// Takes new flows, at most [`Worker::missing`].
    pub fn on_fresh(&mut self, flows: &[Flow]) {
        debug_assert!(self.has_all, "forwarded flows come first");
        if let Some(open) = &mut self.open {
            debug_assert!(flows.len() <= open.missing as usize, "no more than was commanded");
            open.missing -= flows.len() as u32;
            self.stage.admit(flows, &mut self.forwarded);
        }
    }

    /// Ends a complete batch.
    pub fn finish(&mut self) {
        debug_assert!(self.is_complete(), "the batch is not complete");
        self.stage.finish(None, &mut self.forwarded);
        if cfg!(debug_assertions) {
            self.stage.check_invariants(self.forwarded.as_slice());
        }
        self.forwarded.push(Flow::END);
        self.has_all = false;
        self.ended = self.number;
        self.number += self.workers;
        self.open = None;
    }

    /// Returns the flows for the next worker, in order.
    pub fn forwarded(&self) -> &[Flow] {
        self.forwarded.as_slice()
    }

    /// Removes the flows that were moved to the next worker.
    pub fn clear_forwarded(&mut self) {
        self.forwarded.clear();
    }

    /// Chooses the paths of the finished batch, if the fabric has any, and writes its result.
    ///
    /// # Panics
    /// When `into` was built for fewer endpoints.
    pub fn write(&mut self, into: &mut AllocatedBatch) {
        let batch = self.stage.batch();
        into.summary.number = self.ended;
        into.summary.start = batch.start();
        into.summary.slots = batch.slots();
        into.summary.granted = batch.granted();
        into.dropped = self.stage.dropped();
        into.drained.clear();
        self.stage.exchange(&mut into.grants, &mut into.drained);
        into.has_schedule = false;
        into.rack_nodes = self.paths.rack_nodes();
        if let CorePaths::One(_) = self.paths {
            return;
        }
        into.build_schedule();
        let (start, slots) = (into.summary.start, into.summary.slots);
        into.summary.without_path = self.paths.assign(&into.schedule, start, slots);
        for (src, routes) in into.routes.iter_mut().enumerate() {
            if into.schedule.busy(src as u32) != 0 {
                *routes = *self.paths.of(src as u32);
            }
        }
    }
}
