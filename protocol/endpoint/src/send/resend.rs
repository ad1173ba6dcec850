//! Sending packets of the reliable service again: after the retransmission time, or when later
//! packets were acknowledged.

use onepipe_base::Mono;
use onepipe_wire::{
    FRAGMENT_HEADER_LEN, Flags, FragmentHeader, HEADER_LEN, Message, Opcode, write_fragment_header,
    write_message,
};

use super::connection::State;
use super::flight::Again;
use super::{Sender, Written};
use crate::Config;
use crate::stats::Stats;

/// How many packets are sent again to a receiver before its next acknowledgement: about what a link
/// carries while the answer to the first of them comes back.
pub(crate) const RESENT_AT_ONCE: u32 = 64;

/// Who has failed is asked so often again whether it is back, before what is scattered to it fails:
/// one answer may be lost, and nobody else shall wait long for the dead.
const DOUBTED_MAX: u32 = 1;

impl Sender {
    /// Asks a silent receiver again: with the connect, the recalls and the packets that it has not
    /// answered. It is never given up here: controllers decide who has failed.
    pub(super) fn ask_reliably(
        &mut self,
        config: &Config,
        now: Mono,
        at: usize,
        stats: &mut Stats,
    ) {
        let connection = self.peers.at(at);
        let is_asked_in_vain = connection.attempts >= DOUBTED_MAX && connection.is_doubted();
        if connection.state == State::Opening && is_asked_in_vain {
            // It has failed and is not back: what waits for it will not leave.
            connection.state = State::Unreachable(now.after_ns(connection.pause_ns(config)));
            (connection.attempts, connection.wants_connect) = (0, false);
            (connection.claimed, connection.is_waited_for) = (0, false);
            self.credit.reconsider();
            return;
        }
        connection.attempts += 1;
        connection.asked = Some(now);
        let is_asking = connection.is_asking_for_room();
        connection.wants_connect |= connection.state == State::Opening || is_asking;
        if connection.attempts > config.probes_max
            && let Some(known) = &mut connection.reliable
        {
            stats.peers_unreachable += u64::from(!known.is_unreachable);
            known.is_unreachable = true;
            self.unreachable.push(connection.to);
        }
        if connection.state == State::Open {
            let rtt_ns = connection.patience_ns(config) >> connection.attempts.min(3);
            let overdue = Mono::from_ns(now.as_ns().saturating_sub(rtt_ns));
            let next = connection.flight.next();
            match connection.flight.is_empty() {
                true => connection.wants_probe = Some(next),
                false => {
                    connection.flight.send_again(Some(overdue), None, RESENT_AT_ONCE);
                    connection.congestion.on_loss(next);
                }
            }
        }
        if let Some(known) = &mut connection.reliable {
            known.told = 0;
        }
        self.queue_resend(at);
        self.queue_control(at);
        self.arm(config, now, at);
    }

    pub(super) fn queue_resend(&mut self, at: usize) {
        if let Some(known) = &mut self.peers.at(at).reliable
            && !core::mem::replace(&mut known.is_resending, true)
        {
            self.resends.push_back(at as u32);
        }
    }

    /// Writes the next packet that is to be sent again behind the header's place in `slot`.
    #[inline]
    pub fn write_again(
        &mut self,
        now: Mono,
        slot: &mut [u8],
        stats: &mut Stats,
    ) -> Option<Written> {
        if self.resends.is_empty() { None } else { self.write_next_again(now, slot, stats) }
    }

    #[inline(never)]
    fn write_next_again(
        &mut self,
        now: Mono,
        slot: &mut [u8],
        stats: &mut Stats,
    ) -> Option<Written> {
        loop {
            let at = *self.resends.front()? as usize;
            let connection = self.peers.at(at);
            if let Some(again) = connection.flight.next_again(now)
                && let Some(written) = self.rewrite(at, again, &mut slot[HEADER_LEN..])
            {
                stats.packets_resent += 1;
                return Some(written);
            }
            self.resends.pop_front();
            if let Some(known) = &mut self.peers.at(at).reliable {
                known.is_resending = false;
            }
        }
    }

    fn rewrite(&self, at: usize, again: Again, slot: &mut [u8]) -> Option<Written> {
        let connection = self.peers.peek(at);
        let (head, kept) = connection.flight.message(again.first)?;
        let mut flags = Flags::ACK_NOW | if again.in_room { Flags::RESERVED } else { 0 };
        let mut bytes = 0;
        let opcode = if let Some(offset) = again.packet.offset {
            let (piece, message_len) = (again.packet.piece, kept.bytes);
            write_fragment_header(slot, FragmentHeader { index: head.index, message_len, offset });
            let payload = self.buffer.payload(kept.place.plus(offset as usize), piece);
            bytes += FRAGMENT_HEADER_LEN;
            slot[bytes..bytes + piece as usize].copy_from_slice(payload);
            bytes += piece as usize;
            if offset + piece == message_len {
                flags |= Flags::END_OF_MESSAGE;
            }
            Opcode::Fragment
        } else {
            for number in again.first..again.first + u64::from(again.messages) {
                let (message, kept) = connection.flight.message(number)?;
                let payload = self.buffer.payload(kept.place, kept.bytes);
                let delta_ns = message.timestamp.since_ns(head.timestamp) as u32;
                let message = Message { delta_ns, index: message.index, payload };
                bytes += write_message(&mut slot[bytes..], message)?;
            }
            flags |= Flags::END_OF_MESSAGE;
            Opcode::Data
        };
        let (to, timestamp, psn) = (connection.to, head.timestamp, again.psn);
        Some(Written { to, opcode, timestamp, psn, flags, bytes })
    }
}
