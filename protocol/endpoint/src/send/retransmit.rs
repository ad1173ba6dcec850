//! Retransmission in the reliable service, after a timeout or when later packets were acknowledged.

use onepipe_base::Mono;
use onepipe_wire::{
    FRAGMENT_HEADER_LEN, Flags, FragmentHeader, HEADER_LEN, Message, Opcode, write_fragment_header,
    write_message,
};

use super::connection::State;
use super::flight::Retransmission;
use super::timer::Expired;
use super::{DataFrame, Sender};
use crate::Config;
use crate::stats::Stats;

/// Maximum number of packets retransmitted to a receiver before its next acknowledgement: about
/// what a link carries in one round trip.
pub(crate) const RETRANSMIT_BURST: u32 = 64;

//= spec/failure.md#R71
/// Returns the maximum number of packets retransmitted after the timeout number `attempts`, which
/// counts from 1: a quarter of the number before, and at least one. A receiver that does not answer
/// is probed, not flooded; the first acknowledgement allows [`RETRANSMIT_BURST`] again.
fn burst_after_timeout(attempts: u16) -> u32 {
    let quarters = u32::from(attempts.saturating_sub(1)).min(RETRANSMIT_BURST.ilog2() / 2);
    RETRANSMIT_BURST >> (2 * quarters)
}

//= spec/failure.md#R43
/// Least number of repeated Connects to a failed receiver before scatterings to it fail: one
/// response may be lost.
const RECONNECT_ATTEMPTS_MAX: u16 = 1;

impl Sender {
    //= spec/failure.md#R2
    //= spec/failure.md#R29
    //= spec/failure.md#R55
    /// Handles a timeout: repeats the Connect, recalls and packets that were not acknowledged.
    /// Where controllers declare receivers failed, only they end what was sent.
    pub(super) fn on_reliable_timeout(
        &mut self,
        config: &Config,
        now: Mono,
        expired: Expired,
        stats: &mut Stats,
    ) {
        let (connections, peer_index) = (self.peers.len(), expired.peer_index);
        let connection = self.peers.get_mut(peer_index);
        if connection.on_unanswered(config, now) && self.on_no_answer(config, now, expired, stats) {
            return;
        }
        let connection = self.peers.get_mut(peer_index);
        let is_presumed_gone =
            connection.attempts >= RECONNECT_ATTEMPTS_MAX && connection.is_presumed_failed();
        let is_presumed_gone =
            is_presumed_gone && connection.rejoin_until(config).is_none_or(|until| until <= now);
        if connection.state == State::Opening && is_presumed_gone {
            // The receiver has failed and is not back: scatterings to it fail.
            let was_awaited = connection.was_rejoin_awaited(config, now);
            debug_assert!(was_awaited, "the next incarnation has the time to join");
            connection.state =
                State::Unreachable(now.after_ns(connection.retry_interval_ns(config)));
            connection.reset_timeouts();
            connection.wants_connect = false;
            (connection.claimed, connection.has_waiting) = (0, false);
            self.credit.reconsider();
            return;
        }
        connection.attempts = connection.attempts.saturating_add(1);
        connection.last_request = Some(now);
        let has_requested = connection.has_requested_reservation();
        connection.wants_connect |= connection.state == State::Opening || has_requested;
        if connection.attempts > config.attempts_max()
            && let Some(reliable) = &mut connection.reliable
        {
            stats.peers_unreachable += u64::from(!reliable.is_reported);
            reliable.is_reported = true;
            self.unreachable.push(connection.to);
        }
        if connection.state == State::Open {
            // Packets sent since may still be acknowledged in time.
            let overdue_ns = connection.overdue_after_ns(config);
            let overdue = Mono::from_ns(now.as_ns().saturating_sub(overdue_ns));
            let next = connection.flight.next_psn();
            match connection.flight.is_empty() {
                true => connection.wants_probe = Some(next),
                false => {
                    let burst = burst_after_timeout(connection.attempts);
                    connection.flight.schedule_retransmit(Some(overdue), None, burst);
                    connection.congestion.on_loss(next, connections);
                    let given_up = connection.flight.given_up_until();
                    connection.wants_probe = connection.wants_probe.or(given_up);
                }
            }
        }
        if let Some(reliable) = &mut connection.reliable {
            reliable.recalls_sent = 0;
        }
        self.queue_retransmit(peer_index);
        self.queue_signal(peer_index);
        self.arm(config, now, peer_index);
    }

