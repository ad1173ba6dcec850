//! Bursts: scatterings that are stamped together, sorted by destination, coalesced or fragmented.

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, Psn, ScatteringId, Timestamp, copy_payload};
use onepipe_wire::{
    FRAGMENT_HEADER_LEN, Flags, FragmentHeader, HEADER_LEN, MESSAGE_HEADER_LEN, Message, Opcode,
    PIGGYBACK_LEN, Service, write_fragment_header, write_message,
};

use super::Sender;
use super::buffer::{QueuedMessage, SendBuffer};
use super::chain::{Chain, END};
use super::commit::Target;
use super::connection::Connection;
use super::credit::AdmittedMessage;
use super::flight::{FragmentRange, SentMessage};
use super::retransmit_buffer::UnackedMessage;
use crate::arena::PayloadRef;
use crate::timestamp::TimestampSource;
use crate::{Config, MESSAGE_CHARGE_BYTES};

/// A stamped message that waits for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamped {
    pub timestamp: Timestamp,
    scattering: ScatteringId,
    pub payload_ref: PayloadRef,
    pub len: u32,
    pub index: u16,
    pub is_unordered: bool,
    /// The next message for the same destination.
    pub next: u32,
    /// Number of its scattering in sending order; 0 in best effort.
    number: u64,
}

impl Stamped {
    /// Returns whether both are of one scattering and have one payload.
    #[inline]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        (self.payload_ref, self.len, self.timestamp)
            == (other.payload_ref, other.len, other.timestamp)
    }
}

/// The burst that is being sent. Until its last packet is polled, every frame promises the burst's
/// first timestamp (docs/design/ordering.md, "Why does the last frame of a burst already promise
/// what follows?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Burst {
    pub(super) messages: Vec<Stamped>,
    /// Destinations in the order in which they are served, and how many were served.
    pub(super) destinations: Vec<u32>,
    pub(super) served: usize,
    /// Whether messages for different destinations have one payload.
    has_shared: bool,
    /// Offset of the next fragment in the current message; 0 before its first.
    fragment_offset: u32,
    first: Option<Timestamp>,
}

/// Scatterings of one message each that were stamped together.
pub(super) struct StampedRun {
    pub messages: u64,
    pub charge: u64,
}

/// A data frame whose payload is written, with the fields for its header.
pub(crate) struct DataFrame {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub timestamp: Timestamp,
    pub psn: Psn,
    pub flags: u8,
    pub payload_len: usize,
}

impl Burst {
    pub fn new() -> Self {
        Self {
            messages: Vec::new(),
            destinations: Vec::new(),
            served: 0,
            has_shared: false,
            fragment_offset: 0,
            first: None,
        }
    }

    /// Returns the first timestamp of the burst while packets of it remain to be polled.
    #[inline]
    pub fn first(&self) -> Option<Timestamp> {
        self.first
    }

    /// Appends a chain of messages to the chain of the destination `to`.
    #[inline]
    fn append(&mut self, connection: &mut Connection, to: u32, chain: Chain) {
        debug_assert!(!chain.is_empty(), "a chain has messages");
        if connection.chain.is_empty() {
            connection.chain = chain;
            self.destinations.push(to);
        } else {
            self.messages[connection.chain.last as usize].next = chain.first;
            connection.chain.last = chain.last;
        }
    }

    /// Returns whether fragments of the first message to `to` were sent, and more follow.
    pub(super) fn is_fragmenting(&self, to: u32) -> bool {
        self.fragment_offset > 0 && self.destinations.get(self.served) == Some(&to)
    }

    /// Returns the number of messages of which nothing was sent. `head` returns the first message
    /// of a destination's chain.
    pub(super) fn unsent(&self, head: impl Fn(u32) -> u32) -> usize {
        let mut count = 0;
        for &to in self.destinations.get(self.served..).unwrap_or_default() {
            let mut position = head(to);
            while let Some(stamped) = self.messages.get(position as usize) {
                count += 1;
                position = stamped.next;
            }
        }
        count - usize::from(self.fragment_offset > 0)
    }

