//! Shared frames: a message for several destinations leaves once, for the switch to replicate.

use alloc::vec::Vec;
use core::mem;

use onepipe_base::{Mono, ProcessId, Psn};
use onepipe_wire::{
    Flags, MESSAGE_HEADER_LEN, Message, Opcode, PIGGYBACK_LEN, SHARED_DATA_RECEIVER_LEN,
    SHARED_DATA_RECEIVERS_MAX, Service, SharedReceiver, SharedReceivers, write_message,
};

use super::Sender;
use super::burst::{DataFrame, Stamped, record};
use super::chain::END;
use crate::Config;

/// The messages at the front of a destination's chain that a frame takes.
#[derive(Clone, Copy)]
struct Run {
    messages: u16,
    /// Their length with their headers, in bytes.
    len: usize,
    /// Whether they are all messages of the chain; otherwise the frame is full.
    is_whole_chain: bool,
}

impl Sender {
    //= spec/ordering.md#R51
    /// Writes a frame of messages for `to` that other destinations get as well, with
    /// acknowledgements for them as far as they fit. `None` if no other destination would send the
    /// same messages in its next frame.
    #[inline(never)]
    pub(super) fn write_shared(
        &mut self,
        config: &Config,
        now: Mono,
        to: usize,
        slot: &mut [u8],
        acknowledge: &mut impl FnMut(ProcessId, &mut [u8]) -> usize,
    ) -> Option<DataFrame> {
        let mut sharing = mem::take(&mut self.sharing);
        let run = self.find_sharing(to, slot.len(), &mut sharing);
        let written = run.map(|run| {
            let acks = self.write_acks(&sharing, run, slot, acknowledge);
            self.fill_shared(config, now, &sharing, run, acks, slot)
        });
        sharing.clear();
        self.sharing = sharing;
        written
    }

    /// Collects the destinations, `to` first, whose next frame would have the same messages.
    fn find_sharing(&self, to: usize, slot_len: usize, sharing: &mut Vec<u32>) -> Option<Run> {
        sharing.clear();
        let head = self.head(to as u32)?;
        let least = SharedReceivers::list_len(0) + MESSAGE_HEADER_LEN + head.len as usize;
        let receivers_max = slot_len.saturating_sub(least) / SHARED_DATA_RECEIVER_LEN;
        let heads = self.burst.destinations[self.burst.served..].iter().copied();
        let same_head = heads.filter(|other| {
            self.may_share(*other) && self.head(*other).is_some_and(|one| one.is_shared_with(head))
        });
        sharing.extend(same_head.take(receivers_max.min(SHARED_DATA_RECEIVERS_MAX)));
        if sharing.len() < 2 || sharing[0] != to as u32 {
            return None;
        }
        let run = self.measure_run(head, slot_len - SharedReceivers::list_len(sharing.len()))?;
        sharing.retain(|other| self.has_run(*other, head, run));
        (sharing.len() > 1).then_some(run)
    }

    /// Returns the first message of the burst that was not sent to a destination.
    #[inline]
    fn head(&self, to: u32) -> Option<&Stamped> {
        let position = self.peers.get(to as usize).chain.first;
        (position != END).then(|| &self.burst.messages[position as usize])
    }

    /// Returns whether frames to a destination may be shared: it responds, and they are charged to
    /// its window.
    #[inline]
    fn may_share(&self, to: u32) -> bool {
        let connection = self.peers.get(to as usize);
        connection.attempts == 0 && !connection.uses_reservation
    }

