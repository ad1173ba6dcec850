//! One core that gives out timeslots.

use alloc::vec::Vec;

use crate::between::Routes;
use crate::demand::{Flow, Flows};
use crate::desk::{BATCH_DEMANDS_MAX, Command, Given};
use crate::{
    Allocated, ArbiterConfig, ArbiterError, Capacity, CapacityError, CorePaths, Demand, Ledger,
    Refused, RequestError, Stage, Timeslot,
};

/// One core that gives out every so many-th batch, and chooses its paths.
///
/// Commands until its batch is open; then flows of the worker before, as they come; with the last
/// of them the ledger, which then goes to the next worker. After each of these what is
/// [`Worker::onward`] goes there too, behind the ledger; and when a batch has ended
/// [`Worker::write`] says what it was, before the next command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    stage: Stage,
    paths: CorePaths,
    /// The batch that is open, or will be next.
    number: u64,
    workers: u64,
    /// Its first timeslot, once it is open.
    start: Option<Timeslot>,
    /// All flows of the batch before have come.
    has_all: bool,
    demands: Vec<Demand>,
    /// A bit for each endpoint of which flows of batches before are forgotten.
    forgotten: Vec<u64>,
    forgets: bool,
    /// Their flows.
    dropped: Flows,
    onward: Flows,
    refused: Vec<Refused>,
    /// The batch that ended last.
    given: Given,
}

impl Worker {
    /// Number `at` of so many workers. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: &ArbiterConfig, at: usize, workers: usize) -> Result<Self, ArbiterError> {
        let pairs_max = config.allocator.pairs_max;
        Ok(Self {
            stage: Stage::new(config.allocator)?,
            paths: CorePaths::new(config.core)?,
            number: at as u64,
            workers: workers.max(1) as u64,
            start: None,
            has_all: false,
            demands: Vec::with_capacity(BATCH_DEMANDS_MAX as usize),
            forgotten: alloc::vec![0; config.allocator.nodes.div_ceil(u64::BITS) as usize],
            forgets: false,
            dropped: Flows::new(pairs_max),
            // And the end.
            onward: Flows::new(pairs_max + 1),
            refused: Vec::with_capacity(BATCH_DEMANDS_MAX as usize),
            given: *Allocated::new(0).given(),
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

    /// Whether all demands of its batch are here: it takes flows, and no commands.
    pub fn is_open(&self) -> bool {
        self.start.is_some()
    }

    /// Whether it takes the ledger now, which has been handed on before the last flow.
    pub fn has_all(&self) -> bool {
        self.has_all
    }

    /// The first of all workers has nobody before it at first: this is what comes to it.
    pub fn first_flows() -> [Flow; 1] {
        [Flow::END]
    }

    /// Takes commands until its batch is open. Answers how many: those behind are of a later one.
    ///
    /// # Panics
    /// When it is told to avoid what there is not, or of an endpoint that there is not.
    pub fn on_commands(&mut self, commands: &[Command]) -> usize {
        let taken = commands.iter().take_while(|command| {
            let is_taken = !self.is_open();
            if is_taken {
                self.on_command(**command);
            }
            is_taken
        });
        taken.count()
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Demand(demand) => {
                if let Demand::Forget(src) = demand {
                    self.forgotten[(src / u64::BITS) as usize] |= 1 << (src % u64::BITS);
                    self.forgets = true;
                }
                self.demands.push(demand);
            }
            Command::Avoid { fault, avoids } => {
                self.paths.avoid(fault, avoids).expect("it was found among those there are");
            }
            Command::Batch(start) => {
                self.stage.begin(self.number, start);
                self.start = Some(start);
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
        let Self { stage, dropped, onward, forgotten, .. } = self;
        if self.forgets {
            // How they are divided among calls changes nothing.
            let bits = u64::BITS as usize;
            let is_kept =
                |flow: &Flow| forgotten[flow.src() / bits] >> (flow.src() % bits) & 1 == 0;
            for run in own.chunk_by(|one, other| is_kept(one) == is_kept(other)) {
                if run.first().is_some_and(is_kept) {
                    stage.offer(run, onward);
                } else {
                    dropped.extend(run);
                }
            }
        } else {
            stage.offer(own, onward);
        }
        own.len() + usize::from(self.has_all)
    }

    /// Takes the ledger, when all flows have come, and ends the batch.
    pub fn on_ledger(&mut self, ledger: &mut Ledger) {
        debug_assert!(self.has_all, "flows come before");
        for demand in self.demands.drain(..) {
            match demand {
                Demand::Forget(src) => {
                    ledger.forget(src, &mut self.dropped);
                    self.refused.retain(|refused| refused.src != src);
                }
                Demand::Want { src, dst, slots } => {
                    let slots = match ledger.request(src, dst, slots) {
                        Ok(()) => continue,
                        Err(RequestError::TooMuch { refused }) => refused,
                        Err(_) => slots,
                    };
                    self.refused.push(Refused { src, dst, slots });
                }
            }
        }
        debug_assert!(self.dropped.is_empty(), "whoever is forgotten is forgotten by the ledger");
        if self.forgets {
            self.forgotten.fill(0);
            self.forgets = false;
        }
        self.stage.finish(ledger, &mut self.onward);
        self.onward.push(Flow::END);
        self.has_all = false;
        let batch = self.stage.batch();
        self.given = Given {
            number: self.number,
            start: batch.start(),
            slots: batch.slots(),
            given: batch.given(),
            unplaced: 0,
            wanted: ledger.wanted(),
            pairs: ledger.pairs(),
        };
        self.number += self.workers;
        self.start = None;
    }

    /// Flows for the next worker, in order.
    pub fn onward(&self) -> &[Flow] {
        self.onward.as_slice()
    }

    /// They have been handed on.
    pub fn clear_onward(&mut self) {
        self.onward.clear();
    }

    /// Chooses the paths of the batch that has ended, and writes all that there is to say of it.
    ///
    /// # Panics
    /// When `into` is of fewer endpoints.
    pub fn write(&mut self, into: &mut Allocated) {
        into.schedule.fill(self.stage.batch().grants());
        let unplaced = self.paths.assign(&into.schedule, self.given.slots);
        into.given = Given { unplaced, ..self.given };
        into.rack_nodes = self.paths.rack_nodes();
        let needs_paths = !matches!(self.paths, CorePaths::One(_));
        for (src, routes) in into.routes.iter_mut().enumerate().filter(|_| needs_paths) {
            if into.schedule.busy(src as u32) != 0 {
                *routes = *self.paths.of(src as u32);
            }
        }
        into.refused.clear();
        into.refused.append(&mut self.refused);
    }
}
