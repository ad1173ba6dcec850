//! The arbiter in one machine: what the simulator runs, and a daemon with one core.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Slew, Transmit, Verdict};
use onepipe_wire::{Drops, Frame, HEADER_OCTETS, Opcode, WATCHDOG_OCTETS, Watchdog};

use crate::failover::{Change, Failover, FailoverConfig};
use crate::fcp::{Ends, seal_frame};
use crate::isolate::{Fault, Isolation};
use crate::ring::Ring;
use crate::{
    Allocator, Capacity, CapacityError, Comm, CommConfig, CommStats, Config, ConfigError, Core,
    CorePaths, Demand, Fabric, FabricError, RequestError, Schedule, SlotClock, Timeslot,
};

/// Batches that are given out at once, when the driver was late: those before are skipped.
const CATCH_UP_MAX: u32 = 4;

/// How an [`Arbiter`] is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArbiterConfig {
    /// Its ends of the control protocol.
    pub comm: CommConfig,
    /// Its allocator; of as many endpoints.
    pub allocator: Config,
    /// The fabric; of as many endpoints.
    pub core: Core,
    /// Length of a timeslot, ns.
    pub slot_ns: u64,
    /// A batch is given out so long before it begins, ns. Default 65 us (design: arbiter.md
    /// section 1).
    pub lead_ns: u64,
    /// How it takes over from others. Default alone.
    pub failover: FailoverConfig,
}

impl ArbiterConfig {
    /// The defaults, for endpoints in racks of `rack_nodes` with `paths` ways from each to each.
    pub const fn new(
        process: ProcessId,
        nodes: u32,
        (rack_nodes, paths): (u32, u32),
        slot_ns: u64,
    ) -> Self {
        Self {
            comm: CommConfig::new(process, nodes),
            allocator: Config::new(nodes),
            core: Core::Racks(Fabric { nodes, rack_nodes, paths, is_strict: false }),
            slot_ns,
            lead_ns: 65_000,
            failover: FailoverConfig::ALONE,
        }
    }
}

/// Why an arbiter cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ArbiterError {
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no such fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// What an arbiter tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ArbiterEvent {
    /// It gives out timeslots from now on, from this one on.
    Primary(Timeslot),
    /// Another one does.
    Secondary,
    /// This loses packets, and is avoided.
    Avoids(Fault),
    /// This is used again, to see whether it still loses packets.
    Tries(Fault),
}

/// What an arbiter has done since its beginning, beside [`CommStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArbiterStats {
    /// Batches given out.
    pub batches: u64,
    /// Timeslots given out to pairs.
    pub given: u64,
    /// Of these, the ones for which no path was left.
    pub unplaced: u64,
    /// Timeslots skipped, because the driver was late.
    pub skipped: u64,
    /// Timeslots that were asked for and not taken, because as many pairs wait as may.
    pub refused: u64,
    /// Frames that are none, or not for an arbiter, or not for one that is not the primary.
    pub dropped: u64,
    /// Packets that endpoints have reported as lost, by path.
    pub lost: u64,
    /// Times that it has become the primary.
    pub takeovers: u64,
}

/// The arbiter in one machine: what the simulator runs, and a daemon with one core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arbiter {
    config: ArbiterConfig,
    clock: SlotClock,
    stamp: Slew,
    comm: Comm,
    allocator: Allocator,
    schedule: Schedule,
    paths: CorePaths,
    failover: Failover,
    isolation: Option<Isolation>,
    /// When the next batch is given out.
    batch_due: Option<Mono>,
    events: Ring<ArbiterEvent>,
    stats: ArbiterStats,
}

