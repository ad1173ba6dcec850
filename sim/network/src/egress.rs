//! Egress: the path of a frame from a node's port onto a link through queues, priorities and
//! faults.

use onepipe_base::{Machine, Port};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_wire::{Opcode, mark_congestion, parse_header};

use crate::link::Admission;
use crate::part::{Departure, Event, NO_LINK};
use crate::pool::FrameRef;
use crate::run::Run;
use crate::{Application, LinkId};

impl<M: Machine, A: Application<M>> Run<'_, M, A> {
    /// Sends a frame out of a port.
    #[inline]
    pub(crate) fn transmit(&mut self, index: usize, port: Port, frame: FrameRef) {
        let link_index = self.shared.ports[self.part.nodes[index].first_port + port.index()];
        let node = self.id(index);
        assert!(link_index != NO_LINK, "node {} has no link at port {}", node.0, port.0);
        if self.part.nodes[index].frames_left.is_some() && self.hits_crash_point(index, frame) {
            self.part.pool.free(frame);
            return self.crash(index);
        }
        let slot = self.slot_of(link_index);
        let link = &mut self.part.links[slot];
        let bytes = self.part.pool.bytes_mut(frame);
        self.application.on_departure(self.part.now, LinkId(link_index), bytes);
        if link.is_down {
            self.scratch.stats.drops.link_down += 1;
            return self.part.pool.free(frame);
        }
        if link.priority_queues.is_some() {
            return self.enqueue(link_index, frame);
        }
        match link.admit(self.part.now, bytes.len()) {
            Admission::Full => {
                self.scratch.stats.drops.queue_full += 1;
                self.part.pool.free(frame);
            }
            Admission::Accepted { arrival, is_marked } => {
                if is_marked {
                    mark_congestion(bytes);
                    self.scratch.stats.marked += 1;
                }
                self.propagate(link_index, frame, arrival);
            }
        }
    }

    /// Counts a frame of a node with a crash point ([`crate::Fault::CrashAfter`]). Returns whether
    /// the node crashes instead of sending the frame.
    #[cold]
    fn hits_crash_point(&mut self, index: usize, frame: FrameRef) -> bool {
        let opcode = parse_header(self.part.pool.bytes(frame)).map(|(_, opcode)| opcode);
        let Some(left) = &mut self.part.nodes[index].frames_left else { return false };
        if opcode.is_ok_and(Opcode::is_beacon) {
            return false;
        }
        let crashes = *left == 0;
        *left = left.saturating_sub(1);
        crashes
    }

    /// Handles the end of a transmission on a link with priorities: starts the next frame.
    pub(crate) fn on_sent(&mut self, link_index: u32, epoch: u32) {
        if self.shared.epoch(link_index) == epoch {
            self.send_next(link_index);
        }
    }

    /// Drops all frames that are queued before a link with priorities.
    pub(crate) fn drop_queued(&mut self, link_index: u32) {
        let slot = self.slot_of(link_index);
        let Some(queues) = &mut self.part.links[slot].priority_queues else { return };
        queues.is_busy = false;
        while let Some((frame, _)) = queues.pop() {
            self.scratch.stats.drops.link_down += 1;
            self.part.pool.free(frame);
        }
    }

    /// Appends a frame to the queue of its class.
    fn enqueue(&mut self, link_index: u32, frame: FrameRef) {
        let slot = self.slot_of(link_index);
        let link = &mut self.part.links[slot];
        let bytes = self.part.pool.bytes_mut(frame);
        let class = (self.shared.config.class)(bytes);
        let queues = link.priority_queues.as_ref().expect("checked by the caller");
        let class = queues.clamp(class);
        let queued_bytes = queues.queued_bytes(class);
        if !link.has_space(queued_bytes, bytes.len()) {
            self.scratch.stats.drops.queue_full += 1;
            return self.part.pool.free(frame);
        }
        if link.exceeds_ecn_threshold(queued_bytes) {
            mark_congestion(bytes);
            self.scratch.stats.marked += 1;
        }
        let queues = link.priority_queues.as_mut().expect("checked by the caller");
        queues.push(class, frame, bytes.len());
        if !queues.is_busy {
            self.send_next(link_index);
        }
    }

    /// Starts the transmission of the next frame of a link with priorities, if one is queued.
    fn send_next(&mut self, link_index: u32) {
        let slot = self.slot_of(link_index);
        let link = &mut self.part.links[slot];
        let Some(queues) = &mut link.priority_queues else { return };
        let next = queues.pop();
        queues.is_busy = next.is_some();
        let Some((frame, bytes)) = next else { return };
        link.free_at = self.part.now.after(link.transmission_ps(bytes));
        let (free_at, epoch) = (link.free_at, self.shared.epoch(link_index));
        let arrival = free_at.after(link.propagation_ps());
        self.part.queue.schedule(free_at, Event::Sent { link: link_index, epoch });
        self.propagate(link_index, frame, arrival);
    }

    /// Schedules the arrival of a transmitted frame, subject to the link's faults.
    #[inline]
    fn propagate(&mut self, link_index: u32, frame: FrameRef, arrival: Instant) {
        if self.part.links[self.slot_of(link_index)].faults.is_some() {
            return self.propagate_with_faults(link_index, frame, arrival);
        }
        self.schedule_arrival(link_index, frame, arrival);
    }

    #[inline]
    fn schedule_arrival(&mut self, link_index: u32, frame: FrameRef, arrival: Instant) {
        let (link, epoch) = (link_index, self.shared.epoch(link_index));
        if !self.shared.is_divided {
            return self.part.queue.schedule(arrival, Event::Arrive { link, frame, epoch });
        }
        let neighbour = usize::from(self.shared.ends[link as usize].neighbour);
        let frame = self.part.pool.detach(frame);
        self.part.outboxes[neighbour].push(Departure { arrival, link, epoch, frame });
    }

    fn propagate_with_faults(&mut self, link_index: u32, frame: FrameRef, arrival: Instant) {
        let slot = self.slot_of(link_index);
        let link = &mut self.part.links[slot];
        let faults = link.faults.as_mut().expect("checked by the caller");
        let outcome = faults.draw_outcome(self.part.pool.bytes(frame));
        if outcome.is_lost {
            self.scratch.stats.drops.lost += 1;
            return self.part.pool.free(frame);
        }
        // Duplicate before corrupting: the second copy is intact.
        let copy =
            outcome.duplicate_delay_ns.map(|delay_ns| (self.part.pool.duplicate(frame), delay_ns));
        if outcome.is_corrupted {
            self.scratch.stats.corrupted += 1;
            let len = faults.corrupt(self.part.pool.bytes_mut(frame));
            self.part.pool.truncate(frame, len);
        }
        if let Some((frame, delay_ns)) = copy {
            self.scratch.stats.duplicated += 1;
            let arrival = arrival.after(delay_ns * NANOSECOND);
            self.schedule_arrival(link_index, frame, arrival);
        }
        self.scratch.stats.delayed += u64::from(outcome.delay_ns > 0);
        let arrival = arrival.after(outcome.delay_ns * NANOSECOND);
        self.schedule_arrival(link_index, frame, arrival);
    }
}
