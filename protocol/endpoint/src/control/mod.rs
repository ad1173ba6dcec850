//! The process's side of failures: who is on its links, what the controllers tell it, what it tells
//! them (design: docs/design/failure.md).
//!
//! [`ControlPlane`] owns no registers and no messages. The composer shows it frames and dead links, and
//! does what it is told: it discards, recalls, calls the application back, and says when that is
//! done. The steps, in the composer's words:
//!
//! 1. Every intact frame for this process goes through [`ControlPlane::on_link_frame`] first, which says
//!    whether to go on with it, and whether its promises count. Silence, unlinking and goodbyes go
//!    to [`ControlPlane::on_link_down`].
//! 2. A frame whose opcode `is_control` goes to [`ControlPlane::on_frame`], and its promises nowhere.
//!    After `LinksChanged`, `Reborn` or `Dead` the barriers are read anew from the registers.
//! 3. Then [`ControlPlane::poll_failure`] until it is empty, and [`ControlPlane::excluded`].
//! 4. While [`ControlPlane::is_completion_pending`] and everything polled is done:
//!    [`ControlPlane::on_failures_handled`].
//! 5. In `poll_transmit`, a beacon if [`ControlPlane::take_beacon`], then [`ControlPlane::write_next`] until
//!    it is empty, each with the header of [`ControlPlane::header`].
//!
//! Without controllers it only watches the links: it writes nothing, nothing freezes.

mod announcer;
mod failures;
mod flood;
mod handle;
mod links;
mod recovery;
mod relay;
mod round_robin;
mod stats;
mod undeliverable;

#[cfg(test)]
mod tests;

use onepipe_base::{
    Address, Backoff, Controllers, Incarnation, Instance, Mono, Port, ProcessId, Promises, Psn,
    Registers, Timestamp,
};
use onepipe_wire::{Failure, Header, Opcode, Undeliverable};

use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{Config, Links};

use announcer::Announcer;
use failures::Failures;
use flood::Floods;
pub(crate) use handle::Handled;
pub(crate) use links::LinkEvent;
use links::LinkMonitor;
pub(crate) use recovery::Recovered;
use recovery::RecoveryClient;
pub(crate) use relay::RELAY_OVERHEAD_BYTES;
use relay::Relay;
pub use stats::ControlStats;
use undeliverable::UndeliverableQueue;

/// The first repetition follows after two beacon intervals, or, without beacons, after this, in ns
/// (failure.md, "Where is the controller?").
const BACKOFF_MIN_NS: u64 = 20_000;
/// A controller on a link of its own says hello every 20 us, while other links bear beacons every
/// 3 us and die after ten of them. Ten of theirs may be missing here, too, and controllers are in
/// no hurry: this many link timeouts.
const CONTROLLER_TIMEOUTS: u64 = 10;
/// A peer is written to by relay for this many slow announcements before it is tried directly
/// again: by then the controllers know whatever has changed about its links.
const RELAY_INTERVALS: u64 = 10;

/// A frame to be sealed: its payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControlFrame {
    /// To whom; this process itself when the frame crosses one link only.
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    /// Bytes of payload.
    pub payload_len: usize,
    /// The link that it speaks of, with a single hop. `None`: it is routed as any frame.
    pub hop_port: Option<Port>,
}

impl ControlFrame {
    fn to(to: ProcessId, opcode: Opcode, psn: Psn, payload_len: usize) -> Self {
        Self { to, opcode, psn, payload_len, hop_port: None }
    }
}

/// See the module's first page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControlPlane {
    process: ProcessId,
    own: Instance,
    processes_max: u32,
    controllers: Option<Controllers>,
    links: LinkMonitor,
    announcer: Announcer,
    floods: Floods,
    failures: Failures,
    relay: Relay,
    undeliverable: UndeliverableQueue,
    recover: RecoveryClient,
    /// Who has asked for a sign of life.
    pending_pong: Option<ProcessId>,
    /// Who speaks as the active controller, and when it last did.
    active: Option<(ProcessId, Mono)>,
    excluded: Option<Timestamp>,
    /// The store of the controllers knows of this life, and it was told who had failed before.
    is_registered: bool,
    stats: ControlStats,
}

