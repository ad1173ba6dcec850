//! An endpoint of scheduled transfer: packets wait until their timeslot begins.
//!
//! For each destination the endpoint keeps the total number of timeslots requested, and the total
//! granted. Its demand is the granted total plus the packets that wait without a grant, so a grant
//! that is lost or too late is requested again by itself (`docs/design/arbiter.md`, "Why totals,
//! and no requests that must arrive?").

mod calendar;
mod config;
mod loss;
mod queue;
mod request;
mod slot;

use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::BoundedQueue;
use onepipe_wire::{
    Drops, Fcp, FcpEncoding, FcpGrant, FcpPart, FcpTotal, Frame, NO_PATH, Opcode, SHORT_HEADER_LEN,
    Slot, SlotPackets,
};

use crate::clock::expand;
use crate::fcp::{FrameAddress, PacketVerdict, seal_frame};
use crate::{ConfigError, SlotClock};
use calendar::{SlotCalendar, SlotGrant};
use loss::LossDetector;
use queue::{Cells, Queue};
use request::Requester;

pub(crate) use config::{CONTROL_INTERVAL_SLOTS, LENGTH_BYTES};
pub use config::{ClientConfig, EnqueueError, Labels, ParamsMismatch};

/// An event of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClientEvent {
    /// This arbiter is asked from now on.
    ArbiterChanged(ProcessId),
    /// An arbiter rejects this endpoint's settings. Reported when that begins and when it changes.
    ParamsMismatch(ParamsMismatch),
}

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientStats {
    /// Packets accepted.
    pub packets: u64,
    /// Packets rejected because a queue was full.
    pub packets_refused: u64,
    /// Slot frames sent.
    pub slots_sent: u64,
    /// Slot frames received.
    pub slots_received: u64,
    /// Slot frames that were sent to this endpoint and lost, by their sequence numbers.
    pub slots_lost: u64,
    /// Lost slot frames whose path is unknown.
    pub slots_lost_without_path: u64,
    /// Timeslots granted in time.
    pub granted: u64,
    /// Granted timeslots in which no packet waited.
    pub idle: u64,
    /// Granted timeslots that had begun too long ago on arrival of the grant or when it was used.
    pub late: u64,
    /// Granted timeslots that were too far ahead.
    pub ahead: u64,
    /// Timeslots granted twice, which correct arbiters never do.
    pub duplicate: u64,
    /// Control packets sent.
    pub control_sent: u64,
    /// Bytes of control packets and loss reports sent, with frame headers.
    pub control_bytes: u64,
    /// Control packets accepted.
    pub control_received: u64,
    /// Control packets out of step.
    pub control_bad: u64,
    /// Resets sent or accepted.
    pub resets: u64,
    /// Resets of arbiters that are configured with another timeslot length or number of endpoints.
    pub params_mismatch: u64,
    /// Resets of arbiters whose clock differs by more than a second; ignored.
    pub clock_skewed: u64,
    /// Frames that are invalid, or not for this endpoint.
    pub dropped: u64,
}

/// State of one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Destination {
    queue: Queue,
    /// Granted timeslots that have not begun.
    pending_grants: u32,
    /// Slot frames sent to it, and the paths of the last three, latest first.
    sent: u32,
    earlier: [u8; 3],
}

/// An endpoint of scheduled transfer: packets wait in it until their timeslot begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    config: ClientConfig,
    clock: SlotClock,
    last: Option<Now>,
    destinations: Vec<Destination>,
    cells: Cells,
    calendar: SlotCalendar,
    request: Requester,
    losses: LossDetector,
    reported: Option<Mono>,
    params_mismatch: Option<ParamsMismatch>,
    events: BoundedQueue<ClientEvent>,
    stats: ClientStats,
}

