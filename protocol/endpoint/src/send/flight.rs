//! Packets in flight on one connection.

mod abandon;
mod check;

use alloc::boxed::Box;

use onepipe_base::{Mono, Psn, ScatteringId, Timestamp};
use onepipe_wire::AckView;

use super::ack_summary::AckSummary;
use super::retransmit_buffer::{RetransmitBuffer, RetransmitRange, UnackedMessage, UnackedPacket};
use onepipe_reliability::SeqDeque;

/// A sent message, with what a report of its failure needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SentMessage {
    pub scattering: ScatteringId,
    pub timestamp: Timestamp,
    pub index: u16,
    /// Whether the failure was reported; a fragmented message fails once.
    pub is_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Packet {
    /// Number of its first message, counted over the connection.
    first: u64,
    messages: u16,
    is_resolved: bool,
    /// Its messages are charged to a reservation instead of the window.
    is_reserved: bool,
    charge: u32,
    sent: Mono,
}

/// The part of a message that a fragment carries.
#[derive(Clone, Copy)]
pub(crate) struct FragmentRange {
    pub offset: u32,
    pub len: u32,
    pub is_last: bool,
}

/// The packets from the first unresolved one on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    base: Psn,
    packets: SeqDeque<Packet>,
    messages: SeqDeque<SentMessage>,
    /// Number of the message that is being fragmented; its record is needed until its last
    /// fragment.
    open: Option<u64>,
    charge: u64,
    /// Every message in packets before this one was reported with an unknown outcome.
    given_up: Psn,
    /// Reliable service: what retransmission needs.
    buffer: Option<Box<RetransmitBuffer>>,
}

/// A packet to retransmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retransmission {
    pub psn: Psn,
    /// Number of its first message.
    pub first: u64,
    pub messages: u16,
    pub is_reserved: bool,
    pub packet: UnackedPacket,
}

impl Flight {
    /// Creates a flight whose packets can be retransmitted.
    pub fn reliable() -> Self {
        Self { buffer: Some(Box::new(RetransmitBuffer::new())), ..Self::new() }
    }

    pub fn new() -> Self {
        Self {
            base: Psn::FIRST,
            packets: SeqDeque::new(),
            messages: SeqDeque::new(),
            open: None,
            charge: 0,
            given_up: Psn::FIRST,
            buffer: None,
        }
    }

    /// Prefetches the oldest packet and its message.
    #[inline]
    pub fn prefetch(&self) -> u64 {
        let packet = self.packets.front().map_or(0, |packet| packet.first);
        packet ^ self.messages.front().map_or(0, |message| u64::from(message.index))
    }

    /// Returns the first unresolved packet.
    pub fn base(&self) -> Psn {
        self.base
    }

    /// Returns the next packet to be sent.
    #[inline]
    pub fn next_psn(&self) -> Psn {
        self.base.plus(self.packets.len() as u32)
    }

    /// Returns the charge of all unresolved packets.
    #[inline]
    pub fn charge(&self) -> u64 {
        self.charge
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns whether the outcome of every message is known or was reported as unknown.
    pub fn is_accounted_for(&self) -> bool {
        self.is_empty() || !self.given_up.is_before(self.next_psn())
    }

    /// Returns the scatterings of the messages from the first unresolved packet on.
    pub fn scatterings(&self) -> impl Iterator<Item = ScatteringId> + '_ {
        let numbers = self.messages.first_seq()..self.messages.next_seq();
        numbers.map(|number| self.messages.get(number).scattering)
    }

    /// Returns when the oldest unresolved packet was sent.
    pub fn oldest_sent(&self) -> Option<Mono> {
        self.packets.front().map(|packet| packet.sent)
    }

    /// Returns the first packet that was sent after `instant`, or the next packet.
    pub fn first_sent_after(&self, instant: Mono) -> Psn {
        // Packets are ordered by their send time, so a binary search finds it.
        let (mut older, mut end) = (0, self.packets.len());
        while older < end {
            let middle = usize::midpoint(older, end);
            match self.packet(middle).sent <= instant {
                true => older = middle + 1,
                false => end = middle,
            }
        }
        self.base.plus(older as u32)
    }