impl ControlPlane {
    /// For a process that has heard nothing. `announce_interval_ns` is the slow pace at which
    /// everything is said again, in ns.
    pub fn new(
        config: &Config,
        controllers: Option<Controllers>,
        announce_interval_ns: u64,
    ) -> Self {
        let own =
            Instance { address: Address::Process(config.process), incarnation: config.incarnation };
        let links = match config.links {
            Links::Uplink | Links::Overlay => 1,
            Links::Mesh => config.processes_max as u16,
        };
        let controller_timeout_ns = CONTROLLER_TIMEOUTS.saturating_mul(config.link_timeout_ns);
        let all = controllers.unwrap_or(Controllers { first: ProcessId(0), count: 0 });
        let backoff_min_ns = match config.beacon_interval_ns {
            0 => BACKOFF_MIN_NS,
            beacon => 2 * beacon,
        };
        let backoff = Backoff::new(backoff_min_ns, announce_interval_ns);
        // What leads past the aggregator is no link.
        let (kind, beacon_ns) = match config.links {
            Links::Uplink | Links::Overlay => (Links::Uplink, config.beacon_interval_ns),
            Links::Mesh => (Links::Mesh, 0),
        };
        let links =
            LinkMonitor::new(own, (kind, links), controllers, controller_timeout_ns, beacon_ns);
        // Batches of consecutive lives are numbered far apart.
        let first = Psn(config.incarnation.0 << 16);
        let relay_ns = RELAY_INTERVALS.saturating_mul(announce_interval_ns);
        Self {
            process: config.process,
            own,
            processes_max: config.processes_max,
            controllers,
            links,
            announcer: Announcer::new(
                all,
                Backoff::with_jitter(backoff_min_ns, announce_interval_ns, own.address),
            ),
            floods: Floods::new(),
            failures: Failures::new(config.processes_max),
            relay: Relay::new(all, config.frame_len_max, relay_ns),
            undeliverable: UndeliverableQueue::new(all, backoff.clone(), first),
            recover: RecoveryClient::new(all, backoff),
            pending_pong: None,
            active: None,
            excluded: None,
            is_registered: controllers.is_none(),
            stats: ControlStats::default(),
        }
    }