impl Client {
    /// Creates an endpoint with empty queues. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: ClientConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let destination =
            Destination { queue: Queue::EMPTY, pending_grants: 0, sent: 0, earlier: [NO_PATH; 3] };
        Ok(Self {
            clock: SlotClock::new(config.slot_ns),
            last: None,
            destinations: alloc::vec![destination; config.nodes as usize],
            cells: Cells::new(config.slots_max, config.slot_payload_max()),
            calendar: SlotCalendar::new(config.late_slots_max, config.ahead_slots_max),
            request: Requester::new(&config),
            losses: LossDetector::new(config.nodes, config.reorder_ns),
            reported: None,
            params_mismatch: None,
            events: BoundedQueue::new(16),
            stats: ClientStats::default(),
            config,
        })
    }

    //= spec/arbiter.md#R6
    /// Queues a packet to `dst`, which is sent in a granted timeslot, perhaps with other packets.
    ///
    /// # Errors
    /// See [`EnqueueError`]; nothing was queued then.
    pub fn enqueue(&mut self, dst: ProcessId, packet: &[u8]) -> Result<(), EnqueueError> {
        let limit = self.config.slot_payload_max() - config::LENGTH_BYTES;
        if packet.len() > limit {
            return Err(EnqueueError::TooLong { bytes: packet.len(), limit });
        }
        if dst == self.config.process || dst.0 >= self.config.nodes {
            return Err(EnqueueError::Unknown(dst));
        }
        let queue = &mut self.destinations[dst.index()].queue;
        if !self.cells.append(queue, packet, self.config.queue_slots_max) {
            self.stats.packets_refused += 1;
            return Err(EnqueueError::Full);
        }
        self.stats.packets += 1;
        self.set_demand(dst.0 as u16);
        Ok(())
    }

    /// Asserts what no input can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        self.calendar.check_invariants();
        self.request.check_invariants();
        self.losses.check_invariants();
        self.cells.check_invariants(self.destinations.iter().map(|to| to.queue));
        let pending_grants: u32 = self.destinations.iter().map(|to| to.pending_grants).sum();
        assert_eq!(pending_grants, self.calendar.count(), "a grant is of a destination");
        let queues = self.destinations.iter().map(|to| to.queue.cells()).max();
        assert!(queues <= Some(self.config.queue_slots_max), "a queue is bounded");
    }

    /// Returns the packets of a slot frame that was consumed; `None` for other frames.
    pub fn packets(frame: &[u8]) -> Option<SlotPackets<'_>> {
        let frame = Frame::parse(frame).ok().filter(|frame| frame.opcode == Opcode::Slot)?;
        Some(Slot::parse(frame.payload).ok()?.1)
    }

    /// Returns the number of timeslots that the packets waiting for `dst` fill.
    pub fn queued(&self, dst: ProcessId) -> u32 {
        self.destinations.get(dst.index()).map_or(0, |to| to.queue.cells())
    }

    /// Returns the number of timeslots that all waiting packets fill.
    pub fn backlog(&self) -> u32 {
        self.cells.waiting()
    }

    /// Returns the timeslots to `dst` requested since the last reset, and granted, both modulo
    /// 2^16. They are equal when nothing is pending.
    pub fn totals(&self, dst: ProcessId) -> (u16, u16) {
        self.request.totals(dst.0 as u16)
    }

    /// Returns the number of granted timeslots that have not begun.
    pub fn pending_grants(&self) -> u32 {
        self.calendar.count()
    }

    /// Returns the current arbiter.
    pub fn arbiter(&self) -> ProcessId {
        self.request.arbiter()
    }

    /// Returns why nothing is granted, if an arbiter has reported so and none has answered since.
    pub fn params_mismatch(&self) -> Option<ParamsMismatch> {
        self.params_mismatch
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&self) -> &ClientStats {
        &self.stats
    }

    //= spec/arbiter.md#R2
    /// Updates the demand of `dst` after a change of its queue or its grants.
    fn set_demand(&mut self, dst: u16) {
        let to = &self.destinations[usize::from(dst)];
        debug_assert!(to.pending_grants <= self.calendar.count(), "a grant is in the calendar");
        self.request.set_demand(dst, to.queue.cells().saturating_sub(to.pending_grants));
    }

    //= spec/arbiter.md#R21
    /// Restarts all totals at zero and requests timeslots for the waiting packets. Granted
    /// timeslots stay valid.
    fn on_reset(&mut self) {
        self.stats.resets += 1;
        self.request.forget();
        for dst in 0..self.config.nodes as u16 {
            self.set_demand(dst);
        }
    }

    fn on_now(&mut self, now: Now) {
        if self.last.is_none() {
            self.request.restart(now);
            self.on_reset();
        }
        self.last = Some(now);
    }

    fn on_fcp(&mut self, now: Now, frame: &Frame<'_>) -> Verdict {
        let (src, psn, payload) = (frame.header.src(), frame.header.psn().0, frame.payload);
        let (Some(index), Ok(fcp)) = (self.request.index_of(src), Fcp::parse(psn, payload)) else {
            return self.drop_frame();
        };
        let incarnation = frame.header.incarnation();
        if self.request.is_stale_incarnation(index, incarnation) {
            return self.drop_frame();
        }
        if let Some(params_mismatch) = self.request.params_mismatch(src, &fcp) {
            self.stats.params_mismatch += 1;
            if self.params_mismatch.replace(params_mismatch) != Some(params_mismatch) {
                self.events.push(ClientEvent::ParamsMismatch(params_mismatch));
            }
            return Verdict::Dropped;
        }
        if self.request.follow_late_reset(now, index, &fcp) {
            self.events.push(ClientEvent::ArbiterChanged(src));
            self.on_reset();
            return Verdict::Consumed;
        }
        match self.request.verify(now, index, &fcp) {
            PacketVerdict::Accepted { is_new_session } => {
                self.stats.control_received += 1;
                self.params_mismatch = None;
                self.request.on_incarnation(index, incarnation);
                if is_new_session {
                    self.events.push(ClientEvent::ArbiterChanged(src));
                    self.on_reset();
                }
                self.on_parts(now, &fcp);
                Verdict::Consumed
            }
            PacketVerdict::Duplicate | PacketVerdict::Stale => {
                self.stats.clock_skewed += u64::from(self.request.is_clock_skewed(now, &fcp));
                Verdict::Dropped
            }
            PacketVerdict::NoSession | PacketVerdict::OutOfStep { is_burst: false } => {
                self.stats.control_bad += 1;
                Verdict::Dropped
            }
            PacketVerdict::OutOfStep { is_burst: true } => {
                self.stats.control_bad += 1;
                self.request.restart(now);
                self.on_reset();
                Verdict::Dropped
            }
        }
    }

    fn on_parts(&mut self, now: Now, fcp: &Fcp<'_>) {
        let present = self.clock.at(now.sync);
        for part in fcp.parts() {
            match part {
                FcpPart::Reset(_) => {}
                FcpPart::Arrival(arrival) => {
                    let batch_ns = u64::from(arrival.batch_slots) * self.config.slot_ns;
                    self.request.on_arrival(fcp.received, arrival.early_ns, batch_ns);
                }
                FcpPart::Grants(grants) => {
                    let base = expand(grants.base(), present);
                    for FcpGrant { slot, dst, path } in grants.grants() {
                        if self.is_other(dst) {
                            self.record_grant(
                                present,
                                base.plus(slot.into()),
                                SlotGrant { dst, path },
                            );
                            self.request.on_granted(dst, fcp.sequence);
                        }
                    }
                    grants.grants().for_each(|grant| self.set_demand_checked(grant.dst));
                }
                FcpPart::Totals(totals) if totals.encoding() == FcpEncoding::ShortMap => {
                    // Only endpoints send short maps.
                }
                FcpPart::Totals(totals) => {
                    for FcpTotal { dst, total } in totals.totals() {
                        if self.is_other(dst) {
                            self.request.on_total(dst, fcp.sequence, total);
                            self.set_demand(dst);
                        }
                    }
                }
            }
        }
    }

    fn is_other(&self, dst: u16) -> bool {
        u32::from(dst) != self.config.process.0 && u32::from(dst) < self.config.nodes
    }

    fn set_demand_checked(&mut self, dst: u16) {
        if self.is_other(dst) {
            self.set_demand(dst);
        }
    }

    /// Handles a frame that was parsed.
    pub(crate) fn on_frame(&mut self, now: Now, frame: &Frame<'_>) -> Verdict {
        self.on_now(now);
        let is_ours = frame.header.dst() == self.config.process;
        let verdict = match frame.opcode {
            Opcode::Fcp if is_ours => self.on_fcp(now, frame),
            Opcode::Slot if is_ours => self.on_slot(now, frame),
            _ => self.drop_frame(),
        };
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        verdict
    }

    fn drop_frame(&mut self) -> Verdict {
        self.stats.dropped += 1;
        Verdict::Dropped
    }

    fn address(&self, dst: ProcessId) -> FrameAddress {
        FrameAddress { src: self.config.process, incarnation: self.config.incarnation, dst }
    }

    /// Writes a control packet, a watchdog for an outdated arbiter, or a loss report.
    fn poll_control(&mut self, now: Now, buffer: &mut [u8]) -> Option<usize> {
        let address = self.address(self.request.arbiter());
        let bytes =
            if let Some((stale_arbiter, watchdog)) = self.request.poll_stale_arbiter(now.mono) {
                let payload = watchdog.write(&mut buffer[SHORT_HEADER_LEN..])?;
                seal_frame(buffer, Opcode::Watchdog, self.address(stale_arbiter), 0, payload)
            } else if let Some((watchdog, incarnation)) = self.request.poll_replaced(now.mono) {
                let payload = watchdog.write(&mut buffer[SHORT_HEADER_LEN..])?;
                let address = self.address(watchdog.primary);
                seal_frame(buffer, Opcode::Watchdog, address, incarnation.0, payload)
            } else if let Some((number, payload)) =
                self.request.poll(now.mono, &mut buffer[SHORT_HEADER_LEN..])
            {
                self.stats.control_sent += 1;
                seal_frame(buffer, Opcode::Fcp, address, number, payload)
            } else if self.report_due().is_some_and(|due| due <= now.mono) {
                self.reported = Some(now.mono);
                let payload = Drops::write(&mut buffer[SHORT_HEADER_LEN..], self.losses.drain());
                seal_frame(buffer, Opcode::Drops, address, 0, payload)
            } else {
                return None;
            };
        self.stats.control_bytes += bytes as u64;
        Some(bytes)
    }

    fn report_due(&self) -> Option<Mono> {
        let after = |last: Mono| last.after_ns(self.config.loss_report_ns);
        let next = self.reported.map_or(Mono::from_ns(0), after);
        self.losses.has_reports().then_some(next)
    }
}

impl Machine for Client {
    type Event = ClientEvent;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        match Frame::parse(frame) {
            Ok(frame) => self.on_frame(now, &frame),
            Err(_) => self.drop_frame(),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.on_now(now);
        self.losses.on_timeout(now.mono);
        self.stats.slots_lost = self.losses.lost;
        self.stats.slots_lost_without_path = self.losses.lost_without_path;
        if self.request.on_timeout(now) {
            self.events.push(ClientEvent::ArbiterChanged(self.request.arbiter()));
            self.on_reset();
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.on_now(now);
        if slot.len() < self.config.frame_len_max {
            return None;
        }
        let buffer = &mut slot[..self.config.frame_len_max];
        let bytes = match self.poll_slot(now, buffer) {
            Some(bytes) => bytes,
            None => self.poll_control(now, buffer)?,
        };
        Some(Transmit { port: Port(0), bytes })
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.last.is_none() {
            return Some(Mono::from_ns(0));
        }
        let next = Mono::earlier(self.slot_due(), self.request.due());
        Mono::earlier(next, Mono::earlier(self.losses.due(), self.report_due()))
    }
}