    /// Adds a message to the packet that is being written.
    #[inline]
    pub fn push_message(&mut self, message: SentMessage) {
        self.messages.push(message);
    }

    /// Records the last message for retransmission.
    #[inline]
    pub fn push_unacked(&mut self, unacked: UnackedMessage) {
        if let Some(buffer) = &mut self.buffer {
            buffer.messages.push(unacked);
        }
    }

    /// Records the sending of a packet with the last `messages` messages.
    #[inline]
    pub fn push_packet(&mut self, now: Mono, messages: u16, charge: u32, is_reserved: bool) {
        let first = self.messages.next_seq() - u64::from(messages);
        self.push(now, first, messages, charge, is_reserved);
        if let Some(buffer) = &mut self.buffer {
            buffer.packets.push(UnackedPacket::new(None, 0));
        }
    }

    /// Records the sending of a fragment of the last message.
    pub fn push_fragment(
        &mut self,
        now: Mono,
        charge: u32,
        is_reserved: bool,
        fragment: FragmentRange,
    ) {
        let FragmentRange { offset, len, is_last } = fragment;
        let first = self.messages.next_seq() - 1;
        self.push(now, first, 1, charge, is_reserved);
        self.open = (!is_last).then_some(first);
        if let Some(buffer) = &mut self.buffer {
            buffer.packets.push(UnackedPacket::new(Some(offset), len));
            let unacked = buffer.messages.get_mut(first);
            unacked.missing += u32::from(!is_last);
        }
    }

    #[inline]
    fn push(&mut self, now: Mono, first: u64, messages: u16, charge: u32, is_reserved: bool) {
        self.charge += u64::from(charge);
        let is_resolved = false;
        self.packets.push(Packet { first, messages, is_resolved, is_reserved, charge, sent: now });
    }

    /// Resolves packets by an acknowledgement. Returns `None` if it is about packets that were
    /// never sent. Calls `on_fail` once for each message with a rejected packet; `on_acked` for
    /// each that was received completely, as long as no earlier word reports a rejected packet;
    /// `on_lost` for each other message of which nothing is in flight any more.
    pub fn on_ack(
        &mut self,
        view: &AckView<'_>,
        mut on_fail: impl FnMut(SentMessage, Option<UnackedMessage>),
        mut on_lost: impl FnMut(UnackedMessage),
        mut on_acked: impl FnMut(UnackedMessage),
    ) -> Option<AckSummary> {
        let cumulative = view.ack.cumulative;
        let reach = view.words().len() as u32 * 64;
        if self.next_psn().is_before(cumulative)
            || cumulative.plus(reach).since(self.base) < 0 && reach > 0
        {
            // An acknowledgement of packets that were never sent is an error. One that covers only
            // packets before the base has no effect.
            return (!self.next_psn().is_before(cumulative)).then(AckSummary::default);
        }
        let mut summary = AckSummary::default();
        let mut lowest_rejected = None;
        let ahead = cumulative.since(self.base).max(0) as usize;
        for distance in 0..ahead {
            self.resolve_received(distance, &mut summary, &mut on_acked);
        }
        for (word, (received, rejected)) in view.words().enumerate() {
            let start = cumulative.plus(word as u32 * 64).since(self.base);
            for bit in Ones(received) {
                let distance = start + bit as i32;
                if distance >= 0 && (distance as usize) < self.packets.len() {
                    summary.highest_received = Some(self.base.plus(distance as u32));
                    // Behind a rejected packet, this one may end a message that is lost.
                    let mut on_acked = |unacked| match lowest_rejected {
                        None => on_acked(unacked),
                        Some(_) => on_lost(unacked),
                    };
                    self.resolve_received(distance as usize, &mut summary, &mut on_acked);
                }
            }
            for bit in Ones(rejected) {
                let distance = start + bit as i32;
                lowest_rejected = lowest_rejected.or(Some(cumulative.plus(word as u32 * 64 + bit)));
                if distance >= 0 && (distance as usize) < self.packets.len() {
                    let is_reserved = self.packet(distance as usize).is_reserved;
                    let charge = self.fail_at(distance as usize, &mut on_fail, &mut on_lost);
                    summary.rejected_charge += charge;
                    summary.rejected_in_window += if is_reserved { 0 } else { charge };
                }
            }
        }
        self.pop_resolved();
        Some(summary)
    }