    /// Checks that a burst ends with its last message. `is_served` returns whether a destination
    /// has no message left.
    pub(super) fn check_invariants(&self, is_served: impl Fn(u32) -> bool) {
        let is_over = self.first.is_none();
        assert_eq!(is_over, self.destinations.is_empty(), "a burst has destinations");
        assert_eq!(is_over, self.messages.is_empty(), "a burst has messages");
        assert!(is_over || self.served < self.destinations.len(), "a served burst is over");
        assert!(!is_over || self.fragment_offset == 0, "a burst ends with a whole message");
        assert!(!is_over || !self.has_shared, "a burst shares its own payloads");
        let served = self.destinations.iter().take(self.served);
        assert!(served.copied().all(is_served), "destinations are served in turn");
        let first = self.messages.first().map(|stamped| stamped.timestamp);
        assert!(first >= self.first, "a burst holds the promise below its messages");
        let ascends = |pair: &[Stamped]| pair[0].timestamp <= pair[1].timestamp;
        assert!(self.messages.windows(2).all(ascends), "messages are stamped in order");
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.destinations.clear();
        (self.served, self.fragment_offset, self.first) = (0, 0, None);
        self.has_shared = false;
    }
}

impl Sender {
    /// Stamps a message, and appends it to the chain of its destination.
    #[inline]
    pub(super) fn chain(&mut self, admitted: AdmittedMessage, timestamp: Timestamp) {
        debug_assert!(!admitted.is_local, "local messages bypass the network");
        let AdmittedMessage { scattering, message, index, is_unordered, .. } = admitted;
        let QueuedMessage { to, len, payload_ref } = message;
        let burst = &mut self.burst;
        let position = burst.messages.len() as u32;
        burst.first = burst.first.or(Some(timestamp));
        let number = self.commit.next_number();
        let next = END;
        let stamped =
            Stamped { timestamp, scattering, payload_ref, len, index, is_unordered, next, number };
        burst.has_shared |=
            burst.messages.last().is_some_and(|before| before.is_shared_with(&stamped));
        burst.messages.push(stamped);
        burst.append(
            self.peers.get_mut(to as usize),
            to,
            Chain { first: position, last: position },
        );
    }

    /// Stamps the oldest scatterings as long as each has a single message, all these are for one
    /// other process, and its windows admit them: a burst of single messages costs one look at the
    /// connection. Stops once the charge of the run has reached `bytes_max`. An empty run says
    /// nothing: [`Sender::admit_single`] and [`Sender::admit`] handle all other cases.
    #[inline]
    pub(super) fn stamp_run(
        &mut self,
        bytes_max: usize,
        timestamps: &mut TimestampSource,
    ) -> StampedRun {
        let mut run = StampedRun { messages: 0, charge: 0 };
        let Self { service, buffer, peers, credit, burst, commit, .. } = self;
        let Some((_, oldest, _)) = buffer.single_after(0).filter(|_| credit.considers_oldest())
        else {
            return run;
        };
        let to = oldest.to;
        let connection = peers.get_mut(to as usize);
        let allowance = if connection.is_local { 0 } else { connection.allowance() };
        let (first, begin) = (timestamps.promise(), burst.messages.len() as u32);
        while run.charge < bytes_max as u64
            && let Some((scattering, message, is_unordered)) = buffer.single_after(run.messages)
            && message.to == to
            && run.charge + message.charge() <= allowance
            && !message.has_failed()
        {
            let timestamp = timestamps.next();
            run.messages += 1;
            run.charge += message.charge();
            burst.messages.push(Stamped {
                timestamp,
                scattering,
                payload_ref: message.payload_ref,
                len: message.len,
                index: 0,
                is_unordered,
                next: begin + run.messages as u32,
                number: commit.next_number(),
            });
            if *service == Service::Reliable {
                commit.push_single(scattering, timestamp, Target::new(to, 0), 1);
            }
        }
        let Some(last) = burst.messages.last_mut().filter(|_| run.messages > 0) else {
            return run;
        };
        last.next = END;
        burst.first = burst.first.or(first);
        let chain = Chain { first: begin, last: begin + run.messages as u32 - 1 };
        burst.append(connection, to, chain);
        (connection.has_waiting, connection.claimed) = (false, 0);
        connection.sent += run.charge;
        connection.in_burst += run.charge;
        buffer.pop_singles(run.messages);
        run
    }

    /// Returns the destinations of the burst that are still to be served.
    #[inline]
    pub fn burst_destinations(&self) -> impl Iterator<Item = ProcessId> {
        let rest = &self.burst.destinations[self.burst.served..];
        rest.iter().map(|to| self.peers.get(*to as usize).to)
    }

