//! The control plane of an arbiter: sessions, election, batch schedule and fault isolation. The
//! allocation itself runs elsewhere, perhaps on other cores.

mod batch_scheduler;
mod config;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_isolation::{Fault, Isolation, Loss};
use onepipe_reliability::BoundedQueue;
use onepipe_timeslots::check_setting;
use onepipe_wire::{Drops, Frame, Opcode, SHORT_HEADER_LEN, WATCHDOG_LEN, Watchdog};

use crate::clock::SLOT_NS_MAX;
use crate::failover::{Change, Failover};
use crate::fcp::{FrameAddress, seal_frame};
use crate::{
    BATCH_SLOTS_MAX, BatchSummary, Comm, CommConfig, CommStats, Command, CorePaths, Paths,
    RefusedDemand, Routes, Schedule, SlotClock, Timeslot,
};

pub use batch_scheduler::{BatchScheduler, ScheduledBatch};
pub use config::{ArbiterConfig, ArbiterError, ArbiterEvent, ArbiterStats};

/// Maximum number of demands per batch: sixteen per endpoint with 4,096 endpoints. Further demands
/// wait for the next batch.
const BATCH_DEMANDS_MAX: u32 = 1 << 16;
/// Capacity of the command queue. A driver that lets it fill up has stopped.
const COMMANDS_MAX: usize = 256;

/// Incarnations count eighths of a second (`transport/clock`), in ns.
const INCARNATION_TICK_NS: u64 = 125_000_000;
/// How far the clock of a restarted arbiter may be ahead, ns: a minute, as for all joiners
/// (spec/ordering.md, R66).
const CLOCK_AHEAD_NS_MAX: u64 = 60_000_000_000;

/// The arbiter without its allocator.
///
/// After each call the driver passes all commands of [`ControlPlane::poll_command`] to the
/// allocator, in order. Results come back through [`ControlPlane::on_refused`] and
/// [`ControlPlane::on_batch_granted`], at once or later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControlPlane {
    config: ArbiterConfig,
    clock: SlotClock,
    comm: Comm,
    failover: Failover,
    isolation: Option<Isolation>,
    commands: BoundedQueue<Command>,
    /// Demands passed on since the last batch.
    demands: u32,
    scheduler: BatchScheduler,
    /// When the next batch is due.
    batch_due: Option<Mono>,
    /// Timeslots and pairs left waiting by the last batch.
    waiting: (u64, u32),
    events: BoundedQueue<ArbiterEvent>,
    stats: ArbiterStats,
    /// When this incarnation first ran.
    began: Option<Mono>,
}

