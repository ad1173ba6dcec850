//! A complete arbiter in one machine, for the simulator and for a daemon with one core.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};

use crate::{
    Allocator, ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats, Capacity, CapacityError,
    Comm, CommStats, Command, CorePaths, Demand, Desk, Fault, Given, RequestError, Schedule,
};

/// A [`ControlPlane`] together with the allocator and the path selection that it commands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arbiter {
    desk: Desk,
    allocator: Allocator,
    schedule: Schedule,
    paths: CorePaths,
    /// Batches allocated so far.
    batches: u64,
}

impl Arbiter {
    /// Creates an arbiter without demand. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: ArbiterConfig) -> Result<Self, ArbiterError> {
        Ok(Self {
            allocator: Allocator::new(config.allocator)?,
            schedule: Schedule::new(config.allocator.nodes),
            paths: CorePaths::new(config.core)?,
            batches: 0,
            desk: Desk::new(config)?,
        })
    }

    /// Limits the traffic between racks, or out of the fabric, to a capacity.
    ///
    /// # Errors
    /// When the capacity was built for another number of endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        self.allocator.limit(capacity)
    }

    /// Returns the control plane.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Whether this arbiter currently grants timeslots.
    pub fn is_primary(&self) -> bool {
        self.desk.is_primary()
    }

    /// Returns the highest epoch that this arbiter has claimed or received.
    pub fn epoch(&self) -> u32 {
        self.desk.epoch()
    }

    /// Returns the source-destination pairs of the last batch.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the paths of the last batch.
    pub fn paths(&self) -> &CorePaths {
        &self.paths
    }

    /// Returns the allocator, which holds the unmet demand.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Returns the sessions with all endpoints.
    pub fn comm(&self) -> &Comm {
        self.desk.comm()
    }

    /// Returns the counters of the control protocol.
    pub fn comm_stats(&self) -> &CommStats {
        self.desk.comm_stats()
    }

    /// Returns the counters of the arbiter.
    pub fn stats(&self) -> &ArbiterStats {
        self.desk.stats()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ArbiterConfig {
        self.desk.config()
    }

    /// Marks a fault as repaired: an avoided link or path is used again from the next batch on.
    pub fn repair(&mut self, fault: Fault) {
        self.desk.repair(fault);
    }

    /// Executes all pending commands of the control plane.
    fn drain(&mut self, now: Now) {
        while let Some(command) = self.desk.poll_command() {
            self.obey(now, command);
        }
    }

    fn obey(&mut self, now: Now, command: Command) {
        match command {
            Command::Demand(Demand::Forget(src)) => self.allocator.forget(src),
            Command::Demand(Demand::Want { src, dst, slots }) => {
                let refused = match self.allocator.request(src, dst, slots) {
                    Ok(()) => return,
                    Err(RequestError::TooMuch { refused }) => refused,
                    Err(_) => slots,
                };
                self.desk.on_refused(self.batches, (src, dst), refused);
            }
            Command::Avoid { fault, avoids } => {
                self.paths.avoid(fault, avoids).expect("it was found among those there are");
            }
            Command::Late => self.allocator.on_late(),
            Command::Batch(start) => {
                self.allocator.skip_to(start);
                let batch = self.allocator.next_batch();
                let (given, slots) = (batch.given(), batch.slots());
                self.schedule.fill(batch.grants());
                let batch = Given {
                    number: self.batches,
                    start,
                    slots,
                    given,
                    unplaced: self.paths.assign(&self.schedule, start, slots),
                    wanted: self.allocator.wanted(),
                    pairs: self.allocator.pairs(),
                };
                self.batches += 1;
                self.desk.on_given(now, &batch, &self.schedule, &self.paths);
            }
        }
    }
}

impl Machine for Arbiter {
    type Event = ArbiterEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let verdict = self.desk.handle_frame(now, port, frame);
        self.drain(now);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.desk.handle_timeout(now);
        self.drain(now);
        // After a delay more batches are due than may be in flight at a time.
        while self.desk.is_batch_due(now) {
            self.desk.handle_timeout(now);
            self.drain(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.desk.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<ArbiterEvent> {
        self.desk.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.desk.poll_timeout()
    }
}