impl Arbiter {
    /// With nothing wanted. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: ArbiterConfig) -> Result<Self, ArbiterError> {
        let check = |is_right, name, value| match is_right {
            true => Ok(()),
            false => Err(ConfigError { name, value }),
        };
        let nodes = config.comm.nodes;
        check((1..=1 << 30).contains(&config.slot_ns), "slot_ns", config.slot_ns as u32)?;
        check(config.allocator.nodes == nodes, "allocator's nodes", config.allocator.nodes)?;
        check(config.core.nodes() == nodes, "fabric's nodes", config.core.nodes())?;
        let paths = CorePaths::new(config.core)?;
        Ok(Self {
            isolation: paths.isolation(),
            clock: SlotClock::new(config.slot_ns),
            stamp: Slew::new(),
            comm: Comm::new(config.comm)?,
            allocator: Allocator::new(config.allocator)?,
            schedule: Schedule::new(nodes),
            paths,
            failover: Failover::new(config.comm.process, config.failover.clone()),
            batch_due: None,
            events: Ring::new(64),
            stats: ArbiterStats::default(),
            config,
        })
    }

    /// Keeps what is shared between racks, or with the world outside, within its capacity.
    ///
    /// # Errors
    /// When the capacities are not of as many endpoints.
    pub fn limit(&mut self, capacity: Capacity) -> Result<(), CapacityError> {
        self.allocator.limit(capacity)
    }

    /// Whether it gives out timeslots.
    pub fn is_primary(&self) -> bool {
        self.failover.is_primary()
    }

    /// The highest epoch that it knows of.
    pub fn epoch(&self) -> u32 {
        self.failover.epoch()
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
        &self.comm
    }

    /// What its ends have done.
    pub fn comm_stats(&self) -> &CommStats {
        self.comm.stats()
    }

    /// What it has done.
    pub fn stats(&self) -> &ArbiterStats {
        &self.stats
    }

    /// As it was set up.
    pub fn config(&self) -> &ArbiterConfig {
        &self.config
    }

    /// Hands what was demanded to the allocator.
    fn drain(&mut self) {
        while let Some(demand) = self.comm.poll_demand() {
            match demand {
                Demand::Forget(src) => self.allocator.forget(src),
                Demand::Want { src, dst, slots } => {
                    let refused = match self.allocator.request(src, dst, slots) {
                        Ok(()) => continue,
                        Err(RequestError::TooMuch { refused }) => refused,
                        Err(_) => slots,
                    };
                    self.stats.refused += u64::from(refused);
                    self.comm.refuse(src, dst, refused);
                }
            }
        }
    }

    fn on_change(&mut self, now: Now, change: Change) {
        match change {
            Change::Primary { may_follow } => {
                self.stats.takeovers += 1;
                // Whoever was it before, itself perhaps, may have worked ahead by a lead and a
                // batch; and another one, if it is still alive, does so until it has heard of this
                // one, which takes less than a lead.
                let leads = if may_follow { 2 } else { 1 };
                let ahead = self.clock.slots((1 + leads) * self.config.lead_ns)
                    + leads * u64::from(self.config.allocator.batch_slots);
                let start = Timeslot(self.clock.at(self.stamp.read(now)).0 + ahead);
                self.allocator.skip_to(start);
                self.comm.set_epoch(self.failover.epoch());
                self.comm.reset_all(now);
                self.drain();
                self.plan(now);
                self.events.push(ArbiterEvent::Primary(self.allocator.next()));
            }
            Change::Secondary => {
                self.comm.close_all();
                self.drain();
                self.batch_due = None;
                self.events.push(ArbiterEvent::Secondary);
            }
        }
    }

    /// Gives out the batches that are due.
    fn give_out(&mut self, now: Now) {
        let sync = self.stamp.read(now);
        let lead = self.clock.slots(self.config.lead_ns);
        let until = Timeslot(self.clock.at(sync).0 + lead);
        let slots = self.config.allocator.batch_slots;
        let late = until.0.saturating_sub(self.allocator.next().0);
        if late > u64::from(CATCH_UP_MAX * slots) {
            self.stats.skipped += late;
            self.allocator.skip_to(until);
        }
        while self.allocator.next() <= until {
            let batch = self.allocator.next_batch();
            let start = batch.start();
            self.stats.batches += 1;
            self.stats.given += u64::from(batch.given());
            self.schedule.fill(batch.grants());
            self.stats.unplaced += u64::from(self.paths.assign(&self.schedule, slots));
            self.comm.grant(&self.schedule, &self.paths, start, slots);
            if let Some(isolation) = &mut self.isolation {
                isolation.on_granted(&self.schedule, &self.paths, slots);
            }
        }
        self.plan(now);
    }

    /// Notes when the next batch is due.
    fn plan(&mut self, now: Now) {
        let lead = self.clock.slots(self.config.lead_ns);
        let begin = Timeslot(self.allocator.next().0.saturating_sub(lead));
        self.batch_due = Some(self.clock.mono(now, self.stamp.read(now), begin));
    }

    /// An endpoint misses packets.
    fn on_drops(&mut self, now: Now, dst: ProcessId, payload: &[u8]) -> Verdict {
        let nodes = self.config.comm.nodes;
        let Ok(drops) = Drops::parse(payload) else { return self.drop_frame() };
        let Some(isolation) = self.isolation.as_mut().filter(|_| dst.0 < nodes) else {
            return self.drop_frame();
        };
        for loss in drops.losses().filter(|loss| u32::from(loss.src) < nodes) {
            self.stats.lost += u64::from(loss.lost);
            isolation.on_lost(now.mono, (loss.src, dst.0 as u16), loss.path, loss.lost);
        }
        while let Some(fault) = isolation.find(now.mono) {
            self.paths.avoid(fault, true).expect("it was found among those there are");
            self.events.push(ArbiterEvent::Avoids(fault));
        }
        Verdict::Consumed
    }

    /// It is known to be repaired: if it is avoided it is used again at once.
    pub fn repair(&mut self, fault: Fault) {
        if self.isolation.as_mut().is_some_and(|isolation| isolation.repair(fault)) {
            self.paths.avoid(fault, false).expect("it was found among those there are");
        }
    }

    fn drop_frame(&mut self) -> Verdict {
        self.stats.dropped += 1;
        Verdict::Dropped
    }
}