    /// Writes the next data frame of the burst behind the header in `slot`. If [`Burst::first`] is
    /// `None` afterwards, this frame closes the burst. `acknowledge` writes an acknowledgement for
    /// the destination in front of whole messages, and returns its length.
    #[inline]
    pub fn write_data(
        &mut self,
        config: &Config,
        now: Mono,
        slot: &mut [u8],
        mut acknowledge: impl FnMut(ProcessId, &mut [u8]) -> usize,
    ) -> Option<DataFrame> {
        let to = *self.burst.destinations.get(self.burst.served)? as usize;
        let slot = &mut slot[HEADER_LEN..self.frame_len_max];
        let head = &self.burst.messages[self.peers.get(to).chain.first as usize];
        let needed = head.len as usize + MESSAGE_HEADER_LEN;
        let is_whole = needed <= slot.len();
        if self.burst.has_shared
            && self.shares_payloads
            && is_whole
            && let Some(written) = self.write_shared(config, now, to, slot, &mut acknowledge)
        {
            return Some(written);
        }
        let mut written = match is_whole {
            true => {
                let has_space = needed + PIGGYBACK_LEN <= slot.len();
                let process = self.peers.get(to).to;
                let ack_len = if has_space { acknowledge(process, slot) } else { 0 };
                let mut written = self.write_whole(now, to, &mut slot[ack_len..]);
                if ack_len > 0 {
                    written.flags |= Flags::PIGGYBACK;
                    written.payload_len += ack_len;
                }
                written
            }
            false => self.write_fragment(now, to, slot),
        };
        if self.peers.get(to).uses_reservation {
            written.flags |= Flags::RESERVED;
        }
        if self.take_ack_request(to, written.payload_len) {
            written.flags |= Flags::ACK_NOW;
        }
        self.finish_packet(config, now, to);
        self.skip_served();
        Some(written)
    }

    /// Ends the part of the burst for a destination that has no message left, and times its packet.
    #[inline]
    pub(super) fn finish_packet(&mut self, config: &Config, now: Mono, to: usize) {
        let connection = self.peers.get_mut(to);
        if connection.chain.is_empty() {
            (connection.in_burst, connection.uses_reservation) = (0, false);
        }
        if connection.deadline.is_none() {
            self.arm(config, now, to);
        }
    }

    /// Turns to the next destination with messages left, or ends the burst.
    #[inline]
    pub(super) fn skip_served(&mut self) {
        while let Some(to) = self.burst.destinations.get(self.burst.served)
            && self.peers.get(*to as usize).chain.is_empty()
        {
            self.burst.served += 1;
        }
        if self.burst.served == self.burst.destinations.len() {
            self.burst.clear();
        }
    }

    //= spec/ordering.md#R34
    /// Writes as many whole messages as fit, all of them with an order or all without.
    #[inline]
    fn write_whole(&mut self, now: Mono, to: usize, slot: &mut [u8]) -> DataFrame {
        let is_reliable = self.service == Service::Reliable;
        let connection = self.peers.get_mut(to);
        let psn = connection.flight.next_psn();
        let Stamped { timestamp: first, is_unordered, .. } =
            self.burst.messages[connection.chain.first as usize];
        let mut flags = Flags::END_OF_MESSAGE | flag_of(is_unordered);
        let (mut used, mut count, mut charge) = (0, 0u16, 0u32);
        let stamped = self.burst.messages[connection.chain.first as usize];
        if connection.chain.is_single() && stamped.index == 0 {
            // A header of the message would say nothing that the frame does not.
            let payload = self.buffer.payload(stamped.payload_ref, stamped.len);
            copy_payload(&mut slot[..payload.len()], payload);
            flags |= Flags::SINGLE;
            (used, count) = (payload.len(), 1);
            charge = record(connection, &mut self.buffer, &stamped, is_reliable);
        }
        while !connection.chain.is_empty() && count < u16::MAX {
            let stamped = self.burst.messages[connection.chain.first as usize];
            if stamped.is_unordered != is_unordered {
                break;
            }
            let payload = self.buffer.payload(stamped.payload_ref, stamped.len);
            let delta_ns = stamped.timestamp.since_ns(first) as u32;
            let message = Message { delta_ns, index: stamped.index, payload };
            let Some(len) = write_message(&mut slot[used..], message) else { break };
            used += len;
            count += 1;
            charge += record(connection, &mut self.buffer, &stamped, is_reliable);
        }
        debug_assert!(count > 0, "the first message fits");
        connection.flight.push_packet(now, count, charge, connection.uses_reservation);
        DataFrame {
            to: connection.to,
            opcode: Opcode::Data,
            timestamp: first,
            psn,
            flags,
            payload_len: used,
        }
    }