    /// A frame has arrived on `port`. Answers what it has shown about the link, and whether to go
    /// on with the frame. Of what has crossed a switch nothing is learned.
    #[inline]
    pub fn on_link_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        (header, opcode): (&Header, Opcode),
    ) -> LinkEvent {
        let event = self.links.on_frame(registers, now, (port, header, opcode));
        self.stats.frames_refused += u64::from(event == LinkEvent::Refused);
        event
    }

    /// The world knows which life is at the other end of `port`, where promises lie in memory and
    /// no frame need say it. To be told once, and again when it has changed.
    pub fn on_peer_instance(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        instance: Instance,
    ) -> LinkEvent {
        self.links.on_peer_instance(registers, now, port, instance)
    }

    /// Nothing more is heard on `port`: silence, or the world says so. Freezes its register
    /// (without controllers: drops it). Answers whether it was up.
    pub fn on_link_down(&mut self, registers: &mut Registers, port: Port) -> bool {
        self.links.on_link_down(registers, port)
    }

    /// Whom this end hears on `port`, for own frames that cross it only.
    pub fn peer(&self, registers: &Registers, port: Port) -> Option<Instance> {
        self.links.peer(registers, port)
    }

    /// The next failure that this process was not told before. It may cover this process, too.
    #[inline]
    pub fn poll_failure(&mut self) -> Option<Failure> {
        self.failures.poll()
    }

    /// The failure timestamp of this very life: it was told that it has failed, and must stop. It
    /// keeps nobody waiting from then on, and announces nothing.
    #[inline]
    pub fn excluded(&self) -> Option<Timestamp> {
        self.excluded
    }

    /// When this life of `process` has failed, or the last failed one if that is a later one.
    /// `None` while it has not.
    #[inline]
    pub fn has_failed(&self, process: ProcessId, incarnation: Incarnation) -> Option<Timestamp> {
        self.failures.has_failed(process, incarnation)
    }

    /// The last life of `process` that has failed, if one has.
    pub fn last_failed(&self, process: ProcessId) -> Option<Incarnation> {
        self.failures.last_failed(process)
    }

    /// Whether the life that `port` was last heard of may be heard there, where the world hands
    /// promises over without a frame: not when it was declared dead.
    pub fn accepts_promises(&self, port: Port) -> bool {
        self.links.accepts_promises(port)
    }

    /// Whether a controller waits until everything polled by [`ControlPlane::poll_failure`] is done.
    pub fn is_completion_pending(&self) -> bool {
        self.floods.is_open() && !self.failures.has_unreported()
    }

    /// Everything that was polled is done: discarded, its recalls acknowledged or given to
    /// [`ControlPlane::on_undeliverable`], the application back from its callback. The answer leaves as
    /// soon as all of the latter are recorded.
    pub fn on_failures_handled(&mut self) {
        debug_assert!(!self.failures.has_unreported(), "nothing unpolled is done");
        if !self.failures.has_unreported() {
            self.floods.on_handled();
            self.ack_if_clear();
        }
    }

    fn ack_if_clear(&mut self) {
        if self.excluded.is_some() {
            self.floods.on_handled();
        } else if self.undeliverable.pending() > 0 {
            return;
        }
        self.floods.ack_handled();
    }

    /// A recall whose receiver has failed: to be recorded by the controllers. Answers false when
    /// too many wait already: try again later, and hold the completion back.
    pub fn on_undeliverable(&mut self, recall: Undeliverable) -> bool {
        self.undeliverable.push(recall)
    }

    /// How many recalls have been recorded since this was last asked: the first ones that were
    /// given to [`ControlPlane::on_undeliverable`].
    #[inline]
    pub fn take_acked_undeliverable(&mut self) -> usize {
        self.undeliverable.take_acked_undeliverable()
    }

    /// How many recalls are not recorded yet.
    #[cfg(test)]
    pub fn undeliverable_pending(&self) -> usize {
        self.undeliverable.pending()
    }

    /// Takes a sealed frame that shall be handed on by the controllers. Answers false when one
    /// still waits for [`ControlPlane::write_next`], the frame is too long by
    /// [`RELAY_OVERHEAD_BYTES`], or there are no controllers.
    pub fn encapsulate(&mut self, inner: &[u8]) -> bool {
        let active = self.active.map(|(process, _)| process);
        self.controllers.is_some() && self.relay.encapsulate(inner, active)
    }

    /// `peer` does not answer: frames to it go by relay for a while.
    pub fn on_unreachable(&mut self, now: Mono, peer: ProcessId) {
        if self.controllers.is_some() {
            self.relay.on_unreachable(now, peer);
        }
    }

    /// A frame has arrived from `peer` without a detour.
    #[inline]
    pub fn on_direct(&mut self, peer: ProcessId) {
        self.relay.on_direct(peer);
    }

    /// Whether frames to `peer` go by relay now.
    #[inline]
    pub fn is_relayed(&self, now: Mono, peer: ProcessId) -> bool {
        self.relay.is_relayed(now, peer)
    }

    /// Asks the controllers, until they answer, for what has happened. For a process that is
    /// excluded.
    pub fn start_recover(&mut self, now: Mono) {
        if self.controllers.is_some() {
            self.recover.start(now);
        }
    }

    /// The whole answer to [`ControlPlane::start_recover`], once.
    pub fn poll_recovered(&mut self) -> Option<Recovered> {
        self.recover.poll()
    }

    /// See [`LinkMonitor::is_two_way`].
    #[inline]
    pub fn is_two_way(&self, port: Port) -> bool {
        self.links.is_two_way(port)
    }

    /// Whether this life may scatter reliably: the controllers have taken note of it (failure.md,
    /// "How do controllers survive?"), or there are none. Its announcements ask them.
    #[inline]
    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// When the active controller was last heard.
    pub fn controller_last_seen(&self) -> Option<Mono> {
        self.active.map(|(_, last_seen)| last_seen)
    }

    /// Who was last heard as the active controller.
    pub fn active_controller(&self) -> Option<ProcessId> {
        self.active.map(|(process, _)| process)
    }

    /// The highest epoch of a controller heard; 0 before any.
    pub fn epoch(&self) -> u32 {
        self.floods.epoch()
    }

    pub fn stats(&self) -> &ControlStats {
        &self.stats
    }

    /// Whether the uplink is owed a beacon now, whatever else was sent on it; puts the next off.
    pub fn take_beacon(&mut self, now: Mono) -> bool {
        self.links.take_beacon(now)
    }

    /// Whether [`ControlPlane::take_beacon`] or [`ControlPlane::write_next`] has something before the next
    /// deadline.
    #[inline]
    pub fn wants_transmit(&self, registers: &Registers) -> bool {
        if self.controllers.is_none() {
            return self.links.wants_beacon();
        }
        let announces = self.excluded.is_none()
            && (self.pending_pong.is_some()
                || self.announcer.wants_transmit(registers, &self.links));
        announces
            || self.links.wants_beacon()
            || self.floods.wants_transmit()
            || self.relay.wants_transmit()
            || self.undeliverable.wants_transmit()
            || self.recover.wants_transmit()
    }

    /// Writes the next frame's payload. Answers are first: others wait for them.
    pub fn write_next(
        &mut self,
        now: Mono,
        registers: &Registers,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        self.controllers?;
        if let Some(frame) = self.floods.write(self.process, payload) {
            return Some(frame);
        }
        if let Some(to) = self.pending_pong.take()
            && self.excluded.is_none()
        {
            return Some(ControlFrame::to(to, Opcode::Pong, Psn::FIRST, 0));
        }
        let frame = self.relay.write(payload);
        let frame = frame.or_else(|| self.undeliverable.write(now, payload));
        let frame = frame.or_else(|| self.recover.write(now));
        if frame.is_some() || self.excluded.is_some() {
            return frame;
        }
        self.announcer.write(now, registers, &mut self.links, payload)
    }

    /// The header of such a frame, to be sealed by the composer. An announcement says up to where
    /// this process was told that reliable messages are `decided`.
    pub fn header(
        &self,
        registers: &Registers,
        frame: &ControlFrame,
        (promises, decided): (Promises, Option<Timestamp>),
    ) -> Header {
        let (opcode, to) = (frame.opcode, frame.to);
        if let Some(port) = frame.hop_port {
            return Header::hop_only(opcode, self.own, self.peer(registers, port), promises);
        }
        let message = match (opcode, decided) {
            (Opcode::Announce, Some(decided)) => decided,
            (Opcode::Announce, None) => promises.barrier.saturating_sub_ns(NO_PROMISE_AGE_NS),
            _ => promises.barrier,
        };
        let header = Header::new(opcode, self.process, to, self.own.incarnation);
        header.stamped(message, promises, frame.psn)
    }

    /// The deadline has come.
    pub fn on_timeout(&mut self, now: Mono) {
        self.links.on_timeout(now);
    }

    /// When [`ControlPlane::on_timeout`], [`ControlPlane::take_beacon`] and [`ControlPlane::write_next`] are due.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        let beacon = self.links.beacon_due();
        if self.controllers.is_none() {
            return beacon;
        }
        let requests = Mono::earlier(self.undeliverable.deadline(), self.recover.deadline());
        let requests = Mono::earlier(beacon, requests);
        if self.excluded.is_some() {
            return requests;
        }
        let links = Mono::earlier(self.links.deadline(), self.announcer.deadline());
        Mono::earlier(requests, links)
    }
}
