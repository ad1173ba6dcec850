//! Failures of members, and timeouts.

use onepipe_base::Mono;
use onepipe_wire::BulkRefused;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Group;
use crate::Memory;
use crate::event::{Event, Failure, Outcome, Reason};
use crate::object::HaveWord;

impl<M: Memory> Group<M> {
    /// Records the time, and starts the group on the first call.
    pub(super) fn start(&mut self, now: Mono) {
        self.now = now;
        if core::mem::replace(&mut self.is_started, true) {
            return;
        }
        for peer in &mut self.peers {
            (peer.last_received, peer.state_sent_at) = (now, now);
        }
        self.keepalive_at = Some(now.after_ns(self.config.keepalive_ns));
        self.due_at = self.keepalive_at;
        if self.config.own != 0 {
            self.queue_state(0);
            self.queue_first_tokens();
        }
    }

    /// Handles a timeout. Returns whether anything was due.
    pub(super) fn on_timeout(&mut self, now: Mono) -> bool {
        if self.due_at.is_none_or(|at| at > now) {
            return false;
        }
        for rank in self.ranks() {
            self.on_session_timeout(now, rank);
        }
        self.check_keepalive(now);
        self.due_at = self.keepalive_at;
        self.ranks().for_each(|rank| self.update_deadline(rank));
        true
    }

    //= spec/bulk.md#R24
    fn on_session_timeout(&mut self, now: Mono, rank: u32) {
        if self.peer(rank).has_failed {
            return;
        }
        let dead_after_ns = self.config.dead_after_ns;
        if self.peer(rank).session.is_timed_out(now, dead_after_ns) {
            self.fail(rank, self.config.own, Reason::Timeout);
        }
        let peer = &mut self.peers[rank as usize];
        if peer.session.on_timeout(now, &mut self.lost) {
            peer.is_state_due = true;
            self.ready.set(rank);
        }
        if peer.session.received.ack_at().is_some_and(|at| at <= now) {
            self.ready.set(rank);
        }
        self.on_lost(rank);
    }

    /// Sends a keepalive to the leader; at the leader, detects members that have timed out.
    fn check_keepalive(&mut self, now: Mono) {
        if self.keepalive_at.is_none_or(|at| at > now) {
            return;
        }
        self.keepalive_at = None;
        if self.outcome.is_some() {
            return;
        }
        let (leader, keepalive_ns) = (self.leader(), self.config.keepalive_ns);
        self.keepalive_at = Some(now.after_ns(keepalive_ns));
        if leader != self.config.own {
            return self.queue_state(leader);
        }
        for rank in self.ranks() {
            let idle_ns = now.since_ns(self.peers[rank as usize].last_received);
            if self.is_live_peer(rank) && idle_ns >= self.config.dead_after_ns {
                self.fail(rank, self.config.own, Reason::Timeout);
            }
        }
    }

    //= spec/bulk.md#R24
    /// Handles the failure of a member: notifies all others, abandons the schedule, and requests
    /// missing blocks from the survivors.
    pub(super) fn fail(&mut self, rank: u32, by: u32, reason: Reason) {
        if rank >= self.peers.len() as u32 || self.has_failed.has(rank) {
            return;
        }
        if self.is_closed || matches!(self.outcome, Some(Outcome::Refused(_))) {
            // Too late to change the outcome; only stop sending to the member.
            return self.peer(rank).close();
        }
        if rank == self.config.own {
            return self.exclude(BulkRefused::Excluded);
        }
        self.record_failure(Failure { rank, by, reason });
        self.peer(rank).close();
        if self.outcome.is_some() {
            return;
        }
        self.abandon_schedule();
        self.advance();
        self.request_missing();
    }

    fn record_failure(&mut self, failure: Failure) {
        debug_assert!(!self.is_closed, "a failure does not change an outcome");
        let is_new = self.has_failed.set(failure.rank);
        debug_assert!(is_new, "a member fails once");
        self.failures.push(failure);
        self.view = 0;
        for word in self.has_failed.words() {
            self.view = xxh3_64_with_seed(&word.to_be_bytes(), self.view) | 1;
        }
        self.events.push_back(Event::Failed(failure));
        let own = self.config.own;
        for rank in self.ranks().filter(|rank| *rank != own) {
            self.ready.set(rank);
        }
    }

    //= spec/bulk.md#R26
    /// Abandons the schedule. Requested blocks may be requested again from other members.
    fn abandon_schedule(&mut self) {
        debug_assert!(!self.failures.is_empty(), "the schedule holds while all members are live");
        let stable = self.stable;
        let now = self.now;
        self.peers.iter_mut().for_each(|peer| {
            // Restart the failure timeout: this member may lead now, and may not have received
            // anything from the peer yet.
            peer.last_received = now;
            peer.drop_schedule();
            peer.requested.clear();
            peer.haves_due.clear();
            peer.have_cursor = (!peer.has_failed).then_some(HaveWord::first_of(stable));
        });
        for active in &mut self.active {
            if let Some(object) = &mut active.object {
                object.requested.clear_all();
            }
        }
        self.queue_state_to_all();
    }

    /// Leaves the group and notifies the others of the reason.
    pub(super) fn leave_with(&mut self, reason: Reason) {
        if self.outcome.is_some() {
            return;
        }
        let own = self.config.own;
        self.record_failure(Failure { rank: own, by: own, reason });
        for peer in &mut self.peers {
            peer.drop_schedule();
        }
        self.finish(Outcome::Left);
    }

    //= spec/bulk.md#R25
    /// Ends this member because the others have excluded it.
    pub(super) fn exclude(&mut self, refused: BulkRefused) {
        self.peers.iter_mut().for_each(|peer| peer.close());
        self.finish(Outcome::Refused(refused));
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            self.events.push_back(Event::Closed(outcome));
        }
    }
}
