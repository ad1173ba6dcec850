//! Packets that have left on one connection and whose fate is not known.

use alloc::boxed::Box;

use onepipe_base::{Mono, Psn, ScatteringId, Timestamp};
use onepipe_wire::AckView;

use super::keep::{Keep, Kept, KeptPacket, Resend};
use crate::numbered::Numbered;

/// A message that has left, as its failure would be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SentMessage {
    pub scattering: ScatteringId,
    pub timestamp: Timestamp,
    pub index: u16,
    /// Reported already (a message of several fragments fails once).
    pub is_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Packet {
    /// The number of its first message among all that the connection has sent.
    first: u64,
    messages: u16,
    is_settled: bool,
    /// Its messages went into room, not into the window.
    in_room: bool,
    charge: u32,
    sent: Mono,
}

/// What an acknowledgement has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Charge of packets newly known to be received.
    pub received_charge: u32,
    /// Charge of packets newly known to be fenced, and what of it was in the window.
    pub fenced_charge: u64,
    pub fenced_in_window: u64,
    /// When the newest of the newly received packets left.
    pub newest_sent: Option<Mono>,
    /// The highest packet that is reported as received out of turn.
    pub highest_received: Option<Psn>,
    /// The receiver still keeps a fence that this side has settled: tell it.
    pub has_stale_fence: bool,
}

/// The packets from the first unsettled one on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    base: Psn,
    packets: Numbered<Packet>,
    messages: Numbered<SentMessage>,
    /// The message that is still being cut into fragments must not be forgotten.
    open: Option<u64>,
    charge: u64,
    /// All messages of packets before this one are reported: their outcome was unknown.
    given_up: Psn,
    /// Of the reliable service: what is sent again.
    keep: Option<Box<Keep>>,
}

/// A packet that is to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub psn: Psn,
    /// Its messages' numbers.
    pub first: u64,
    pub messages: u16,
    pub in_room: bool,
    pub packet: KeptPacket,
}

impl Flight {
    /// A flight whose packets can be sent again.
    pub fn keeping() -> Self {
        Self { keep: Some(Box::new(Keep::new())), ..Self::new() }
    }

    pub fn new() -> Self {
        Self {
            base: Psn::FIRST,
            packets: Numbered::new(),
            messages: Numbered::new(),
            open: None,
            charge: 0,
            given_up: Psn::FIRST,
            keep: None,
        }
    }

    /// Fetches the oldest packet and its message.
    #[inline]
    pub fn fetch(&self) -> u64 {
        let packet = self.packets.front().map_or(0, |packet| packet.first);
        packet ^ self.messages.front().map_or(0, |message| u64::from(message.index))
    }

    /// The first packet whose fate is not known.
    pub fn base(&self) -> Psn {
        self.base
    }

    /// The packet that leaves next.
    #[inline]
    pub fn next(&self) -> Psn {
        self.base.plus(self.packets.len() as u32)
    }