impl ControlPlane {
    /// Creates a control plane without sessions. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: ArbiterConfig) -> Result<Self, ArbiterError> {
        let nodes = config.comm.nodes;
        check_setting((1..=SLOT_NS_MAX).contains(&config.slot_ns), "slot_ns", config.slot_ns)?;
        check_setting(
            config.allocator.nodes == nodes,
            "allocator's nodes",
            config.allocator.nodes,
        )?;
        check_setting(config.core.nodes() == nodes, "fabric's nodes", config.core.nodes())?;
        config.allocator.check()?;
        let clock = SlotClock::new(config.slot_ns);
        let batch_slots = config.allocator.batch_slots;
        let timing = config.isolation.timing(config.slot_ns, config.lead_ns, batch_slots);
        Ok(Self {
            isolation: CorePaths::new(config.core)?.isolation(timing),
            clock,
            comm: Comm::new(CommConfig { slot_ns: config.slot_ns, ..config.comm })?,
            failover: Failover::new(config.comm.process, config.failover.clone()),
            commands: BoundedQueue::new(COMMANDS_MAX),
            demands: 0,
            // `renew_after_batches` equals the number of workers of a pipeline, and 0 without one.
            scheduler: BatchScheduler::new(
                clock.slots(config.lead_ns),
                config.allocator.batch_slots,
                config.allocator.renew_after_batches,
            ),
            batch_due: None,
            waiting: (0, 0),
            events: BoundedQueue::new(64),
            stats: ArbiterStats::default(),
            began: None,
            config,
        })
    }

    /// Asserts what no input can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.comm.check_invariants();
        self.isolation.iter().for_each(Isolation::check_invariants);
        self.check_own_invariants();
    }

    /// Asserts what does not depend on the number of endpoints.
    fn check_own_invariants(&self) {
        self.failover.check_invariants();
        self.scheduler.check_invariants();
        assert!(self.commands.len() <= COMMANDS_MAX, "the commands are bounded");
        assert!(self.demands <= BATCH_DEMANDS_MAX, "the demands of a batch are bounded");
        assert!(self.batch_due.is_none() || self.is_primary(), "only a primary allocates");
        assert_eq!(self.comm.epoch(), self.failover.epoch(), "resets carry the known epoch");
        let stats = &self.stats;
        assert!(stats.lag_ns <= stats.lag_max_ns, "the longest delay is a maximum");
        assert!(stats.late <= stats.batches, "each late batch was allocated");
        assert!(stats.without_path <= stats.granted, "only granted timeslots need a path");
        assert!(stats.claims_refused <= stats.dropped, "rejected claims are dropped");
        if !self.is_primary() {
            assert_eq!(self.comm.known(), 0, "only a primary has sessions");
        }
    }

    /// Whether this arbiter grants timeslots.
    pub fn is_primary(&self) -> bool {
        self.failover.is_primary()
    }

    /// Returns the highest epoch claimed or received.
    pub fn epoch(&self) -> u32 {
        self.failover.epoch()
    }

    /// Returns the sessions with all endpoints.
    pub fn comm(&self) -> &Comm {
        &self.comm
    }

    /// Returns the counters of the control protocol.
    pub fn comm_stats(&self) -> &CommStats {
        self.comm.stats()
    }

    /// Returns the counters of the arbiter.
    pub fn stats(&self) -> &ArbiterStats {
        &self.stats
    }

    /// Returns the timeslots and the pairs that the last batch left waiting.
    pub fn waiting(&self) -> (u64, u32) {
        self.waiting
    }

    /// Returns the avoided links and paths, oldest first.
    pub fn avoided(&self) -> impl Iterator<Item = Fault> + '_ {
        self.isolation.iter().flat_map(Isolation::avoided)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ArbiterConfig {
        &self.config
    }

    /// Returns the next command for the allocator.
    pub fn poll_command(&mut self, now: Mono) -> Option<Command> {
        if self.demands < BATCH_DEMANDS_MAX
            && let Some(demand) = self.comm.poll_demand()
        {
            self.demands += 1;
            return Some(Command::Demand(demand));
        }
        let command = self.commands.pop()?;
        if let Command::Batch(_) = command {
            self.comm.close_batch(now);
            self.demands = 0;
        }
        Some(command)
    }

    /// Handles demand of a pair that batch `number` has rejected.
    pub fn on_refused(&mut self, number: u64, refused: RefusedDemand) {
        self.stats.refused += u64::from(refused.slots);
        self.comm.refuse(number, refused);
    }

    /// Advertises the grants and paths of a batch to the endpoints. Batches come in the order of
    /// their commands.
    pub fn on_batch_granted(
        &mut self,
        now: Now,
        batch: &BatchSummary,
        schedule: &Schedule,
        routes: &impl Routes,
    ) {
        let BatchSummary { start, slots, .. } = *batch;
        self.stats.batches += 1;
        self.stats.granted += u64::from(batch.granted);
        self.stats.without_path += u64::from(batch.without_path);
        self.waiting = (batch.wanted, batch.pairs);
        let (sync, begin) = (now.sync, self.clock.begin(start));
        self.stats.late += u64::from(begin <= sync);
        let ahead_ns = begin.since_ns(sync);
        let lead_ns = self.clock.slots(self.config.lead_ns) * self.config.slot_ns;
        self.stats.lag_ns = match ahead_ns {
            0 => lead_ns + sync.since_ns(begin),
            _ => lead_ns.saturating_sub(ahead_ns),
        };
        self.stats.lag_max_ns = self.stats.lag_max_ns.max(self.stats.lag_ns);
        // A third of the lead is reserved for the network and for endpoints to wake up.
        let due_ns = ahead_ns.saturating_sub(self.config.lead_ns / 3);
        let until = (due_ns > 0).then(|| now.mono.after_ns(due_ns));
        self.comm.grant(schedule, routes, batch, until);
        if let Some(isolation) = &mut self.isolation {
            count_granted(isolation, schedule, routes, slots);
        }
        self.scheduler.on_batch_granted(self.clock.at(sync), start);
        if self.batch_due.is_none() && self.is_primary() {
            self.plan_next_batch(now);
        }
    }

    /// Whether a batch is due and may be started.
    pub(crate) fn is_batch_due(&self, now: Now) -> bool {
        self.batch_due.is_some_and(|due| due <= now.mono)
    }

    fn on_change(&mut self, now: Now, change: Change) {
        match change {
            Change::Primary { may_overlap } => {
                self.stats.takeovers += 1;
                //= spec/arbiter.md#R28
                // The previous primary, perhaps this arbiter before a restart, may have granted a
                // lead and a batch ahead. One that is still alive goes on until it receives this
                // claim, which takes less than a lead.
                let leads = if may_overlap { 2 } else { 1 };
                let ahead = self.clock.slots((1 + leads) * self.config.lead_ns)
                    + leads * u64::from(self.config.allocator.batch_slots);
                let start = Timeslot(self.clock.at(now.sync).0 + ahead);
                self.scheduler.begin(start);
                self.comm.set_epoch(self.failover.epoch());
                self.comm.reset_all(now);
                self.plan_next_batch(now);
                self.events.push(ArbiterEvent::Primary(self.scheduler.next()));
            }
            Change::Secondary => {
                self.comm.close_all();
                self.batch_due = None;
                self.events.push(ArbiterEvent::Secondary);
            }
        }
    }

    //= spec/arbiter.md#R39
    /// Handles a watchdog. Only the configured arbiters and endpoints send any.
    fn on_watchdog(&mut self, now: Now, frame: &Frame<'_>) -> Verdict {
        let Ok(watchdog) = Watchdog::parse(frame.payload) else { return self.drop_frame() };
        let (src, named) = (frame.header.src(), Incarnation(frame.header.psn().0));
        let is_sender = src.0 < self.config.comm.nodes || self.failover.is_arbiter(src);
        let is_own = watchdog.primary == self.config.comm.process;
        if !is_sender
            || !self.failover.is_plausible(watchdog)
            || (is_own && named > self.incarnation_max(now.mono))
        {
            self.stats.claims_refused += 1;
            return self.drop_frame();
        }
        if is_own {
            self.on_own_incarnation(named);
        }
        if let Some(change) = self.failover.on_watchdog(now.mono, watchdog) {
            self.on_change(now, change);
        }
        self.comm.set_epoch(self.failover.epoch());
        Verdict::Consumed
    }

    /// Returns the highest incarnation that a process with this id can have started under by now.
    fn incarnation_max(&mut self, now: Mono) -> Incarnation {
        let since_ns = now.since_ns(*self.began.get_or_insert(now)) + CLOCK_AHEAD_NS_MAX;
        let ticks = u32::try_from(since_ns / INCARNATION_TICK_NS).unwrap_or(u32::MAX);
        Incarnation(self.config.comm.incarnation.0.saturating_add(ticks))
    }

    //= spec/arbiter.md#R30
    /// Handles a watchdog that names an incarnation of this arbiter. A later one means that two
    /// processes share an id, and that endpoints use the other one.
    fn on_own_incarnation(&mut self, incarnation: Incarnation) {
        if incarnation > self.config.comm.incarnation && self.failover.retire() {
            self.comm.close_all();
            self.batch_due = None;
            self.events.push(ArbiterEvent::Replaced { by: incarnation });
        }
    }

    /// Starts the batches that are due.
    fn schedule_batches(&mut self, now: Now) {
        let slot = self.clock.at(now.sync);
        while self.commands.len() + 2 <= COMMANDS_MAX
            && let Some(batch) = self.scheduler.poll_batch(slot)
        {
            self.stats.skipped += batch.skipped;
            if batch.is_overloaded {
                self.stats.held_back += 1;
                self.commands.push(Command::Overload);
            }
            self.commands.push(Command::Batch(batch.start));
        }
        self.plan_next_batch(now);
    }

    /// Sets the due time of the next batch; none while the maximum number of batches is in flight.
    fn plan_next_batch(&mut self, now: Now) {
        let due = self.scheduler.due();
        self.batch_due = due.map(|due| self.clock.mono(now, now.sync, due));
    }

    /// Handles an endpoint's report of lost packets.
    fn on_drops(&mut self, now: Now, dst: ProcessId, payload: &[u8]) -> Verdict {
        let nodes = self.config.comm.nodes;
        let Ok(drops) = Drops::parse(payload) else { return self.drop_frame() };
        let Some(isolation) = self.isolation.as_mut().filter(|_| dst.0 < nodes) else {
            return self.drop_frame();
        };
        for loss in drops.losses().filter(|loss| u32::from(loss.src) < nodes) {
            self.stats.lost += u64::from(loss.lost);
            let onepipe_wire::Loss { src, path, lost } = loss;
            isolation.on_lost(now.mono, Loss { src, dst: dst.0 as u16, path, lost });
        }
        self.avoid_faulty(now.mono);
        Verdict::Consumed
    }

    /// Avoids the links and paths that are found to lose packets.
    fn avoid_faulty(&mut self, now: Mono) {
        while let Some(fault) = self.isolation.as_mut().and_then(|isolation| isolation.find(now)) {
            self.stats.faults += 1;
            self.commands.push(Command::Avoid { fault, is_avoided: true });
            self.events.push(ArbiterEvent::Avoided(fault));
        }
    }

    /// Marks a fault as repaired: an avoided link or path is used again from the next batch on.
    pub fn repair(&mut self, fault: Fault) {
        if self.isolation.as_mut().is_some_and(|isolation| isolation.repair(fault)) {
            self.commands.push(Command::Avoid { fault, is_avoided: false });
        }
    }

    fn drop_frame(&mut self) -> Verdict {
        self.stats.dropped += 1;
        Verdict::Dropped
    }
}