impl Machine for Arbiter {
    type Event = ArbiterEvent;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        self.stamp.read(now);
        let Ok(frame) = Frame::parse(frame) else { return self.drop_frame() };
        if frame.header.dst() != self.config.comm.process {
            return self.drop_frame();
        }
        match frame.opcode {
            Opcode::Fcp if self.is_primary() => {
                let is_taken = self.comm.handle_frame(now, &frame);
                self.drain();
                if is_taken { Verdict::Consumed } else { Verdict::Dropped }
            }
            Opcode::Watchdog => {
                let Ok(heard) = Watchdog::parse(frame.payload) else { return self.drop_frame() };
                if let Some(change) = self.failover.on_watchdog(now.mono, heard) {
                    self.on_change(now, change);
                }
                self.comm.set_epoch(self.failover.epoch());
                Verdict::Consumed
            }
            Opcode::Drops if self.is_primary() => {
                self.on_drops(now, frame.header.src(), frame.payload)
            }
            _ => self.drop_frame(),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.stamp.read(now);
        if let Some(change) = self.failover.on_timeout(now.mono) {
            self.on_change(now, change);
        }
        if !self.is_primary() {
            return;
        }
        self.comm.handle_timeout(now);
        self.drain();
        while let Some(fault) =
            self.isolation.as_mut().and_then(|isolation| isolation.on_timeout(now.mono))
        {
            self.paths.avoid(fault, false).expect("it was found among those there are");
            self.events.push(ArbiterEvent::Tries(fault));
        }
        if self.batch_due.is_some_and(|due| due <= now.mono) {
            self.give_out(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if slot.len() < self.config.comm.frame_octets_max {
            return None;
        }
        if let Some((dst, word)) = self.failover.poll() {
            let CommConfig { process, incarnation, .. } = self.config.comm;
            let ends = Ends { src: process, incarnation, dst };
            let octets = word.write(&mut slot[HEADER_OCTETS..]).unwrap_or(WATCHDOG_OCTETS);
            let octets = seal_frame(slot, (Opcode::Watchdog, ends, 0), now, octets);
            return Some(Transmit { port: Port(0), octets });
        }
        let octets = self.comm.poll_transmit(now, slot)?;
        Some(Transmit { port: Port(0), octets })
    }

    fn poll_event(&mut self) -> Option<ArbiterEvent> {
        self.events.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let comm = if self.is_primary() { self.comm.poll_timeout() } else { None };
        let faults = self.isolation.as_ref().and_then(Isolation::due);
        let faults = faults.filter(|_| self.is_primary());
        let next = Mono::earlier(Mono::earlier(comm, faults), self.batch_due);
        Mono::earlier(self.failover.due(), next)
    }
}
