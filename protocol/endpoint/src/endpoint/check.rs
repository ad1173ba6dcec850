//! The invariants of an endpoint, which call those of its stages.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::{Service, header_unchecked};

use super::failure::Exclusion;
use super::leave::Leave;
use super::{Channel, Endpoint};
use crate::{Delivery, Links, ReceiveMode};

/// Frames between two checks of everything in a debug build, and between two checks of the
/// connection that a frame has touched.
const FRAMES_PER_CHECK: u64 = 64;
const FRAMES_PER_PEER_CHECK: u64 = 4;

impl Endpoint {
    /// Checks the invariants of all stages. Costs time proportional to the number of connections
    /// and of messages that are buffered or in flight; debug builds call it after every 64th frame.
    ///
    /// # Panics
    /// When an invariant is broken, which shows a mistake of this machine: no input breaks one.
    pub fn check_invariants(&self) {
        self.check_own();
        let (barrier, config) = (self.link.barrier(), &self.config);
        self.control.check_invariants(config);
        self.link.check_invariants(config);
        // A leaving process that hands back has dropped what is incomplete beyond the barrier.
        self.best_effort.receiver.check_invariants(config, barrier);
        self.reliable.receiver.check_invariants(config, None);
        if self.is_member() {
            self.best_effort.sender.check_invariants(config);
            self.reliable.sender.check_invariants(config);
            let recording = self.reliable.sender.recording_undeliverable();
            assert_eq!(recording, self.control.recording(), "recalls are recorded in order");
        }
        for channel in [&self.best_effort, &self.reliable] {
            channel.check_invariants();
            let is_merged = config.receive_mode == ReceiveMode::Merged;
            let may_stage = is_merged || self.leave != Leave::Active;
            assert!(may_stage || !channel.is_staged(), "separate services are not compared");
        }
    }

    /// Checks an input in debug builds: what is cheap after each, the rest after some frames.
    #[inline]
    pub(super) fn check_input(&self) {
        if cfg!(debug_assertions) {
            self.check_own();
            let frames = self.stats.frames_received.wrapping_add(self.stats.frames_sent);
            if frames.is_multiple_of(FRAMES_PER_CHECK) {
                self.check_invariants();
            }
        }
    }

    /// Checks the connection that a received frame has touched, in debug builds.
    #[inline]
    pub(super) fn check_frame(&self, bytes: &[u8]) {
        if cfg!(debug_assertions)
            && self.stats.frames_received.is_multiple_of(FRAMES_PER_PEER_CHECK)
            && let Some(header) = header_unchecked(bytes)
        {
            self.check_peer(header.src());
        }
        self.check_input();
    }

    fn check_peer(&self, process: ProcessId) {
        for channel in [&self.best_effort, &self.reliable] {
            if let Some(peer_index) = channel.receiver.index_of(process) {
                channel.receiver.check_peer(peer_index);
            }
            if let Some(peer_index) = channel.sender.index_of(process).filter(|_| self.is_member())
            {
                channel.sender.check_peer(&self.config, peer_index);
            }
        }
    }

    /// Checks, in debug builds, that nothing more can be sent now: whatever is undelivered is
    /// solicited.
    #[inline]
    pub(super) fn check_drained(&self) {
        if cfg!(debug_assertions) {
            self.check_input();
            assert!(!self.has_wait_changed(), "undelivered messages are waited for");
        }
    }

    /// Checks, in debug builds, a message that is delivered.
    #[inline]
    pub(super) fn check_delivery(&self, delivery: &Delivery) {
        if cfg!(debug_assertions) && !delivery.is_unordered {
            self.check_delivered(delivery);
        }
    }

    fn check_delivered(&self, delivery: &Delivery) {
        let timestamp = delivery.timestamp;
        let receiver = &self.channel(delivery.service).receiver;
        assert!(Some(timestamp) <= receiver.newest(), "a delivered message was received");
        if self.is_member() && !self.is_handing_back() {
            let barrier = match delivery.service {
                Service::BestEffort => self.link.barrier(),
                Service::Reliable => self.link.commit(),
            };
            assert!(Some(timestamp) < barrier, "the barrier has passed a delivered message");
            if delivery.service == Service::Reliable {
                let oldest = self.reliable.sender.oldest_open();
                let is_below = oldest.is_none_or(|oldest| timestamp < oldest);
                assert!(is_below, "deliveries wait for this process's own open scatterings");
            }
            let next = self.timestamps.promise();
            assert!(Some(timestamp) < next, "I3: the next timestamp lies above each delivered one");
        }
        let is_local = delivery.from == self.config.process;
        if let Some(incarnation) = receiver.sender_of(delivery).filter(|_| !is_local)
            && delivery.service == Service::Reliable
            // Other incarnations have failed at other timestamps.
            && let Some((failed, _)) = self.control.last_failed(delivery.from)
            && failed == incarnation
            && let Some(failed_at) = self.control.failed_at(delivery.from, incarnation)
        {
            let is_handled = !self.control.has_unreported();
            assert!(timestamp < failed_at || !is_handled, "I8: a failed sender is discarded");
        }
    }

    /// Checks what takes constant time.
    fn check_own(&self) {
        self.timestamps.check_invariants();
        self.link.demand().check_invariants();
        self.check_promises();
        let is_excluded = self.exclusion != Exclusion::Member;
        assert!(!is_excluded || self.control.excluded().is_some(), "controllers exclude a process");
        let failures = self.failed.len() + self.departed.len();
        let is_controlled = self.config.controllers.is_some();
        assert!(failures == 0 || is_controlled, "controllers report failures");
        assert!(self.callbacks_open == 0 || is_controlled, "controllers report failures");
        if let Leave::Announcing(..) = self.leave {
            assert!(self.config.links != Links::Mesh, "a mesh acknowledges no Leave");
        }
        for channel in [&self.best_effort, &self.reliable] {
            assert!(channel.is_used() || channel.is_empty(), "an unused channel holds nothing");
        }
        let sent = self.stats.frames_sent;
        assert!(self.stats.beacons_sent <= sent, "beacons are frames");
        assert!(self.stats.frames_shared <= sent, "shared frames are frames");
        assert!(self.stats.solicits_sent <= self.stats.beacons_sent, "solicits are beacons");
    }

    /// Checks the promises of this process against its barriers and what it has sent.
    fn check_promises(&self) {
        let Some(promises) = self.promises() else { return };
        let next = self.timestamps.promise();
        assert!(Some(promises.barrier) <= next, "a promise is kept by every later timestamp");
        assert!(Some(promises.commit) <= next, "a promise is kept by every later timestamp");
        let oldest = self.reliable.sender.oldest_open();
        let is_below = oldest.is_none_or(|oldest| promises.commit <= oldest);
        assert!(is_below, "the commit promise stays below open scatterings");
        let burst = self.best_effort.sender.unfinished_burst();
        let is_below = burst.is_none_or(|first| promises.barrier <= first);
        assert!(is_below, "the promise stays below an unfinished burst");
        if self.timestamps.is_started() {
            let barrier: Option<Timestamp> = self.link.barrier().max(self.link.commit());
            assert!(next >= barrier, "I3: the next timestamp lies above the barriers");
        }
    }
}

impl Channel {
    /// Returns whether nothing was sent or received.
    fn is_empty(&self) -> bool {
        self.sender.has_sent_all() && self.receiver.pending() == 0 && !self.wants_transmit(true)
    }
}
