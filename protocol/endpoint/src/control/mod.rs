//! The control plane of a process: its links, and its protocol with the controllers
//! (docs/design/failure.md).
//!
//! [`ControlPlane`] owns neither registers nor messages. The endpoint passes frames and dead links
//! to it and acts on the results: it discards and recalls messages, runs the application's
//! callbacks, and reports completion. In steps:
//!
//! 1. Every intact frame for this process passes [`ControlPlane::on_link_frame`] first, which
//!    decides whether the frame and its promises are handled. Link timeouts, lost links and Leave
//!    frames go to [`ControlPlane::on_link_down`].
//! 2. A frame whose opcode `is_control` goes to [`ControlPlane::on_frame`]; its promises are
//!    ignored. After `LinksChanged`, `Restarted` or `Dead` the barriers are recomputed.
//! 3. Then [`ControlPlane::poll_failure`] until it is empty, and [`ControlPlane::excluded`].
//! 4. While [`ControlPlane::is_completion_pending`] and every polled failure is handled:
//!    [`ControlPlane::on_failures_handled`].
//! 5. In `poll_transmit`, a beacon if [`ControlPlane::take_beacon`], then
//!    [`ControlPlane::write_next`] until it is empty, each with the header of
//!    [`ControlPlane::header`].
//!
//! Without controllers the control plane only monitors the links: it sends nothing, and no link
//! freezes.

mod announcer;
mod check;
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
    Address, Backoff, Cause, Controllers, Incarnation, Instance, Mono, Port, ProcessId, Promises,
    Psn, Registers, Timestamp,
};
use onepipe_wire::{Failure, Frame, Header, Opcode, Undeliverable};

use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{Config, Links};

use announcer::Announcer;
use failures::Failures;
use flood::Floods;
pub(crate) use handle::Handled;
pub(crate) use links::LinkEvent;
use links::{LinkConfig, LinkMonitor};
pub(crate) use recovery::Recovered;
use recovery::RecoveryClient;
use relay::Relay;
pub use stats::ControlStats;
use undeliverable::UndeliverableQueue;

/// First retransmission interval without beacons, in ns; with beacons it is two beacon intervals
/// (docs/design/failure.md, "Where is the controller?").
const BACKOFF_MIN_NS: u64 = 20_000;
/// Timeout of a controller's own link, in link timeouts. A controller sends a Hello every 20 us,
/// while other links carry beacons every 3 us and time out after ten missing beacons. With this
/// factor a controller's link times out after more than ten missing Hellos, too; slow detection is
/// harmless here.
const CONTROLLER_TIMEOUTS: u64 = 10;

/// A frame to be sealed, whose payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControlFrame {
    /// Destination; this process itself if the frame crosses one link only.
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    /// Length of the payload in bytes.
    pub payload_len: usize,
    /// The port of a frame about its own link, which crosses a single hop. `None` if it is routed.
    pub hop_port: Option<Port>,
}

impl ControlFrame {
    fn to(to: ProcessId, opcode: Opcode, psn: Psn, payload_len: usize) -> Self {
        Self { to, opcode, psn, payload_len, hop_port: None }
    }
}

/// The control plane of a process. See the module documentation.
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
    recovery: RecoveryClient,
    /// The controller whose Ping is to be answered.
    pending_pong: Option<ProcessId>,
    /// The active controller, and when it was last seen.
    active_controller: Option<(ProcessId, Mono)>,
    excluded: Option<Timestamp>,
    /// This process was declared failed and has stopped: its commit barrier rises no more.
    has_stopped: bool,
    /// The controllers' store contains this incarnation, and earlier failures were reported to it.
    is_registered: bool,
    stats: ControlStats,
}

