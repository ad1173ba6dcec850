//! The dispatcher: turns commands of the control plane into work for the workers.

use onepipe_isolation::Fault;

use crate::{
    AllocatedBatch, Command, Config, ConfigError, Demand, DemandTable, Flow, RefusedDemand,
    RequestError, Timeslot,
};

/// A command for a worker; executed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerCommand {
    /// Drops flows of this endpoint that come from earlier batches.
    Forget(u32),
    /// Starts or stops avoiding a link or path.
    Avoid {
        /// The link or path.
        fault: Fault,
        /// Whether it is avoided.
        is_avoided: bool,
    },
    /// Allocates a batch.
    Batch {
        /// Its first timeslot.
        start: Timeslot,
        /// Number of new flows that were admitted for it.
        fresh: u32,
    },
    /// Completes the batch commanded before with renewed flows, which are the last.
    Renew {
        /// Number of renewed flows that were admitted.
        fresh: u32,
    },
}

/// The queues to the workers, by index of the worker.
pub trait WorkerQueues {
    /// Enqueues a command.
    fn command(&mut self, worker: usize, command: WorkerCommand);

    /// Enqueues new flows for the worker's next batch, whose command follows.
    fn admit(&mut self, worker: usize, flows: &[Flow]);
}

/// Keeps the demand table on the core that communicates. When a batch is closed, its new flows go
/// to the next worker in turn; workers pass unserved flows to each other, and drained flows come
/// back with the result of their batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dispatcher {
    demand: DemandTable,
    workers: usize,
    /// The worker of the next batch.
    next: usize,
}

impl Dispatcher {
    /// Capacity of a command queue: two resets of all endpoints, and all faults.
    pub const COMMANDS_MAX: usize = 1 << 13;

    /// Creates a dispatcher for `workers` (at least 1) workers, starting with the first. All memory
    /// is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range, or `renew_after_batches` is 0.
    pub fn new(config: &Config, workers: usize) -> Result<Self, ConfigError> {
        if config.renew_after_batches == 0 {
            return Err(ConfigError { name: "renew_after_batches of several cores", value: 0 });
        }
        Ok(Self { demand: DemandTable::new(config)?, workers: workers.max(1), next: 0 })
    }

    /// Whether a command can be executed: not while the last batch waits for
    /// [`Dispatcher::on_batch_allocated`] to be completed.
    pub fn is_ready(&self) -> bool {
        self.demand.is_ready()
    }

    /// Returns the number of the batch that is closed next.
    pub fn number(&self) -> u64 {
        self.demand.number()
    }

    /// Returns the worker of the next batch.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Returns the worker of the batch closed last.
    pub fn last(&self) -> usize {
        (self.next + self.workers - 1) % self.workers
    }

    /// Returns the timeslots requested and not known to be granted.
    pub fn wanted(&self) -> u64 {
        self.demand.wanted()
    }

    /// Returns the number of pairs that wait for them, without those whose flow came back and is
    /// not renewed yet.
    pub fn pairs(&self) -> u32 {
        self.demand.pairs()
    }

    /// Executes a command. Returns demand that was not taken.
    ///
    /// # Panics
    /// When the command is a batch and the dispatcher is not ready.
    pub fn execute(
        &mut self,
        command: Command,
        queues: &mut impl WorkerQueues,
    ) -> Option<RefusedDemand> {
        match command {
            Command::Demand(Demand::Want { src, dst, slots }) => {
                let slots = match self.demand.request(src, dst, slots) {
                    Ok(()) => return None,
                    Err(RequestError::TooMuch { refused }) => refused,
                    Err(_) => slots,
                };
                return Some(RefusedDemand { src, dst, slots });
            }
            Command::Demand(Demand::Forget(src)) => {
                self.demand.forget(src);
                queues.command(self.next, WorkerCommand::Forget(src));
            }
            // Every worker chooses paths.
            Command::Avoid { fault, is_avoided } => {
                (0..self.workers)
                    .for_each(|at| queues.command(at, WorkerCommand::Avoid { fault, is_avoided }));
            }
            Command::Overload => self.demand.on_overload(),
            Command::Batch(start) => {
                let at = self.next;
                let fresh = self.demand.close(|fresh| {
                    queues.admit(at, fresh);
                    fresh.len() as u32
                });
                queues.command(at, WorkerCommand::Batch { start, fresh });
                self.next = (at + 1) % self.workers;
                self.renew(queues);
                if cfg!(debug_assertions) {
                    self.demand.check_invariants();
                }
            }
        }
        None
    }

    /// Completes the batch closed last if its renewals are available.
    fn renew(&mut self, queues: &mut impl WorkerQueues) {
        let at = self.last();
        let fresh = self.demand.renew(|fresh| {
            queues.admit(at, fresh);
            fresh.len() as u32
        });
        if let Some(fresh) = fresh {
            queues.command(at, WorkerCommand::Renew { fresh });
        }
    }

    /// Handles the result of a batch; results come in the order of the batches. Returns whether a
    /// batch that waited for it is complete now.
    pub fn on_batch_allocated(
        &mut self,
        batch: &mut AllocatedBatch,
        queues: &mut impl WorkerQueues,
    ) -> bool {
        self.demand.on_batch(batch.summary.granted, batch.dropped, &mut batch.drained);
        batch.summary.wanted = self.demand.wanted();
        batch.summary.pairs = self.demand.pairs();
        let was_ready = self.is_ready();
        self.renew(queues);
        self.is_ready() && !was_ready
    }
}