    /// Charge of all packets whose fate is not known.
    #[inline]
    pub fn charge(&self) -> u64 {
        self.charge
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether the fate of every message is known, or reported as unknown.
    pub fn is_accounted_for(&self) -> bool {
        self.is_empty() || !self.given_up.is_before(self.next())
    }

    /// When the oldest packet of unknown fate left.
    pub fn oldest_sent(&self) -> Option<Mono> {
        self.packets.front().map(|packet| packet.sent)
    }

    /// The first packet that left after `instant`, or the next one.
    pub fn first_sent_after(&self, instant: Mono) -> Psn {
        // They left in order, so search by halves.
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

    /// Keeps the message added last.
    #[inline]
    pub fn push_kept(&mut self, kept: Kept) {
        if let Some(keep) = &mut self.keep {
            keep.messages.push(kept);
        }
    }

    /// The packet with the last `messages` messages leaves.
    #[inline]
    pub fn push_packet(&mut self, now: Mono, messages: u16, charge: u32, in_room: bool) {
        let first = self.messages.next() - u64::from(messages);
        self.push(now, first, messages, charge, in_room);
        if let Some(keep) = &mut self.keep {
            keep.packets.push(KeptPacket { offset: None, piece: 0, was_resent: false });
        }
    }

    /// A packet with a fragment of the last message leaves; `is_last` when it ends the message.
    pub fn push_fragment(
        &mut self,
        now: Mono,
        charge: u32,
        in_room: bool,
        (offset, piece, is_last): (u32, u32, bool),
    ) {
        let first = self.messages.next() - 1;
        self.push(now, first, 1, charge, in_room);
        self.open = (!is_last).then_some(first);
        if let Some(keep) = &mut self.keep {
            keep.packets.push(KeptPacket { offset: Some(offset), piece, was_resent: false });
            let kept = keep.messages.get_mut(first);
            kept.missing += u32::from(!is_last);
        }
    }

    #[inline]
    fn push(&mut self, now: Mono, first: u64, messages: u16, charge: u32, in_room: bool) {
        self.charge += u64::from(charge);
        let is_settled = false;
        self.packets.push(Packet { first, messages, is_settled, in_room, charge, sent: now });
    }

    /// Takes in what the receiver has and has not; `fail` is called once for each message that it
    /// will never have, and then `lost` if nothing of it is on the way any more; `done` for each
    /// other of which that is true, while nothing is lost. Answers `None` for an acknowledgement
    /// of packets that never left.
    pub fn on_ack(
        &mut self,
        view: &AckView<'_>,
        mut fail: impl FnMut(SentMessage, Option<Kept>),
        mut lost: impl FnMut(Kept),
        mut done: impl FnMut(Kept),
    ) -> Option<Settled> {
        let from = view.ack.cumulative;
        let reach = view.words().len() as u32 * 64;
        if self.next().is_before(from) || from.plus(reach).since(self.base) < 0 && reach > 0 {
            // From the future: not ours. From the distant past: nothing new in it.
            return (!self.next().is_before(from)).then(Settled::default);
        }
        let mut settled = Settled::default();
        let mut lowest_fence = None;
        let ahead = from.since(self.base).max(0) as usize;
        for at in 0..ahead {
            self.settle_received(at, &mut settled, &mut done);
        }
        for (word, (received, fenced)) in view.words().enumerate() {
            let start = from.plus(word as u32 * 64).since(self.base);
            for bit in Ones(received) {
                let at = start + bit as i32;
                if at >= 0 && (at as usize) < self.packets.len() {
                    settled.highest_received = Some(self.base.plus(at as u32));
                    // It may be the rest of a message that is lost.
                    let mut done = |kept| match lowest_fence {
                        None => done(kept),
                        Some(_) => lost(kept),
                    };
                    self.settle_received(at as usize, &mut settled, &mut done);
                }
            }
            for bit in Ones(fenced) {
                let at = start + bit as i32;
                lowest_fence = lowest_fence.or(Some(from.plus(word as u32 * 64 + bit)));
                if at >= 0 && (at as usize) < self.packets.len() {
                    let in_room = self.packet(at as usize).in_room;
                    let charge = self.fail_at(at as usize, &mut fail, &mut lost);
                    settled.fenced_charge += charge;
                    settled.fenced_in_window += if in_room { 0 } else { charge };
                }
            }
        }
        self.forget();
        settled.has_stale_fence = lowest_fence.is_some_and(|psn| psn.is_before(self.base));
        Some(settled)
    }

    /// Reports every message whose fate is unknown, once. Their packets stay: if the receiver is
    /// found again it says which of them it has, so that its window is counted right.
    pub fn give_up(&mut self, mut fail: impl FnMut(SentMessage)) {
        for at in 0..self.packets.len() {
            let packet = *self.packet(at);
            if !packet.is_settled {
                self.fail_messages(packet, &mut |message, _| fail(message));
            }
        }
        self.given_up = self.next();
    }

    /// The receiver has lost its memory, so no packet's fate will ever be known. Of the reliable
    /// service nothing is on the way then: see [`Flight::abandon`].
    pub fn clear(&mut self, mut fail: impl FnMut(SentMessage)) {
        debug_assert!(self.keep.is_none() || self.is_empty(), "it was abandoned before");
        for at in 0..self.packets.len() {
            self.fail_at(at, &mut |message, _| fail(message), &mut |_| {});
        }
        self.forget();
        self.given_up = self.base;
    }

    #[inline]
    fn settle_received(&mut self, at: usize, settled: &mut Settled, done: &mut impl FnMut(Kept)) {
        let packet = self.packet_mut(at);
        if !packet.is_settled {
            packet.is_settled = true;
            settled.received_charge += packet.charge;
            let (charge, sent) = (packet.charge, packet.sent);
            let messages = (packet.first, packet.messages);
            self.charge -= u64::from(charge);
            // What was given up was answered after that: no round trip.
            let mut was_asked = self.base.plus(at as u32).is_before(self.given_up);
            if let Some(keep) = &mut self.keep {
                was_asked |= keep.packets.get(self.packets.first() + at as u64).was_resent;
                settle_kept(keep, messages, done);
            }
            if !was_asked {
                settled.newest_sent = settled.newest_sent.max(Some(sent));
            }
        }
    }

    /// What left at or before `overdue`, and what lies before `gap` and was sent only once, is to
    /// be sent again, at most `packets_max` before the next acknowledgement.
    pub fn send_again(&mut self, overdue: Option<Mono>, gap: Option<Psn>, packets_max: u32) {
        let (next, end) = (self.base, self.next());
        let Some(keep) = &mut self.keep else { return };
        let asked = keep.resend.take();
        let later = |one: Psn, other: Psn| if one.is_before(other) { other } else { one };
        let gap = gap.unwrap_or(next);
        // Nothing behind the gap is looked at for its sake.
        let until = if overdue.is_some() { end } else { gap };
        keep.resend = Some(Resend {
            next,
            until: asked.map_or(until, |asked| later(asked.until, until)),
            overdue: overdue.max(asked.map(|asked| asked.overdue)).unwrap_or(Mono::from_ns(0)),
            gap: asked.map_or(gap, |asked| later(asked.gap, gap)),
            left: packets_max,
        });
    }

    /// An acknowledgement has come: as many packets again may follow. Answers whether any wait.
    pub fn resume_sending_again(&mut self, packets_max: u32) -> bool {
        let resend = self.keep.as_mut().and_then(|keep| keep.resend.as_mut());
        resend.is_some_and(|resend| {
            resend.left = packets_max;
            true
        })
    }

    /// The next packet to send again, as if it left now.
    pub fn next_again(&mut self, now: Mono) -> Option<Again> {
        loop {
            let keep = self.keep.as_mut()?;
            let resend = keep.resend.as_mut()?;
            if resend.next.is_before(self.base) {
                resend.next = self.base;
            }
            if !resend.next.is_before(resend.until) {
                keep.resend = None;
                return None;
            }
            if resend.left == 0 {
                return None;
            }
            let psn = resend.next;
            resend.next = psn.plus(1);
            let number = self.packets.first() + psn.since(self.base) as u64;
            let packet = self.packets.get_mut(number);
            let kept = keep.packets.get_mut(number);
            let is_gap = psn.is_before(resend.gap) && !kept.was_resent;
            if packet.is_settled || !(is_gap || packet.sent <= resend.overdue) {
                continue;
            }
            resend.left -= 1;
            packet.sent = now;
            kept.was_resent = true;
            let (first, messages, in_room) = (packet.first, packet.messages, packet.in_room);
            return Some(Again { psn, first, messages, in_room, packet: *kept });
        }
    }

    /// A message of a packet to be sent again.
    pub fn message(&self, number: u64) -> Option<(SentMessage, Kept)> {
        let keep = self.keep.as_ref()?;
        Some((*self.messages.get(number), *keep.messages.get(number)))
    }

    /// Drops all packets: their receiver is gone for good. `drop` is called once for each message
    /// that was not acknowledged.
    pub fn abandon(&mut self, mut drop: impl FnMut(SentMessage, Kept)) {
        let Some(keep) = &mut self.keep else { return };
        let first = self.messages.first();
        for number in first..self.messages.next() {
            let kept = *keep.messages.get(number);
            if kept.missing > 0 {
                drop(*self.messages.get(number), kept);
            }
        }
        keep.resend = None;
        for at in 0..self.packets.len() {
            self.packet_mut(at).is_settled = true;
        }
        self.charge = 0;
        self.open = None;
        self.forget();
    }

    fn fail_at(
        &mut self,
        at: usize,
        fail: &mut impl FnMut(SentMessage, Option<Kept>),
        done: &mut impl FnMut(Kept),
    ) -> u64 {
        let packet = *self.packet(at);
        if packet.is_settled {
            return 0;
        }
        self.packet_mut(at).is_settled = true;
        self.charge -= u64::from(packet.charge);
        self.fail_messages(packet, fail);
        if let Some(keep) = &mut self.keep {
            settle_kept(keep, (packet.first, packet.messages), done);
        }
        u64::from(packet.charge)
    }

    fn fail_messages(&mut self, packet: Packet, fail: &mut impl FnMut(SentMessage, Option<Kept>)) {
        for number in packet.first..packet.first + u64::from(packet.messages) {
            let message = self.messages.get_mut(number);
            if !message.is_failed {
                message.is_failed = true;
                fail(*message, self.keep.as_ref().map(|keep| *keep.messages.get(number)));
            }
        }
    }

    /// Forgets settled packets at the front, and the messages that only they held.
    fn forget(&mut self) {
        while self.packets.front().is_some_and(|packet| packet.is_settled) {
            self.packets.forget(1);
            self.base = self.base.plus(1);
        }
        if self.given_up.is_before(self.base) {
            self.given_up = self.base;
        }
        let end = self.messages.next();
        let next = self.packets.front().map_or(end, |packet| packet.first);
        let keep_from = next.min(self.open.unwrap_or(end));
        self.messages.forget(keep_from.saturating_sub(self.messages.first()));
        if let Some(keep) = &mut self.keep {
            keep.messages.forget(self.messages.first() - keep.messages.first());
            keep.packets.forget(self.packets.first() - keep.packets.first());
        }
    }

    /// The packet at this distance from the base.
    fn packet(&self, at: usize) -> &Packet {
        self.packets.get(self.packets.first() + at as u64)
    }

    fn packet_mut(&mut self, at: usize) -> &mut Packet {
        self.packets.get_mut(self.packets.first() + at as u64)
    }
}

/// A packet with these messages is acknowledged.
#[inline]
fn settle_kept(keep: &mut Keep, (first, count): (u64, u16), done: &mut impl FnMut(Kept)) {
    for number in first..first + u64::from(count) {
        let kept = keep.messages.get_mut(number);
        debug_assert!(kept.missing > 0, "settled twice");
        kept.missing -= 1;
        if kept.missing == 0 {
            done(*kept);
        }
    }
}

/// The positions of the ones in a word, ascending.
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