impl ControlPlane {
    /// Creates the control plane of a process that has received nothing. `announce_interval_ns` is
    /// the longest interval between repetitions.
    pub fn new(
        config: &Config,
        controllers: Option<Controllers>,
        announce_interval_ns: u64,
    ) -> Self {
        let own =
            Instance { address: Address::Process(config.process), incarnation: config.incarnation };
        let all = controllers.unwrap_or(Controllers { first: ProcessId(0), count: 0 });
        let backoff_min_ns = match config.beacon_interval_ns {
            0 => BACKOFF_MIN_NS,
            beacon => 2 * beacon,
        };
        let backoff = Backoff::new(backoff_min_ns, announce_interval_ns);
        // The direct port of an overlay is not a link.
        let (kind, count, beacon_interval_ns, heartbeat_interval_ns) = match config.links {
            Links::Uplink | Links::Overlay => {
                (Links::Uplink, 1, config.beacon_interval_ns, config.heartbeat_interval_ns)
            }
            Links::Mesh => (Links::Mesh, config.processes_max as u16, 0, 0),
        };
        let links = LinkConfig {
            kind,
            count,
            controllers,
            controller_timeout_ns: CONTROLLER_TIMEOUTS.saturating_mul(config.link_timeout_ns),
            beacon_interval_ns,
            heartbeat_interval_ns,
        };
        // Consecutive incarnations use distant ranges of batch numbers.
        let first = Psn(config.incarnation.0 << 16);
        // A round has a frame for each controller: at rest one per heartbeat.
        let rest_ns = config.heartbeat_interval_ns.saturating_mul(all.count.into());
        let announcements = Backoff::with_jitter(backoff_min_ns, announce_interval_ns, own.address)
            .resting(rest_ns);
        Self {
            process: config.process,
            own,
            processes_max: config.processes_max,
            controllers,
            links: LinkMonitor::new(own, links),
            announcer: Announcer::new(all, announcements),
            floods: Floods::new(),
            failures: Failures::new(config.processes_max),
            relay: Relay::new(all, config.frame_len_max, announce_interval_ns),
            undeliverable: UndeliverableQueue::new(all, backoff.clone(), first),
            recovery: RecoveryClient::new(all, backoff),
            pending_pong: None,
            active_controller: None,
            excluded: None,
            has_stopped: false,
            is_registered: controllers.is_none(),
            stats: ControlStats::default(),
        }
    }

