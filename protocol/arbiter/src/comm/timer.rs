//! Timers of an endpoint's session: retransmission of totals, probes, and giving up.

use onepipe_base::Mono;

use super::{Comm, PeerState};

impl Comm {
    pub(super) fn arm_timer(&mut self, now: Mono, src: u16) {
        // Half of the timeout keeps retransmissions from being much later than it.
        self.timers.push(src, now.after_ns(self.config.retry_ns / 2));
    }

    //= spec/arbiter.md#R26
    /// Gives up an endpoint that does not answer: drops its state and schedules a probe.
    pub(super) fn give_up(&mut self, now: Mono, src: u16) {
        let was_in_step = self.peers[usize::from(src)].state == PeerState::InStep;
        self.stats.timed_out += u64::from(was_in_step);
        self.forget(src);
        let peer = &mut self.peers[usize::from(src)];
        peer.session.close();
        peer.state = PeerState::Unreachable;
        self.probes.schedule(now, src);
    }

    pub(super) fn on_timer(&mut self, now: Mono, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        if !peer.session.is_open() || peer.state == PeerState::Unreachable {
            return;
        }
        let retry_ns = self.config.retry_ns.max(peer.session.rto_ns());
        let before = Mono::from_ns(now.as_ns().saturating_sub(retry_ns));
        while let Some(advertised) = peer.session.unacked.take_expired(before) {
            advertised.as_slice().iter().for_each(|dst| peer.resend.push_once(*dst));
        }
        let is_idle = now.since_ns(peer.last_seen) > self.config.idle_timeout_ns;
        let expects_answer = peer.pending > 0
            || !peer.resend.is_empty()
            || peer.session.unacked.oldest_sent_at().is_some()
            || peer.session.reset_due().is_some();
        if is_idle && expects_answer {
            return self.give_up(now, src);
        }
        let is_due = peer.session.reset_due().is_some_and(|due| due <= now);
        // Held grants are sent soon and carry the acknowledgement. If timeslots are pending, the
        // grants of the next batch probably carry it too, so wait for one more batch.
        let slots = if peer.pending > 0 { self.batch.slots } else { 0 };
        let waits_ns = u64::from(slots) * self.config.slot_ns;
        let due = peer.session.ack_due().map(|due| due.after_ns(waits_ns));
        let is_ack_due = !self.held.contains(src) && due.is_some_and(|due| due <= now);
        if is_due || is_ack_due || !peer.resend.is_empty() {
            self.mark_ready(src);
        }
        let peer = &self.peers[usize::from(src)];
        let is_open = peer.session.unacked.oldest_sent_at().is_some()
            || peer.session.reset_due().is_some()
            || peer.session.ack_pending_since.is_some();
        if is_open || self.ready.contains(src) {
            self.arm_timer(now, src);
        }
    }
}