    /// Reports every message without a known outcome, once. The packets stay: if the receiver
    /// responds again, its acknowledgements still resolve them, so that its window is accounted
    /// for.
    pub fn give_up(&mut self, mut on_fail: impl FnMut(SentMessage)) {
        for distance in 0..self.packets.len() {
            let packet = *self.packet(distance);
            if !packet.is_resolved {
                self.fail_messages(packet, &mut |message, _| on_fail(message));
            }
        }
        self.given_up = self.next_psn();
    }

    /// Fails every packet, because the receiver has restarted and will never acknowledge them. In
    /// the reliable service [`Flight::abandon`] comes first.
    pub fn clear(&mut self, mut on_fail: impl FnMut(SentMessage)) {
        debug_assert!(self.buffer.is_none() || self.is_empty(), "abandon() must precede clear()");
        for distance in 0..self.packets.len() {
            self.fail_at(distance, &mut |message, _| on_fail(message), &mut |_| {});
        }
        self.pop_resolved();
        self.given_up = self.base;
    }

    #[inline]
    fn resolve_received(
        &mut self,
        distance: usize,
        summary: &mut AckSummary,
        on_acked: &mut impl FnMut(UnackedMessage),
    ) {
        let packet = self.packet_mut(distance);
        if !packet.is_resolved {
            packet.is_resolved = true;
            summary.received_charge += packet.charge;
            let Packet { first, messages, charge, sent, .. } = *packet;
            self.charge -= u64::from(charge);
            let mut repeated_for_ns = 0;
            if let Some(buffer) = &mut self.buffer {
                let number = self.packets.first_seq() + distance as u64;
                repeated_for_ns = buffer.packets.get(number).repeated_for_ns;
                ack_messages(buffer, first, messages, on_acked);
            }
            // Acknowledged only after the connection was given up: no RTT sample.
            if !self.base.plus(distance as u32).is_before(self.given_up) {
                summary.note_times(sent, repeated_for_ns);
            }
        }
    }

    /// Schedules the retransmission of packets sent at or before `overdue`, and of packets before
    /// `gap` that were sent only once: at most `packets_max` before the next acknowledgement.
    pub fn schedule_retransmit(
        &mut self,
        overdue: Option<Mono>,
        gap: Option<Psn>,
        packets_max: u32,
    ) {
        let (next, end) = (self.base, self.next_psn());
        let Some(buffer) = &mut self.buffer else { return };
        let previous = buffer.range.take();
        let later = |one: Psn, other: Psn| if one.is_before(other) { other } else { one };
        let gap = gap.unwrap_or(next);
        // Without `overdue`, packets behind the gap need not be considered.
        let until = if overdue.is_some() { end } else { gap };
        buffer.range = Some(RetransmitRange {
            next,
            until: previous.map_or(until, |previous| later(previous.until, until)),
            overdue: overdue
                .max(previous.map(|previous| previous.overdue))
                .unwrap_or(Mono::from_ns(0)),
            gap: previous.map_or(gap, |previous| later(previous.gap, gap)),
            budget: packets_max,
        });
    }

    /// Allows `packets_max` further retransmissions after an acknowledgement. Returns whether any
    /// are scheduled.
    pub fn resume_retransmit(&mut self, packets_max: u32) -> bool {
        let range = self.buffer.as_mut().and_then(|buffer| buffer.range.as_mut());
        range.is_some_and(|range| {
            range.budget = packets_max;
            true
        })
    }