/// Counts the packets granted in a batch of `slots` timeslots.
fn count_granted(isolation: &mut Isolation, schedule: &Schedule, routes: &impl Routes, slots: u32) {
    let all = u64::MAX.unbounded_shr(BATCH_SLOTS_MAX - slots.min(BATCH_SLOTS_MAX));
    for src in 0..schedule.nodes() {
        let (row, paths) = (schedule.of(src), routes.of(src));
        let mut busy = schedule.busy(src) & all;
        while busy != 0 {
            let slot = busy.trailing_zeros() as usize;
            busy &= busy - 1;
            if paths[slot] != Paths::NONE {
                isolation.on_granted(src as u16, row[slot], paths[slot]);
            }
        }
    }
}

impl Machine for ControlPlane {
    type Event = ArbiterEvent;

    //= spec/arbiter.md#R38
    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let Ok(frame) = Frame::parse(frame) else { return self.drop_frame() };
        if frame.header.dst() != self.config.comm.process {
            return self.drop_frame();
        }
        let verdict = match frame.opcode {
            Opcode::Fcp if self.is_primary() => match self.comm.handle_frame(now, &frame) {
                true => Verdict::Consumed,
                false => Verdict::Dropped,
            },
            Opcode::Watchdog => self.on_watchdog(now, &frame),
            Opcode::Drops if self.is_primary() => {
                self.on_drops(now, frame.header.src(), frame.payload)
            }
            _ => self.drop_frame(),
        };
        if cfg!(debug_assertions) {
            self.check_own_invariants();
            self.comm.check_sender(frame.header.src());
        }
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.began.get_or_insert(now.mono);
        if let Some(change) = self.failover.on_timeout(now.mono) {
            self.on_change(now, change);
        }
        if !self.is_primary() {
            return;
        }
        self.comm.handle_timeout(now);
        while let Some(fault) =
            self.isolation.as_mut().and_then(|isolation| isolation.on_timeout(now.mono))
        {
            self.stats.retries += 1;
            self.commands.push(Command::Avoid { fault, is_avoided: false });
            self.events.push(ArbiterEvent::Retried(fault));
        }
        self.avoid_faulty(now.mono);
        if self.is_batch_due(now) {
            self.schedule_batches(now);
        }
        if cfg!(debug_assertions) {
            self.check_own_invariants();
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if slot.len() < self.config.comm.frame_len_max {
            return None;
        }
        if let Some((dst, watchdog)) = self.failover.poll_watchdog() {
            let CommConfig { process, incarnation, .. } = self.config.comm;
            let address = FrameAddress { src: process, incarnation, dst };
            let bytes = watchdog.write(&mut slot[SHORT_HEADER_LEN..]).unwrap_or(WATCHDOG_LEN);
            let bytes = seal_frame(slot, Opcode::Watchdog, address, 0, bytes);
            return Some(Transmit { port: Port(0), bytes });
        }
        let bytes = self.comm.poll_transmit(now, slot)?;
        Some(Transmit { port: Port(0), bytes })
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
