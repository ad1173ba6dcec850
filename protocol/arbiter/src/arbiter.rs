//! A complete arbiter in one machine, for the simulator and for a daemon with one core.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};

use crate::{
    Allocator, ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats, BatchSummary, Capacity,
    CapacityError, Comm, CommStats, Command, ControlPlane, CorePaths, Demand, Fault, RefusedDemand,
    RequestError, Schedule,
};

/// A [`ControlPlane`] together with the allocator and the path selection that it commands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arbiter {
    control_plane: ControlPlane,
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
            control_plane: ControlPlane::new(config)?,
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
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Whether this arbiter currently grants timeslots.
    pub fn is_primary(&self) -> bool {
        self.control_plane.is_primary()
    }

    /// Returns the highest epoch that this arbiter has claimed or received.
    pub fn epoch(&self) -> u32 {
        self.control_plane.epoch()
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
        self.control_plane.comm()
    }

    /// Returns the counters of the control protocol.
    pub fn comm_stats(&self) -> &CommStats {
        self.control_plane.comm_stats()
    }

    /// Returns the counters of the arbiter.
    pub fn stats(&self) -> &ArbiterStats {
        self.control_plane.stats()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ArbiterConfig {
        self.control_plane.config()
    }

    /// Marks a fault as repaired: an avoided link or path is used again from the next batch on.
    pub fn repair(&mut self, fault: Fault) {
        self.control_plane.repair(fault);
    }

    /// Asserts what no input can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.control_plane.check_invariants();
        self.allocator.check_invariants();
        self.control_plane.comm().check_totals();
        assert_eq!(self.batches, self.stats().batches, "each batch was advertised");
    }

    /// Executes all pending commands of the control plane.
    fn drain(&mut self, now: Now) {
        while let Some(command) = self.control_plane.poll_command(now.mono) {
            self.execute(now, command);
        }
    }

    fn execute(&mut self, now: Now, command: Command) {
        match command {
            Command::Demand(Demand::Forget(src)) => self.allocator.forget(src),
            Command::Demand(Demand::Want { src, dst, slots }) => {
                let refused = match self.allocator.request(src, dst, slots) {
                    Ok(()) => return,
                    Err(RequestError::TooMuch { refused }) => refused,
                    Err(_) => slots,
                };
                let refused = RefusedDemand { src, dst, slots: refused };
                self.control_plane.on_refused(self.batches, refused);
            }
            Command::Avoid { fault, is_avoided } => {
                self.paths.avoid(fault, is_avoided).expect("faults are found in this fabric");
            }
            Command::Overload => self.allocator.on_overload(),
            Command::Batch(start) => {
                self.allocator.skip_to(start);
                let batch = self.allocator.next_batch();
                let (granted, slots) = (batch.granted(), batch.slots());
                self.schedule.fill(batch.grants());
                let batch = BatchSummary {
                    number: self.batches,
                    start,
                    slots,
                    granted,
                    without_path: self.paths.assign(&self.schedule, start, slots),
                    wanted: self.allocator.wanted(),
                    pairs: self.allocator.pairs(),
                };
                self.batches += 1;
                self.control_plane.on_batch_granted(now, &batch, &self.schedule, &self.paths);
            }
        }
    }
}

impl Machine for Arbiter {
    type Event = ArbiterEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let verdict = self.control_plane.handle_frame(now, port, frame);
        self.drain(now);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.control_plane.handle_timeout(now);
        self.drain(now);
        // After a delay more batches are due than may be in flight at a time.
        while self.control_plane.is_batch_due(now) {
            self.control_plane.handle_timeout(now);
            self.drain(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.control_plane.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<ArbiterEvent> {
        self.control_plane.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.control_plane.poll_timeout()
    }
}
