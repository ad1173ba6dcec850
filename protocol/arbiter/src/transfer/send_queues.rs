//! Outgoing objects to all receivers.

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_reliability::IndexQueue;
use onepipe_wire::{PieceAck, PieceAckState, PieceAckWords};

use super::config::{ObjectId, TransferEvent};
use super::outgoing::Outgoing;
use super::send_queue::{Rto, SendQueue};
use crate::client::Client;

/// Timeslots' worth of queue space that pieces leave to reports, per receiver and in total.
const HEADROOM: u32 = 8;
const HEADROOM_ALL: u32 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SendQueues {
    send_queues: Vec<SendQueue>,
    /// Receivers with objects, and those of them that may have a piece to send, in turn.
    open: Vec<u16>,
    ready: IndexQueue,
    /// Total number of objects.
    object_count: u32,
}

impl SendQueues {
    pub fn new(nodes: u32, rto: Rto) -> Self {
        let nodes = nodes as usize;
        Self {
            send_queues: alloc::vec![SendQueue::new(rto); nodes],
            open: Vec::with_capacity(nodes),
            ready: IndexQueue::new(nodes),
            object_count: 0,
        }
    }

    /// Asserts that the receivers with objects are known, and the objects counted.
    pub fn check_invariants(&self) {
        self.ready.check_invariants();
        let mut objects = 0;
        for (dst, send_queue) in self.send_queues.iter().enumerate() {
            send_queue.check_invariants();
            objects += send_queue.len();
            let is_open = self.open.contains(&(dst as u16));
            assert_eq!(is_open, !send_queue.is_empty(), "{dst} is known to have objects");
        }
        assert_eq!(objects, self.object_count as usize, "the objects in flight");
        assert!(self.open.len() <= objects, "each receiver with objects is known once");
    }

    pub fn object_count(&self) -> u32 {
        self.object_count
    }

    /// Returns the serial number of the next piece to `dst`.
    pub fn serial(&self, dst: ProcessId) -> u32 {
        self.send_queues[dst.index()].serial
    }

    /// Returns the number of the next object for `dst` if it can be accepted: at most `limit`
    /// objects in total, but always one per receiver.
    pub fn next_number(&self, dst: ProcessId, limit: u32) -> Option<u32> {
        let send_queue = &self.send_queues[dst.index()];
        let has_space = self.object_count < limit || send_queue.is_empty();
        (has_space && send_queue.has_space()).then_some(send_queue.number)
    }

    /// Adds an object, which has the next number.
    pub fn push(&mut self, outgoing: Outgoing) {
        let dst = outgoing.dst;
        let send_queue = &mut self.send_queues[dst.index()];
        if send_queue.is_empty() {
            self.open.push(dst.0 as u16);
        }
        send_queue.push(outgoing);
        self.object_count += 1;
        self.mark_ready(dst);
    }

    /// Removes an object and returns its contents.
    pub fn remove(&mut self, id: ObjectId) -> Option<Vec<u8>> {
        let send_queue = self.send_queues.get_mut(id.dst.index())?;
        let bytes = send_queue.remove(id.number)?;
        self.object_count -= 1;
        if send_queue.is_empty() {
            self.open.retain(|open| u32::from(*open) != id.dst.0);
        }
        Some(bytes)
    }

    /// Notes that there may be a piece to send to `dst`.
    fn mark_ready(&mut self, dst: ProcessId) {
        self.ready.push(dst.0 as u16, ());
    }

    /// Restarts all objects to `dst`, which was restarted.
    pub fn restart(&mut self, dst: ProcessId) {
        self.send_queues[dst.index()].restart();
        self.mark_ready(dst);
    }

    /// Handles a report of `dst`. Returns an event if an object has ended.
    pub fn on_report(
        &mut self,
        now: Mono,
        dst: ProcessId,
        report: &PieceAck,
        words: PieceAckWords<'_>,
    ) -> Option<TransferEvent> {
        let id = ObjectId { dst, number: report.object };
        self.send_queues[dst.index()].on_report(now, report, words);
        let ended = match report.state {
            PieceAckState::Partial => None,
            // Unknown objects have ended before; the receiver repeats its final report.
            PieceAckState::Whole => self.remove(id).map(|bytes| TransferEvent::Sent(id, bytes)),
            PieceAckState::Refused => {
                self.remove(id).map(|bytes| TransferEvent::Refused(id, bytes))
            }
        };
        self.send_queues[dst.index()].detect_losses();
        self.mark_ready(dst);
        ended
    }

    /// Queues pieces at the endpoint while it has space, to each receiver in turn. Returns the
    /// number of pieces and that of retransmissions. A receiver may occupy at most as much queue
    /// space as is left free, so that contended receivers do not starve new ones.
    pub fn feed(&mut self, client: &mut Client, packet: &mut [u8]) -> (u64, u64) {
        let config = client.config();
        let limit = config.queue_slots_max.saturating_sub(HEADROOM).max(1);
        let limit_all = config.slots_max.saturating_sub(HEADROOM_ALL).max(1);
        let (mut sent, mut retransmit, mut passed) = (0, 0, 0);
        while passed < self.ready.len() {
            let left = limit_all.saturating_sub(client.backlog());
            if left == 0 {
                break;
            }
            let Some((dst, ())) = self.ready.pop() else { break };
            let (send_queue, to) = (&mut self.send_queues[usize::from(dst)], ProcessId(dst.into()));
            passed += 1;
            if client.queued(to) < limit.min(left) {
                let serial = send_queue.serial;
                let Some(outgoing) = send_queue.due() else {
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
            self.ready.push(dst, ());
        }
        (sent, retransmit)
    }

    /// Retransmits parts of objects whose timers have expired.
    pub fn on_retransmit_timeout(&mut self, now: Mono, client: &Client) {
        for index in 0..self.open.len() {
            let dst = ProcessId(self.open[index].into());
            if self.send_queues[dst.index()].on_retransmit_timeout(now, client.queued(dst) > 0) {
                self.mark_ready(dst);
            }
        }
    }

    /// Returns the time of the next retransmission.
    pub fn due(&self) -> Option<Mono> {
        self.open
            .iter()
            .filter_map(|dst| self.send_queues[usize::from(*dst)].retransmit_due())
            .min()
    }
}
