//! Beacons on demand: the part of [`Switch`] that solicits promises and answers solicits.

use onepipe_base::{Cause, Mono, Now, Port, Promises, Timestamp, Transmit, is_plausible_request};

use crate::clock::{Time, no_promise};
use crate::config::QUARTER_RANGE_NS;
use crate::{Switch, SwitchEvent};

impl Switch {
    /// Handles a solicit from `port` for promises above `wanted`: an answer shows at once that this
    /// switch is alive, and another beacon follows when the promises have passed `wanted`.
    #[cold]
    pub(super) fn on_solicit(&mut self, time: Time, port: Port, wanted: Timestamp) {
        self.stats.solicits_received += 1;
        let wanted = is_plausible_request(time.reference, wanted).then_some(wanted);
        if self.demand.on_solicit(time.mono, port, wanted) {
            self.beacons.request(port);
        } else {
            self.stats.solicits_deferred += 1;
        }
    }

    /// Handles a beacon instant, if one is due.
    pub(super) fn on_beacon_instant(&mut self, now: Now) {
        if !self.demand.is_on_demand() {
            return self.beacons.on_timeout(now, self.links.linked());
        }
        if !self.beacons.is_due(now.mono) {
            return;
        }
        let reference = self.clock.read(now).reference;
        let is_settling = self.has_joining_link(reference);
        if self.demand.on_instant(now.mono, is_settling) {
            self.beacons.on_timeout(now, self.links.linked());
        } else {
            for port in self.demand.fixed(self.links.linked()) {
                self.beacons.request_if_idle(port);
            }
            for port in self.demand.waiting().iter() {
                if self.aggregator.has_update(port, self.may_advertise_commit(port)) {
                    self.beacons.request_if_idle(port);
                }
            }
            self.beacons.end_instant(now);
        }
        self.solicit(now);
    }

    /// Requests beacons and solicits after promises or requests were received. Returns whether
    /// there is anything to send.
    pub(super) fn advance_demand(&mut self, now: Now) -> bool {
        let has_request = self.demand.take_new_request();
        if !self.beacons.take_update() && !has_request {
            return false;
        }
        let (aggregator, beacons) = (&self.aggregator, &mut self.beacons);
        // A beacon that adds nothing is not sent again: the last frame has carried the promise.
        self.demand.take_passed(aggregator, |port| {
            if aggregator.has_update(port, true) {
                beacons.request(port);
            }
        });
        for port in self.demand.fixed(self.links.linked()) {
            if self.aggregator.has_update(port, self.may_advertise_commit(port)) {
                self.beacons.request(port);
            }
        }
        if has_request {
            self.solicit(now);
        } else {
            self.beacons.set_interval(now, self.demand.beacon_interval_ns(self.links.linked()));
        }
        true
    }

    /// Queues the solicits that are due, and adapts the interval to what waits.
    fn solicit(&mut self, now: Now) {
        let oldest = self.clock.read(now).reference.saturating_sub_ns(QUARTER_RANGE_NS / 2);
        let (aggregator, joiners, linked) = (&self.aggregator, &self.joiners, self.links.linked());
        self.demand.solicit(now.mono, aggregator, |port| {
            let has_promised = aggregator.promised(port).is_some_and(|own| own.barrier >= oldest);
            let is_counted = !joiners.must_hold() || aggregator.is_counted_by_peer(port);
            linked.contains(port) && !(joiners.has_caught_up(port) && has_promised && is_counted)
        });
        self.beacons.set_interval(now, self.demand.beacon_interval_ns(self.links.linked()));
    }

    /// Writes the next solicit.
    pub(super) fn poll_solicit(
        &mut self,
        reference: Timestamp,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        while let Some((port, wanted)) = self.demand.pop(&self.aggregator) {
            let wanted = wanted.unwrap_or(no_promise(reference).barrier);
            if let Some(transmit) = self.write_beacon(reference, port, Some(wanted), slot) {
                // The same frame need not follow as a beacon.
                self.beacons.on_forwarded(port);
                return Some(transmit);
            }
        }
        None
    }

    /// Takes down the links that have answered no solicit for the link timeout.
    pub(super) fn expire_unanswered(&mut self, now: Mono) {
        self.demand.expire(now, |port| self.links.on_found_dead(port));
        while let Some(port) = self.links.pop_dead() {
            if self.aggregator.is_live(port) {
                self.take_down(port, Cause::TimedOut, SwitchEvent::LinkLost(port));
            }
        }
    }

    //= spec/ordering.md#R45
    /// Returns whether a live link is still being set up: an end has not promised anything real
    /// yet, a joiner has not caught up, or, with controllers, the ends do not know each other or
    /// do not count each other's promises.
    fn has_joining_link(&self, reference: Timestamp) -> bool {
        let oldest = reference.saturating_sub_ns(QUARTER_RANGE_NS / 2);
        let is_real = |promises: Promises| promises.barrier >= oldest && promises.commit >= oldest;
        self.config.ports().any(|port| {
            let Some(promised) = self.aggregator.promised(port) else { return false };
            let is_known = self.control.is_none()
                || (self.links.is_confirmed(port) && self.aggregator.is_counted_by_peer(port));
            let has_advertised = self.aggregator.advertised(port).is_some_and(is_real)
                || !self.aggregator.is_fed(port);
            !is_real(promised) || !has_advertised || !self.joiners.has_caught_up(port) || !is_known
        })
    }
}
