//! The arbiter in one machine: what the simulator runs, and a daemon with one core.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};

use crate::{
    Allocator, ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats, Capacity, CapacityError,
    Comm, CommStats, Command, CorePaths, Demand, Desk, Fault, Given, RequestError, Schedule,
};

/// The arbiter in one machine: a [`Desk`], and whoever does what it commands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arbiter {
    desk: Desk,
    allocator: Allocator,
    schedule: Schedule,
    paths: CorePaths,
    /// Batches given out.
    batches: u64,
}

impl Arbiter {
    /// With nothing wanted. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: ArbiterConfig) -> Result<Self, ArbiterError> {
        Ok(Self {
            allocator: Allocator::new(config.allocator)?,
            schedule: Schedule::new(config.allocator.nodes),
            paths: CorePaths::new(config.core)?,
            batches: 0,
            desk: Desk::new(config)?,
        })
    }

    /// Keeps what is shared between racks, or with the world outside, within its capacity.
    ///
    /// # Errors
    /// When the capacities are not of as many endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        self.allocator.limit(capacity)
    }

    /// All of it but for who is given what.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Whether it gives out timeslots.
    pub fn is_primary(&self) -> bool {
        self.desk.is_primary()
    }

    /// The highest epoch that it knows of.
    pub fn epoch(&self) -> u32 {
        self.desk.epoch()
    }

    /// Who sends to whom in the batch given out last.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// By which paths.
    pub fn paths(&self) -> &CorePaths {
        &self.paths
    }

    /// What is wanted.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Its ends of the control protocol.
    pub fn comm(&self) -> &Comm {
        self.desk.comm()
    }

    /// What its ends have done.
    pub fn comm_stats(&self) -> &CommStats {
        self.desk.comm_stats()
    }

    /// What it has done.
    pub fn stats(&self) -> &ArbiterStats {
        self.desk.stats()
    }

    /// As it was set up.
    pub fn config(&self) -> &ArbiterConfig {
        self.desk.config()
    }

    /// It is known to be repaired: if it is avoided it is used again from the next batch on.
    pub fn repair(&mut self, fault: Fault) {
        self.desk.repair(fault);
    }

    /// Does all that is commanded.
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
        // Who was late has more to give out than may be under way.
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