    pub(super) fn queue_retransmit(&mut self, peer_index: usize) {
        if let Some(reliable) = &mut self.peers.get_mut(peer_index).reliable
            && !core::mem::replace(&mut reliable.is_retransmit_queued, true)
        {
            self.retransmit_queue.push_back(peer_index as u32);
        }
    }

    /// Writes the next packet to retransmit behind the header in `slot`.
    #[inline]
    pub fn write_retransmit(
        &mut self,
        now: Mono,
        slot: &mut [u8],
        stats: &mut Stats,
    ) -> Option<DataFrame> {
        if self.retransmit_queue.is_empty() {
            None
        } else {
            self.write_next_retransmit(now, slot, stats)
        }
    }

    #[inline(never)]
    fn write_next_retransmit(
        &mut self,
        now: Mono,
        slot: &mut [u8],
        stats: &mut Stats,
    ) -> Option<DataFrame> {
        loop {
            let peer_index = *self.retransmit_queue.front()? as usize;
            let connection = self.peers.get_mut(peer_index);
            if let Some(retransmission) = connection.flight.next_retransmit(now)
                && let Some(written) =
                    self.rebuild_packet(peer_index, retransmission, &mut slot[HEADER_LEN..])
            {
                stats.packets_retransmitted += 1;
                return Some(written);
            }
            self.retransmit_queue.pop_front();
            if let Some(reliable) = &mut self.peers.get_mut(peer_index).reliable {
                reliable.is_retransmit_queued = false;
            }
        }
    }

