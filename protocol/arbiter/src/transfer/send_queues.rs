//! Objects on their way out, to all receivers.

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_wire::{PieceAck, PieceAckState, PieceAckWords};

use super::config::{ObjectId, TransferEvent};
use super::outgoing::Outgoing;
use super::send_queue::SendQueue;
use crate::client::Client;
use crate::ring::Ring;

/// Slots' worth of room that pieces leave to reports, of one receiver and in all.
const HEADROOM: u32 = 8;
const HEADROOM_ALL: u32 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SendQueues {
    send_queues: Vec<SendQueue>,
    /// Those with objects, and of them those that may have a piece to send, in turn.
    open: Vec<u16>,
    ready: Ring<u16>,
    /// Objects.
    on_serial: u32,
}

impl SendQueues {
    pub fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            send_queues: alloc::vec![SendQueue::EMPTY; nodes],
            open: Vec::with_capacity(nodes),
            ready: Ring::new(nodes),
            on_serial: 0,
        }
    }

    pub fn on_serial(&self) -> u32 {
        self.on_serial
    }

    /// The serial number of the next packet to `dst`.
    pub fn serial(&self, dst: ProcessId) -> u32 {
        self.send_queues[dst.index()].serial
    }

    /// The number of the next object for `dst`, if there is room for it. As many as `most` may be
    /// under way; and one to each receiver, whatever becomes of others.
    pub fn next_number(&self, dst: ProcessId, most: u32) -> Option<u32> {
        let send_queue = &self.send_queues[dst.index()];
        let has_space = self.on_serial < most || send_queue.is_empty();
        (has_space && send_queue.has_space()).then_some(send_queue.number)
    }

    /// Takes an object that has the next number.
    pub fn push(&mut self, outgoing: Outgoing) {
        let dst = outgoing.dst;
        let send_queue = &mut self.send_queues[dst.index()];
        if send_queue.is_empty() {
            self.open.push(dst.0 as u16);
        }
        send_queue.push(outgoing);
        self.on_serial += 1;
        self.mark_ready(dst);
    }

    /// Takes an object off.
    pub fn remove(&mut self, id: ObjectId) -> Option<Vec<u8>> {
        let send_queue = self.send_queues.get_mut(id.dst.index())?;
        let bytes = send_queue.remove(id.number)?;
        self.on_serial -= 1;
        if send_queue.is_empty() {
            self.open.retain(|open| u32::from(*open) != id.dst.0);
        }
        Some(bytes)
    }

    /// There may be something to send to `dst`.
    fn mark_ready(&mut self, dst: ProcessId) {
        let send_queue = &mut self.send_queues[dst.index()];
        if !send_queue.is_ready {
            send_queue.is_ready = self.ready.push(dst.0 as u16);
        }
    }

    /// `dst` has begun anew: all is sent anew.
    pub fn restart(&mut self, dst: ProcessId) {
        self.send_queues[dst.index()].restart();
        self.mark_ready(dst);
    }

    /// `dst` says what it has of an object. Answers what there is to tell if it has ended.
    pub fn on_report(
        &mut self,
        now: Mono,
        dst: ProcessId,
        (report, words): (&PieceAck, PieceAckWords<'_>),
    ) -> Option<TransferEvent> {
        let id = ObjectId { dst, number: report.object };
        self.send_queues[dst.index()].on_report(now, report, words);
        let ended = match report.state {
            PieceAckState::Partial => None,
            // If there is none, it is said again of one that is done.
            PieceAckState::Whole => self.remove(id).map(|bytes| TransferEvent::Sent(id, bytes)),
            PieceAckState::Refused => {
                self.remove(id).map(|bytes| TransferEvent::Refused(id, bytes))
            }
        };
        self.send_queues[dst.index()].detect_losses();
        self.mark_ready(dst);
        ended
    }

    /// Hands pieces to the endpoint as long as it has room, to each receiver in turn, and answers
    /// how many, and how many of them were sent before. A receiver has no more waiting than there
    /// is room left: so who comes last finds some, and those whose timeslots are contended do not
    /// take it all.
    pub fn feed(&mut self, client: &mut Client, packet: &mut [u8]) -> (u64, u64) {
        let config = client.config();
        let most = config.queue_slots_max.saturating_sub(HEADROOM).max(1);
        let most_all = config.slots_max.saturating_sub(HEADROOM_ALL).max(1);
        let (mut sent, mut retransmit, mut passed) = (0, 0, 0);
        while passed < self.ready.len() {
            let left = most_all.saturating_sub(client.backlog());
            if left == 0 {
                break;
            }
            let Some(dst) = self.ready.pop() else { break };
            let (send_queue, to) = (&mut self.send_queues[usize::from(dst)], ProcessId(dst.into()));
            passed += 1;
            if client.queued(to) < most.min(left) {
                let serial = send_queue.serial;
                let Some(outgoing) = send_queue.due() else {
                    send_queue.is_ready = false;
                    passed = 0;
                    continue;
                };
                let written = outgoing.write(packet, serial);
                if let Some((index, bytes)) = written
                    && client.enqueue(to, &packet[..bytes]).is_ok()
                {
                    retransmit += u64::from(outgoing.on_sent(index, serial));
                    send_queue.serial = serial.wrapping_add(1);
                    (sent, passed) = (sent + 1, 0);
                }
            }
            self.ready.push(dst);
        }
        (sent, retransmit)
    }

    /// What was sent, and nothing was heard of for long, is sent again in part.
    pub fn on_retransmit_timeout(&mut self, now: Mono, client: &Client) {
        for index in 0..self.open.len() {
            let dst = ProcessId(self.open[index].into());
            if self.send_queues[dst.index()].on_retransmit_timeout(now, client.queued(dst) > 0) {
                self.mark_ready(dst);
            }
        }
    }

    /// When that is to be looked at next.
    pub fn due(&self) -> Option<Mono> {
        self.open
            .iter()
            .filter_map(|dst| self.send_queues[usize::from(*dst)].retransmit_due())
            .min()
    }
}