    /// Returns the next packet to retransmit, and records that it is sent now.
    pub fn next_retransmit(&mut self, now: Mono) -> Option<Retransmission> {
        loop {
            let buffer = self.buffer.as_mut()?;
            let range = buffer.range.as_mut()?;
            if range.next.is_before(self.base) {
                range.next = self.base;
            }
            if !range.next.is_before(range.until) {
                buffer.range = None;
                return None;
            }
            if range.budget == 0 {
                return None;
            }
            let psn = range.next;
            range.next = psn.plus(1);
            let number = self.packets.first_seq() + psn.since(self.base) as u64;
            let packet = self.packets.get_mut(number);
            let unacked = buffer.packets.get_mut(number);
            let is_gap = psn.is_before(range.gap) && !unacked.was_retransmitted();
            let is_due = is_gap || packet.sent <= range.overdue;
            if packet.is_resolved || psn.is_before(self.given_up) || !is_due {
                continue;
            }
            range.budget -= 1;
            unacked.on_retransmit(packet.sent, now);
            packet.sent = now;
            let (first, messages, is_reserved) =
                (packet.first, packet.messages, packet.is_reserved);
            return Some(Retransmission { psn, first, messages, is_reserved, packet: *unacked });
        }
    }

    /// Returns a message of a packet to retransmit.
    pub fn message(&self, number: u64) -> Option<(SentMessage, UnackedMessage)> {
        let buffer = self.buffer.as_ref()?;
        Some((*self.messages.get(number), *buffer.messages.get(number)))
    }

    /// Resolves a packet as lost. Returns its charge; 0 if it was resolved before.
    fn fail_at(
        &mut self,
        distance: usize,
        on_fail: &mut impl FnMut(SentMessage, Option<UnackedMessage>),
        on_lost: &mut impl FnMut(UnackedMessage),
    ) -> u64 {
        let packet = *self.packet(distance);
        if packet.is_resolved {
            return 0;
        }
        self.packet_mut(distance).is_resolved = true;
        self.charge -= u64::from(packet.charge);
        self.fail_messages(packet, on_fail);
        if let Some(buffer) = &mut self.buffer {
            ack_messages(buffer, packet.first, packet.messages, on_lost);
        }
        u64::from(packet.charge)
    }

    fn fail_messages(
        &mut self,
        packet: Packet,
        on_fail: &mut impl FnMut(SentMessage, Option<UnackedMessage>),
    ) {
        for number in packet.first..packet.first + u64::from(packet.messages) {
            let message = self.messages.get_mut(number);
            if !message.is_failed {
                message.is_failed = true;
                on_fail(*message, self.buffer.as_ref().map(|buffer| *buffer.messages.get(number)));
            }
        }
    }

    /// Removes resolved packets at the front, and messages that only they contained.
    fn pop_resolved(&mut self) {
        while self.packets.front().is_some_and(|packet| packet.is_resolved) {
            self.packets.pop_front(1);
            self.base = self.base.plus(1);
        }
        if self.given_up.is_before(self.base) {
            self.given_up = self.base;
        }
        let end = self.messages.next_seq();
        let next = self.packets.front().map_or(end, |packet| packet.first);
        let first_needed = next.min(self.open.unwrap_or(end));
        self.messages.pop_front(first_needed.saturating_sub(self.messages.first_seq()));
        if let Some(buffer) = &mut self.buffer {
            buffer.messages.pop_front(self.messages.first_seq() - buffer.messages.first_seq());
            buffer.packets.pop_front(self.packets.first_seq() - buffer.packets.first_seq());
        }
    }

    /// Returns the packet at this distance from the base.
    fn packet(&self, distance: usize) -> &Packet {
        self.packets.get(self.packets.first_seq() + distance as u64)
    }

    fn packet_mut(&mut self, distance: usize) -> &mut Packet {
        self.packets.get_mut(self.packets.first_seq() + distance as u64)
    }
}

/// Records the acknowledgement of a packet with `count` messages from number `first` on.
#[inline]
fn ack_messages(
    buffer: &mut RetransmitBuffer,
    first: u64,
    count: u16,
    on_acked: &mut impl FnMut(UnackedMessage),
) {
    for number in first..first + u64::from(count) {
        let unacked = buffer.messages.get_mut(number);
        debug_assert!(unacked.missing > 0, "acknowledged twice");
        unacked.missing -= 1;
        if unacked.missing == 0 {
            on_acked(*unacked);
        }
    }
}

/// Iterates over the positions of the ones in a word, in ascending order.
struct Ones(u64);

impl Iterator for Ones {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests;