    /// Writes the next fragment of a message that exceeds a frame.
    fn write_fragment(&mut self, now: Mono, to: usize, slot: &mut [u8]) -> DataFrame {
        let is_reliable = self.service == Service::Reliable;
        let connection = self.peers.get_mut(to);
        let psn = connection.flight.next_psn();
        let stamped = self.burst.messages[connection.chain.first as usize];
        let offset = self.burst.fragment_offset;
        let space = slot.len() - FRAGMENT_HEADER_LEN;
        let piece = (stamped.len - offset).min(space as u32);
        let is_last = offset + piece == stamped.len;
        let index = stamped.index;
        let header = FragmentHeader { index, message_len: stamped.len, offset };
        write_fragment_header(slot, header);
        let payload_len = FRAGMENT_HEADER_LEN + piece as usize;
        let payload = self.buffer.payload(stamped.payload_ref.plus(offset as usize), piece);
        slot[FRAGMENT_HEADER_LEN..payload_len].copy_from_slice(payload);
        let mut charge = piece;
        if offset == 0 {
            charge += MESSAGE_CHARGE_BYTES;
            connection.flight.push_message(SentMessage {
                scattering: stamped.scattering,
                timestamp: stamped.timestamp,
                index,
                is_failed: false,
            });
            connection.flight.push_unacked(UnackedMessage {
                scattering: stamped.number,
                payload_ref: stamped.payload_ref,
                len: stamped.len,
                missing: 1,
            });
        }
        let fragment = FragmentRange { offset, len: piece, is_last };
        connection.flight.push_fragment(now, charge, connection.uses_reservation, fragment);
        self.burst.fragment_offset = if is_last { 0 } else { offset + piece };
        if is_last {
            if !is_reliable {
                self.buffer.release(stamped.payload_ref, stamped.len);
            }
            connection.chain.first = stamped.next;
        }
        let flags = if is_last { Flags::END_OF_MESSAGE } else { 0 } | flag_of(stamped.is_unordered);
        let (to, timestamp) = (connection.to, stamped.timestamp);
        DataFrame { to, opcode: Opcode::Fragment, timestamp, psn, flags, payload_len }
    }

    /// Returns whether the frame must request an acknowledgement: once a quarter of the congestion
    /// window was sent without a request. Counts `payload_len` as sent.
    #[inline]
    pub(super) fn take_ack_request(&mut self, to: usize, payload_len: usize) -> bool {
        let connection = self.peers.get_mut(to);
        connection.bytes_since_ack_request += payload_len as u32;
        let is_due = connection.bytes_since_ack_request > connection.congestion.window_bytes() / 4;
        if is_due {
            connection.bytes_since_ack_request = 0;
        }
        is_due
    }
}

/// Returns the flag of a packet without an order.
#[inline]
fn flag_of(is_unordered: bool) -> u8 {
    if is_unordered { Flags::UNORDERED } else { 0 }
}

/// Records the sending of a whole message, and moves on to the next message of its chain. Returns
/// the charge of the message.
#[inline]
pub(super) fn record(
    connection: &mut Connection,
    buffer: &mut SendBuffer,
    stamped: &Stamped,
    is_reliable: bool,
) -> u32 {
    connection.flight.push_message(SentMessage {
        scattering: stamped.scattering,
        timestamp: stamped.timestamp,
        index: stamped.index,
        is_failed: false,
    });
    if is_reliable {
        connection.flight.push_unacked(UnackedMessage {
            scattering: stamped.number,
            payload_ref: stamped.payload_ref,
            len: stamped.len,
            missing: 1,
        });
    } else {
        buffer.release(stamped.payload_ref, stamped.len);
    }
    connection.chain.first = stamped.next;
    stamped.len + MESSAGE_CHARGE_BYTES
}

#[cfg(test)]
mod tests;