    //= spec/failure.md#R2
    fn rebuild_packet(
        &self,
        peer_index: usize,
        retransmission: Retransmission,
        slot: &mut [u8],
    ) -> Option<DataFrame> {
        let connection = self.peers.get(peer_index);
        let (head, unacked) = connection.flight.message(retransmission.first)?;
        let mut flags =
            Flags::ACK_NOW | if retransmission.is_reserved { Flags::RESERVED } else { 0 };
        let mut payload_len = 0;
        let opcode = if let Some(offset) = retransmission.packet.offset {
            let (piece, message_len) = (retransmission.packet.piece, unacked.len);
            write_fragment_header(slot, FragmentHeader { index: head.index, message_len, offset });
            let payload = self.buffer.payload(unacked.payload_ref.plus(offset as usize), piece);
            payload_len += FRAGMENT_HEADER_LEN;
            slot[payload_len..payload_len + piece as usize].copy_from_slice(payload);
            payload_len += piece as usize;
            if offset + piece == message_len {
                flags |= Flags::END_OF_MESSAGE;
            }
            Opcode::Fragment
        } else {
            for number in
                retransmission.first..retransmission.first + u64::from(retransmission.messages)
            {
                let (message, unacked) = connection.flight.message(number)?;
                let payload = self.buffer.payload(unacked.payload_ref, unacked.len);
                let delta_ns = message.timestamp.since_ns(head.timestamp) as u32;
                let message = Message { delta_ns, index: message.index, payload };
                payload_len += write_message(&mut slot[payload_len..], message)?;
            }
            flags |= Flags::END_OF_MESSAGE;
            Opcode::Data
        };
        let (to, timestamp, psn) = (connection.to, head.timestamp, retransmission.psn);
        Some(DataFrame { to, opcode, timestamp, psn, flags, payload_len })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use onepipe_wire::Service;

    use super::super::harness::SenderHarness;
    use super::*;

    //= spec/failure.md#R71
    /// While a switch paused for 35 ms, packets to the processes behind it were retransmitted in
    /// each timeout: one sender relayed up to 3,396 frames in a millisecond (fuzz seed 3000157).
    #[test]
    fn receiver_that_does_not_answer_is_probed_not_flooded() {
        let mut harness = SenderHarness::new(Service::Reliable, |config| {
            config.congestion_window_bytes = 1 << 20;
        });
        harness.open(&[(1, 1 << 20)]);
        for _ in 0..100 {
            harness.scatter(&[(1, 1_024)]);
        }
        let sent = core::iter::repeat_with(|| harness.send_lens().len());
        assert_eq!(sent.take_while(|sent| *sent > 0).sum::<usize>(), 100);
        let timeouts = (0..6).map(|_| harness.retransmit_after(1_000_000_000).len());
        assert_eq!(timeouts.collect::<Vec<_>>(), [64, 16, 4, 1, 1, 1]);
        // The first acknowledgement ends this: what is due follows, in order.
        harness.respond(1, Opcode::Ack, |ack| {
            (ack.window_bytes, ack.cumulative) = (1 << 20, onepipe_base::Psn(2));
        });
        let resumed = harness.retransmit_after(0);
        assert_eq!(resumed.iter().map(|sent| sent.2).collect::<Vec<_>>()[..3], [2, 3, 4]);
        assert_eq!(resumed.len(), RETRANSMIT_BURST as usize);
    }

    //= spec/failure.md#R2
    /// The second timeout was counted from the first one, found the copy that had left since to be
    /// recent, and retransmitted nothing.
    #[test]
    fn retransmission_that_leaves_late_restarts_the_timeout() {
        let mut harness = SenderHarness::new(Service::Reliable, |config| {
            config.probe_timeout_min_ns = 10_000;
        });
        harness.open(&[(1, 1 << 20)]);
        harness.scatter(&[(1, 64)]);
        harness.send_lens();
        let timeout_ns = 4 * 10_000;
        // Each copy leaves 2 us after the timeout that asked for it.
        harness.expire_after(timeout_ns);
        assert_eq!(harness.retransmit_after(2_000).len(), 1);
        harness.expire_after(timeout_ns - 1_000);
        assert_eq!(harness.retransmit_after(500).len(), 0, "the copy is younger than the timeout");
        harness.expire_after(500);
        assert_eq!(harness.retransmit_after(2_000).len(), 1);
    }

    //= spec/failure.md#R74
    #[test]
    fn receiver_that_becomes_slow_gets_few_duplicates() {
        let mut harness = SenderHarness::new(Service::Reliable, |config| {
            config.probe_timeout_min_ns = 1_000;
        });
        harness.open(&[(1, 1 << 20)]);
        let mut last = 1;
        // Returns the number of retransmissions of a packet that is acknowledged after
        // `round_trip_ns`.
        let mut round_trip = |round_trip_ns: u64| {
            harness.scatter(&[(1, 64)]);
            assert_eq!(harness.send_lens(), [(1, 64)]);
            let steps = round_trip_ns / 1_000;
            let repeated = (0..steps).map(|_| harness.retransmit_after(1_000).len());
            let repeated = repeated.sum::<usize>();
            last += 1;
            harness.respond(1, Opcode::Ack, |ack| {
                (ack.window_bytes, ack.cumulative) = (1 << 20, onepipe_base::Psn(last));
                ack.consumed_bytes = u64::from(last) * 128;
            });
            repeated
        };
        let quick: usize = (0..50).map(|_| round_trip(10_000)).sum();
        assert!(quick <= 5, "constant round trips leave no margin: {quick}");
        // An inbox that has grown by 490 us: 50 round trips of the usual one.
        let slow: Vec<usize> = (0..30).map(|_| round_trip(500_000)).collect();
        assert!(slow.iter().sum::<usize>() <= 60, "{slow:?}");
        assert_eq!(slow[20..].iter().sum::<usize>(), 0, "{slow:?}");
    }
}