    #[inline]
    fn next<'a>(&'a self, stamped: &Stamped) -> Option<&'a Stamped> {
        (stamped.next != END).then(|| &self.burst.messages[stamped.next as usize])
    }

    /// Returns how many messages of a chain fit `space`. `None` if they differ in their index, of
    /// which a receiver has one only.
    fn measure_run(&self, head: &Stamped, space: usize) -> Option<Run> {
        let (mut used, mut messages) = (0, 0u16);
        let mut stamped = Some(head);
        while let Some(one) = stamped {
            let len = used + MESSAGE_HEADER_LEN + one.len as usize;
            if len > space || messages == u16::MAX {
                break;
            }
            if one.index != head.index {
                return None;
            }
            messages += 1;
            used = len;
            stamped = self.next(one);
        }
        Some(Run { messages, len: used, is_whole_chain: stamped.is_none() })
    }

    /// Returns whether the chain of `to` begins with the messages of `run`, and ends with them if
    /// `run` is a whole chain, so that sharing adds no frame for what follows.
    fn has_run(&self, to: u32, head: &Stamped, run: Run) -> bool {
        let Some(own) = self.head(to) else { return false };
        let (mut one, mut other) = (Some(head), Some(own));
        for _ in 0..run.messages {
            let (Some(left), Some(right)) = (one, other) else { return false };
            if !left.is_shared_with(right) || right.index != own.index {
                return false;
            }
            (one, other) = (self.next(left), self.next(right));
        }
        !run.is_whole_chain || other.is_none()
    }

    /// Writes acknowledgements between the list and the messages of `run`. Returns which of the
    /// destinations have one, the first in bit 0.
    fn write_acks(
        &self,
        sharing: &[u32],
        run: Run,
        slot: &mut [u8],
        acknowledge: &mut impl FnMut(ProcessId, &mut [u8]) -> usize,
    ) -> u64 {
        let space = slot.len() - run.len;
        let mut rest = &mut slot[SharedReceivers::list_len(sharing.len())..space];
        let mut acks = 0;
        for (position, to) in sharing.iter().enumerate() {
            if rest.len() < PIGGYBACK_LEN {
                break;
            }
            let len = acknowledge(self.peers.get(*to as usize).to, rest);
            rest = &mut rest[len..];
            acks |= u64::from(len > 0) << position;
        }
        acks
    }

    /// Writes the messages of `run` behind the acknowledgements, and the list of the destinations
    /// that share them.
    fn fill_shared(
        &mut self,
        config: &Config,
        now: Mono,
        sharing: &[u32],
        run: Run,
        acks: u64,
        slot: &mut [u8],
    ) -> DataFrame {
        let to = self.peers.get(sharing[0] as usize).to;
        let (list, rest) = slot.split_at_mut(SharedReceivers::list_len(sharing.len()));
        let acks_len = acks.count_ones() as usize * PIGGYBACK_LEN;
        let rest = &mut rest[acks_len..];
        let mut position = self.peers.get(sharing[0] as usize).chain.first;
        let timestamp = self.burst.messages[position as usize].timestamp;
        let mut used = 0;
        for _ in 0..run.messages {
            let stamped = &self.burst.messages[position as usize];
            let payload = self.buffer.payload(stamped.payload_ref, stamped.len);
            let delta_ns = stamped.timestamp.since_ns(timestamp) as u32;
            let message = Message { delta_ns, index: 0, payload };
            used += write_message(&mut rest[used..], message).expect("measured before");
            position = stamped.next;
        }
        let receivers = sharing.iter().enumerate().map(|(position, to)| SharedReceiver {
            has_ack: acks >> position & 1 != 0,
            ..self.send_run(config, now, *to, run, used)
        });
        let list_len = SharedReceivers::write(list, receivers).expect("it has this length");
        self.skip_served();
        DataFrame {
            to,
            opcode: Opcode::SharedData,
            timestamp,
            psn: Psn(0),
            flags: Flags::END_OF_MESSAGE,
            payload_len: list_len + acks_len + used,
        }
    }

    /// Records the sending of the messages of `run`, `len` bytes, to one destination.
    fn send_run(
        &mut self,
        config: &Config,
        now: Mono,
        to: u32,
        run: Run,
        len: usize,
    ) -> SharedReceiver {
        let is_ack_wanted = self.take_ack_request(to as usize, len);
        let connection = self.peers.get_mut(to as usize);
        let (process, psn) = (connection.to, connection.flight.next_psn());
        let index = self.burst.messages[connection.chain.first as usize].index;
        let is_reliable = self.service == Service::Reliable;
        let mut charge = 0;
        for _ in 0..run.messages {
            let stamped = self.burst.messages[connection.chain.first as usize];
            charge += record(connection, &mut self.buffer, &stamped, is_reliable);
        }
        connection.flight.push_packet(now, run.messages, charge, false);
        self.finish_packet(config, now, to as usize);
        SharedReceiver { process, psn, index, is_ack_wanted, has_ack: false }
    }
}

#[cfg(test)]
mod tests;
