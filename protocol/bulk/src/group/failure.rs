//! Failures of members, and timeouts.

use onepipe_base::Mono;
use onepipe_wire::BulkRefused;

use super::Group;
use crate::Memory;
use crate::event::{Event, Failure, Outcome, Reason};

impl<M: Memory> Group<M> {
    /// Records the time, and starts the group on the first call.
    pub(super) fn start(&mut self, now: Mono) {
        if !self.timers.start(now, self.config.keepalive_ns) {
            return;
        }
        for peer in self.peers.iter_mut() {
            peer.last_received = now;
        }
        if self.config.own != 0 {
            self.peers.queue_state(0);
            self.queue_first_tokens();
        }
    }

    /// Handles a timeout. Returns whether anything was due.
    pub(super) fn on_timeout(&mut self, now: Mono) -> bool {
        if !self.timers.is_due(now) {
            return false;
        }
        for rank in self.peers.ranks() {
            self.on_session_timeout(now, rank);
        }
        self.check_keepalive(now);
        self.timers.restart();
        self.peers.ranks().for_each(|rank| self.update_deadline(rank));
        true
    }

    //= spec/bulk.md#R24
    fn on_session_timeout(&mut self, now: Mono, rank: u32) {
        if self.peers[rank].has_failed {
            return;
        }
        let dead_after_ns = self.config.dead_after_ns;
        if self.peers[rank].session.is_timed_out(now, dead_after_ns) {
            self.fail(rank, self.config.own, Reason::Timeout);
        }
        let peer = &mut self.peers[rank];
        let must_probe = peer.session.on_timeout(now, &mut self.lost);
        if must_probe {
            peer.control.queue_state();
        }
        if must_probe || peer.session.received.ack_at().is_some_and(|at| at <= now) {
            self.peers.set_ready(rank);
        }
        self.on_lost(rank);
    }

    /// Sends a keepalive to the leader; at the leader, detects members that have timed out.
    fn check_keepalive(&mut self, now: Mono) {
        if !self.timers.end_keepalive(now) || self.membership.is_over() {
            return;
        }
        let leader = self.membership.leader();
        self.timers.start_keepalive(now.after_ns(self.config.keepalive_ns));
        if leader != self.config.own {
            return self.peers.queue_state(leader);
        }
        for rank in self.peers.ranks() {
            let idle_ns = now.since_ns(self.peers[rank].last_received);
            if self.membership.is_live_peer(rank) && idle_ns >= self.config.dead_after_ns {
                self.fail(rank, self.config.own, Reason::Timeout);
            }
        }
    }

    //= spec/bulk.md#R24
    /// Handles the failure of a member: notifies all others, abandons the schedule, and requests
    /// missing blocks from the survivors.
    pub(super) fn fail(&mut self, rank: u32, by: u32, reason: Reason) {
        if rank >= self.peers.len() || self.membership.has_failed(rank) {
            return;
        }
        if self.membership.is_closed() || self.membership.is_refused() {
            // Too late to change the outcome; only stop sending to the member.
            return self.peers[rank].close();
        }
        if rank == self.config.own {
            return self.exclude(BulkRefused::Excluded);
        }
        self.record_failure(Failure { rank, by, reason });
        self.peers[rank].close();
        if self.membership.is_over() {
            return;
        }
        self.abandon_schedule();
        self.advance();
        self.request_missing();
    }

    fn record_failure(&mut self, failure: Failure) {
        self.membership.record(failure);
        self.events.push_back(Event::Failed(failure));
        self.peers.set_all_ready();
    }

    //= spec/bulk.md#R26
    /// Abandons the schedule. Requested blocks may be requested again from other members.
    fn abandon_schedule(&mut self) {
        debug_assert!(self.membership.has_failures(), "the schedule holds while all are live");
        self.peers.abandon_schedule(self.timers.now(), self.window.stable());
        self.window.clear_requests();
        self.peers.queue_state_to_all();
    }

    /// Leaves the group and notifies the others of the reason.
    pub(super) fn leave_with(&mut self, reason: Reason) {
        if self.membership.is_over() {
            return;
        }
        let own = self.config.own;
        self.record_failure(Failure { rank: own, by: own, reason });
        self.peers.iter_mut().for_each(|peer| peer.transfers.drop_schedule());
        self.finish(Outcome::Left);
    }

    //= spec/bulk.md#R25
    /// Ends this member because the others have excluded it.
    pub(super) fn exclude(&mut self, refused: BulkRefused) {
        self.peers.iter_mut().for_each(|peer| peer.close());
        self.finish(Outcome::Refused(refused));
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        if self.membership.end(outcome) {
            self.events.push_back(Event::Closed(outcome));
        }
    }
}