    /// Updates the state of the link at `port` from a received frame. Returns whether to handle the
    /// frame and its promises. A frame that has crossed a switch shows nothing about the link.
    #[inline]
    pub fn on_link_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        frame: &Frame<'_>,
    ) -> LinkEvent {
        let event = self.links.on_frame(registers, now, port, frame);
        self.stats.frames_refused += u64::from(event == LinkEvent::Refused);
        event
    }

    /// Handles the instance at the other end of `port` where promises arrive without frames. Must
    /// be called once, and again after every change.
    pub fn on_peer_instance(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        instance: Instance,
    ) -> LinkEvent {
        self.links.on_peer_instance(registers, now, port, instance)
    }

    /// Handles the loss of the link at `port`: freezes its register (without controllers: removes
    /// it). Returns whether the link was up.
    pub fn on_link_down(&mut self, registers: &mut Registers, port: Port, cause: Cause) -> bool {
        self.links.on_link_down(registers, port, cause)
    }

    /// Returns the instance seen at `port`, for frames that cross this link only.
    pub fn peer(&self, registers: &Registers, port: Port) -> Option<Instance> {
        self.links.peer(registers, port)
    }

    /// Returns whether a failure was not polled yet.
    pub fn has_unreported(&self) -> bool {
        self.failures.has_unreported()
    }

    /// Returns the next failure that was not reported before. It may include this process.
    #[inline]
    pub fn poll_failure(&mut self) -> Option<Failure> {
        self.failures.poll()
    }

    /// Returns the failure timestamp of this incarnation, if it was declared failed and must stop.
    /// From then on it announces nothing and delays no other process.
    #[inline]
    pub fn excluded(&self) -> Option<Timestamp> {
        self.excluded
    }

    /// Returns the failure timestamp of the last failed incarnation of `process`. `None` if
    /// `incarnation` is later than that, or none has failed.
    #[inline]
    pub fn failed_at(&self, process: ProcessId, incarnation: Incarnation) -> Option<Timestamp> {
        self.failures.failed_at(process, incarnation)
    }

    /// Returns the last failed incarnation of `process`, if there is one, and when this process was
    /// notified of the failure.
    pub fn last_failed(&self, process: ProcessId) -> Option<(Incarnation, Mono)> {
        self.failures.last_failed(process)
    }

    /// Returns whether to accept promises that arrive on `port` without a frame: unless the
    /// instance last seen there was declared dead.
    pub fn accepts_promises(&self, port: Port) -> bool {
        self.links.accepts_promises(port)
    }

    /// Returns whether a controller waits for the completion of all failures polled by
    /// [`ControlPlane::poll_failure`].
    pub fn is_completion_pending(&self) -> bool {
        self.floods.is_open() && !self.failures.has_unreported()
    }

    /// Handles that the endpoint has completed every polled failure: messages are discarded,
    /// recalls acknowledged or passed to [`ControlPlane::on_undeliverable`], callbacks returned.
    /// Completion is reported to the controllers as soon as those recalls are recorded.
    pub fn on_failures_handled(&mut self) {
        debug_assert!(
            !self.failures.has_unreported(),
            "every failure must be polled before it is completed"
        );
        if !self.failures.has_unreported() {
            self.floods.on_handled();
            self.ack_unless_pending();
        }
    }

    //= spec/failure.md#R32
    /// Handles that the endpoint has stopped after [`ControlPlane::excluded`]: it accepts no
    /// messages, and its commit barrier rises no more.
    pub fn on_stopped(&mut self) {
        debug_assert!(self.excluded.is_some(), "only an excluded process stops");
        self.has_stopped = true;
        self.ack_unless_pending();
    }

    //= spec/failure.md#R26
    /// Acknowledges the handled notice unless recalls are not recorded yet. An excluded process
    /// acknowledges as soon as it has stopped. Not before: an acknowledged notice lets controllers
    /// resume links, and then the commit barrier passes messages that were recalled.
    fn ack_unless_pending(&mut self) {
        if self.has_stopped {
            self.floods.on_handled();
        } else if self.excluded.is_some() || self.undeliverable.pending() > 0 {
            return;
        }
        self.floods.ack_handled();
    }

    /// Queues a recall to a failed receiver, to be recorded by the controllers. Returns false if
    /// too many are queued: retry later and delay the completion.
    pub fn on_undeliverable(&mut self, recall: Undeliverable) -> bool {
        self.undeliverable.push(recall)
    }

    /// Takes the number of recalls that were recorded since the last call, in the order of
    /// [`ControlPlane::on_undeliverable`].
    #[inline]
    pub fn take_acked_undeliverable(&mut self) -> usize {
        self.undeliverable.take_acked_undeliverable()
    }

    /// Returns the number of recalls that are not recorded.
    #[cfg(test)]
    pub fn undeliverable_pending(&self) -> usize {
        self.undeliverable.pending()
    }

    /// Takes a sealed frame to `peer`, to be relayed by the controllers. Returns false if another
    /// frame still waits for [`ControlPlane::write_next`], the frame is too long by
    /// [`crate::config::RELAY_OVERHEAD_BYTES`], or there are no controllers.
    pub fn encapsulate(&mut self, now: Mono, peer: ProcessId, inner: &[u8]) -> bool {
        let active = self.active_controller.map(|(process, _)| process);
        self.controllers.is_some() && self.relay.encapsulate(now, peer, inner, active)
    }

    /// Relays frames to `peer`, which does not respond, for a while.
    pub fn on_unreachable(&mut self, now: Mono, peer: ProcessId) {
        if self.controllers.is_some() {
            self.announcer.wake(now);
            self.relay.on_unreachable(now, peer);
        }
    }

    /// Stops relaying to `peer` after a direct frame from it.
    #[inline]
    pub fn on_direct(&mut self, peer: ProcessId) {
        self.relay.on_direct(peer);
    }

    /// Returns whether a frame to `peer` is to be relayed now. Others go directly.
    #[inline]
    pub fn is_relayed(&self, now: Mono, peer: ProcessId) -> bool {
        self.relay.is_relayed(now, peer)
    }

    /// Starts requesting the recovery record from the controllers, after exclusion.
    pub fn start_recover(&mut self, now: Mono) {
        if self.controllers.is_some() {
            self.recovery.start(now);
        }
    }

    /// Returns the complete recovery record, once.
    pub fn poll_recovered(&mut self) -> Option<Recovered> {
        self.recovery.poll()
    }

    /// See [`LinkMonitor::is_two_way`].
    #[inline]
    pub fn is_two_way(&self, port: Port) -> bool {
        self.links.is_two_way(port)
    }

    /// Returns whether this incarnation may send reliable scatterings: the controllers have
    /// registered it (docs/design/failure.md, "How do controllers survive?"), or there are none.
    /// Its announcements request the registration.
    #[inline]
    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Returns when the active controller was last seen.
    pub fn controller_last_seen(&self) -> Option<Mono> {
        self.active_controller.map(|(_, last_seen)| last_seen)
    }

    /// Returns the active controller.
    pub fn active_controller(&self) -> Option<ProcessId> {
        self.active_controller.map(|(process, _)| process)
    }

    /// Returns the highest epoch of a controller seen; 0 before any.
    pub fn epoch(&self) -> u32 {
        self.floods.epoch()
    }

    pub fn stats(&self) -> &ControlStats {
        &self.stats
    }

    /// Returns whether the uplink needs a beacon now, whatever else was sent, and schedules the
    /// next one.
    pub fn take_beacon(&mut self, now: Mono) -> bool {
        self.links.take_beacon(now)
    }

    /// Returns whether [`ControlPlane::take_beacon`] or [`ControlPlane::write_next`] may have a
    /// frame before the next deadline.
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
            || self.recovery.wants_transmit()
    }

    /// Writes the payload of the next frame. Acknowledgements come first, because others wait for
    /// them.
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
        let frame = frame.or_else(|| self.recovery.write(now));
        if frame.is_some() || self.excluded.is_some() {
            return frame;
        }
        if !self.is_registered {
            self.announcer.wake(now);
        }
        self.announcer.write(now, registers, &mut self.links, payload)
    }

    /// Returns the header of a frame from [`ControlPlane::write_next`]. An announcement carries the
    /// commit barrier that this process has received in the field of the message timestamp.
    pub fn header(
        &self,
        registers: &Registers,
        frame: &ControlFrame,
        promises: Promises,
        commit: Option<Timestamp>,
    ) -> Header {
        let (opcode, to) = (frame.opcode, frame.to);
        if let Some(port) = frame.hop_port {
            return Header::hop_only(opcode, self.own, self.peer(registers, port), promises);
        }
        let message = match (opcode, commit) {
            (Opcode::Announce, Some(commit)) => commit,
            (Opcode::Announce, None) => promises.barrier.saturating_sub_ns(NO_PROMISE_AGE_NS),
            _ => promises.barrier,
        };
        let header = Header::new(opcode, self.process, to, self.own.incarnation);
        header.stamped(message, promises, frame.psn)
    }

    pub fn on_timeout(&mut self, now: Mono) {
        self.links.on_timeout(now);
    }

    /// Returns when [`ControlPlane::on_timeout`], [`ControlPlane::take_beacon`] or
    /// [`ControlPlane::write_next`] is due.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        let beacon = self.links.beacon_due();
        if self.controllers.is_none() {
            return beacon;
        }
        let requests = Mono::earlier(self.undeliverable.deadline(), self.recovery.deadline());
        let requests = Mono::earlier(beacon, requests);
        if self.excluded.is_some() {
            return requests;
        }
        let links = Mono::earlier(self.links.deadline(), self.announcer.deadline());
        Mono::earlier(requests, links)
    }
}
