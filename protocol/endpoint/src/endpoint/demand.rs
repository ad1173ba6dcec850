//! Beacons on demand: what this process waits for, and what others wait for.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Now, Port, Timestamp};
use onepipe_wire::{Flags, Frame, Opcode, Service};

use super::Endpoint;
use crate::channel::Draft;
use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{Links, ReceiveMode};

impl Endpoint {
    /// Handles a solicit from the switch.
    #[cold]
    pub(super) fn on_solicit(&mut self, clock: Timestamp, frame: &Frame<'_>) {
        self.stats.solicits_received += 1;
        // At the fixed interval the next beacon follows soon anyway.
        let wanted = self.is_on_demand().then(|| frame.header.message_ts(clock));
        self.link.demand_mut().on_solicit(clock, wanted);
    }

    //= spec/ordering.md#R42
    /// Notes that the receivers of a data frame wait for a promise above its timestamp. A
    /// best-effort frame that passes the switch is followed by one without delay: that which ends
    /// its burst. The promise of a reliable message follows when the message is acknowledged.
    #[inline]
    pub(super) fn require_promise(&mut self, service: Service, draft: &Draft, is_direct: bool) {
        if let Some(timestamp) = draft.timestamp
            && draft.flags & Flags::UNORDERED == 0
            && (is_direct || service == Service::Reliable)
        {
            self.link.demand_mut().require(timestamp);
        }
    }

    //= spec/ordering.md#R42
    /// Handles a received message: a promise above its timestamp follows unasked.
    #[inline]
    pub(super) fn on_received(&mut self, now: Now, clock: Timestamp, frame: &Frame<'_>) {
        if self.is_on_demand() && !frame.header.has(Flags::UNORDERED) {
            let timestamp = frame.header.message_ts(clock);
            self.link.demand_mut().on_message(now.mono, timestamp);
        }
    }

    //= spec/ordering.md#R45
    /// Returns whether the link is still being set up, so that beacons leave at the fast interval:
    /// either end has not promised anything real yet, this process may not commit, or the switch
    /// does not know this incarnation.
    #[inline]
    pub(super) fn is_joining(&self, clock: Timestamp) -> bool {
        let is_real = |promise: Option<Timestamp>| {
            promise.is_some_and(|at| at.wrapping_add_ns(NO_PROMISE_AGE_NS / 2) >= clock)
        };
        self.config.heartbeat_interval_ns > 0
            && (!self.may_commit()
                || !self.link.demand().has_promised()
                || !is_real(self.link.barrier())
                || !self.control.is_two_way(Port(0)))
    }

    /// Returns the newest timestamp that the barriers have not passed, and the lowest barrier that
    /// a message waits for. `None` when everything received can be delivered.
    #[inline]
    pub(super) fn undelivered(&self) -> Option<(Timestamp, Option<Timestamp>)> {
        let (barrier, commit) = (self.link.barrier(), self.link.commit());
        let best_effort = self.best_effort.receiver.newest();
        let reliable = self.reliable.receiver.newest();
        let is_merged = self.config.receive_mode == ReceiveMode::Merged;
        let merged = best_effort.max(reliable).filter(|_| is_merged);
        // `None` is below every timestamp: without a barrier nothing is delivered.
        let held_by_barrier = best_effort.max(merged).filter(|newest| Some(*newest) >= barrier);
        let awaited = reliable.max(merged).max(self.awaited_commit);
        let held_by_commit = awaited.filter(|newest| Some(*newest) >= commit);
        let newest = held_by_barrier.max(held_by_commit)?;
        let lowest = match (held_by_barrier, held_by_commit) {
            (Some(_), Some(_)) => barrier.min(commit),
            (Some(_), None) => barrier,
            _ => commit,
        };
        Some((newest, lowest))
    }

    /// Returns whether the solicit timer must be started or stopped: something is undelivered for
    /// the first time since nothing was, or the other way round.
    #[inline]
    pub(super) fn has_wait_changed(&self) -> bool {
        self.may_solicit() && self.link.demand().is_awaiting() != self.undelivered().is_some()
    }

    //= spec/ordering.md#R43
    /// Returns whether promises may have to be asked for on the uplink: its other end sends beacons
    /// on demand, whatever this process does.
    #[inline]
    fn may_solicit(&self) -> bool {
        self.config.links != Links::Mesh && self.link.is_peer_on_demand()
    }

    /// Returns whether beacons are sent on demand on the uplink: both ends have that mode.
    #[inline]
    fn is_on_demand(&self) -> bool {
        self.config.heartbeat_interval_ns > 0 && self.may_solicit()
    }

    /// Returns the flag by which the switch learns the mode of this process.
    pub(super) fn mode_flag(&self) -> u8 {
        if self.config.heartbeat_interval_ns > 0 { Flags::ON_DEMAND } else { 0 }
    }

    /// Returns the timestamp that a solicit names: one that every promise has passed if this
    /// process only asks whether the switch is alive.
    pub(super) fn awaited_timestamp(&self) -> Timestamp {
        let own = self.current_promises().barrier;
        let long_ago = own.saturating_sub_ns(NO_PROMISE_AGE_NS);
        self.undelivered().map_or(long_ago, |(newest, _)| newest)
    }

    /// Returns the beacon that is due, if any: a plain one, or one that asks for one back.
    #[inline]
    pub(super) fn due_beacon(&mut self, now: Now) -> Option<Opcode> {
        if self.may_solicit() && self.is_solicit_due(now) {
            self.stats.solicits_sent += 1;
            self.stats.beacons_sent += 1;
            return Some(Opcode::Solicit);
        }
        if self.link.take_beacon(now.mono, self.promises()) {
            self.stats.beacons_sent += 1;
            return Some(Opcode::Beacon);
        }
        if self.is_on_demand() {
            // Open messages hold the commit back until they are acknowledged, not until some time.
            let is_open = self.reliable.sender.oldest_open().is_some();
            let promised = self.timestamps.promise().filter(|_| !is_open);
            self.link.demand_mut().on_drained(now.mono, promised);
        }
        None
    }

    //= spec/ordering.md#R43
    /// Returns whether a solicit is due. A switch that passes messages on solicits for them
    /// itself, so that the first one of this process follows only when that takes longer than
    /// usual; an aggregator does not see the messages.
    #[inline]
    fn is_solicit_due(&mut self, now: Now) -> bool {
        let undelivered = self.undelivered().filter(|_| !makes(Mistake::RestWhileUndelivered));
        let is_seen = self.config.links == Links::Uplink && !self.config.awaits_commits;
        let newest = undelivered.map(|(newest, _)| newest);
        let barrier = undelivered.and_then(|(_, barrier)| barrier);
        let demand = self.link.demand_mut();
        demand.on_undelivered(now.mono, newest, barrier, is_seen);
        demand.take_solicit(now.mono)
    }

    //= spec/ordering.md#R44
    /// Asks whether the switch is alive when a receiver does not respond.
    pub(super) fn probe_uplink(&mut self, now: Now) {
        let is_on_demand = self.is_on_demand();
        let is_probing = self.best_effort.sender.has_signal() || self.reliable.sender.has_signal();
        if is_on_demand && is_probing {
            self.link.demand_mut().probe_uplink(now.mono);
        }
    }
}
