//! Egress: the path of a frame from a node's port onto a link through queues, priorities and
//! faults.

use onepipe_base::{Machine, Port};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_wire::{Opcode, mark_congestion, parse_header};

use crate::link::Admission;
use crate::network::{Event, NO_LINK, Network};
use crate::pool::FrameRef;
use crate::{Application, LinkId, NodeId};

impl<M: Machine, A: Application<M>> Network<M, A> {
    /// Sends a frame out of a port.
    #[inline]
    pub(crate) fn transmit(&mut self, index: usize, port: Port, frame: FrameRef) {
        let slot = self.nodes[index].first_port + port.index();
        let number = self.ports[slot];
        assert!(number != NO_LINK, "node {index} has no link at port {}", port.0);
        if self.nodes[index].frames_left.is_some() && self.reaches_crash_point(index, frame) {
            self.pool.free(frame);
            return self.crash(NodeId(index as u32));
        }
        let link = &mut self.links[number as usize];
        let bytes = self.pool.bytes_mut(frame);
        self.application.on_departure(self.now, LinkId(number), bytes);
        if link.is_down {
            self.stats.drops.link_down += 1;
            return self.pool.free(frame);
        }
        if link.classes.is_some() {
            return self.enqueue(number, frame);
        }
        match link.admit(self.now, bytes.len()) {
            Admission::Full => {
                self.stats.drops.queue_full += 1;
                self.pool.free(frame);
            }
            Admission::Accepted { arrival, is_marked } => {
                if is_marked {
                    mark_congestion(bytes);
                    self.stats.marked += 1;
                }
                self.propagate(number, frame, arrival);
            }
        }
    }

    /// Whether the node has sent its last frame before a [`crate::Fault::CrashAfter`].
    #[cold]
    fn reaches_crash_point(&mut self, index: usize, frame: FrameRef) -> bool {
        let opcode = parse_header(self.pool.bytes(frame)).map(|(_, opcode)| opcode);
        let Some(left) = &mut self.nodes[index].frames_left else { return false };
        if opcode == Ok(Opcode::Beacon) {
            return false;
        }
        let reaches_crash_point = *left == 0;
        *left = left.saturating_sub(1);
        reaches_crash_point
    }

    /// Handles the end of a transmission on a link with priorities: starts the next frame.
    pub(crate) fn on_sent(&mut self, number: u32, epoch: u32) {
        if self.links[number as usize].epoch == epoch {
            self.send_next(number);
        }
    }

    /// Drops all frames that are queued before a link with priorities.
    pub(crate) fn drop_queued(&mut self, number: u32) {
        let Some(classes) = &mut self.links[number as usize].classes else { return };
        classes.is_busy = false;
        while let Some((frame, _)) = classes.pop() {
            self.stats.drops.link_down += 1;
            self.pool.free(frame);
        }
    }

    fn enqueue(&mut self, number: u32, frame: FrameRef) {
        let link = &mut self.links[number as usize];
        let bytes = self.pool.bytes_mut(frame);
        let class = (self.config.class)(bytes);
        let classes = link.classes.as_ref().expect("checked by the caller");
        let class = classes.clamp(class);
        let queued_bytes = classes.queued_bytes(class);
        if !link.has_space(queued_bytes, bytes.len()) {
            self.stats.drops.queue_full += 1;
            return self.pool.free(frame);
        }
        if link.exceeds_ecn_threshold(queued_bytes) {
            mark_congestion(bytes);
            self.stats.marked += 1;
        }
        let classes = link.classes.as_mut().expect("checked by the caller");
        classes.push(class, frame, bytes.len());
        if !classes.is_busy {
            self.send_next(number);
        }
    }

    fn send_next(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        let Some(classes) = &mut link.classes else { return };
        let next = classes.pop();
        classes.is_busy = next.is_some();
        let Some((frame, bytes)) = next else { return };
        link.free_at = self.now.after(link.sending_ps(bytes));
        let (free_at, epoch) = (link.free_at, link.epoch);
        let arrival = free_at.after(link.propagation_ps());
        let from = self.links[number as usize].from;
        self.queue(from.index()).schedule(free_at, Event::Sent { link: number, epoch });
        self.propagate(number, frame, arrival);
    }

    /// Schedules the arrival of a transmitted frame, subject to the link's faults.
    #[inline]
    fn propagate(&mut self, number: u32, frame: FrameRef, arrival: Instant) {
        let link = &self.links[number as usize];
        if link.faults.is_some() {
            return self.propagate_with_faults(number, frame, arrival);
        }
        self.schedule_arrival(number, frame, arrival);
    }

    #[inline]
    fn schedule_arrival(&mut self, number: u32, frame: FrameRef, arrival: Instant) {
        let link = &self.links[number as usize];
        let (to, epoch) = (link.to.index(), link.epoch);
        self.queue(to).schedule(arrival, Event::Arrive { link: number, frame, epoch });
    }

    fn propagate_with_faults(&mut self, number: u32, frame: FrameRef, arrival: Instant) {
        let link = &mut self.links[number as usize];
        let state = link.faults.as_mut().expect("checked by the caller");
        let outcome = state.decide(self.pool.bytes(frame));
        if outcome.is_lost {
            self.stats.drops.lost += 1;
            return self.pool.free(frame);
        }
        // Duplicate before corrupting: the second copy is intact.
        let copy =
            outcome.duplicate_delay_ns.map(|delay_ns| (self.pool.duplicate(frame), delay_ns));
        if outcome.is_corrupted {
            self.stats.corrupted += 1;
            let left = state.corrupt(self.pool.bytes_mut(frame));
            self.pool.truncate(frame, left);
        }
        if let Some((frame, delay_ns)) = copy {
            self.stats.duplicated += 1;
            let arrival = arrival.after(delay_ns * NANOSECOND);
            self.schedule_arrival(number, frame, arrival);
        }
        self.stats.delayed += u64::from(outcome.delay_ns > 0);
        let arrival = arrival.after(outcome.delay_ns * NANOSECOND);
        self.schedule_arrival(number, frame, arrival);
    }
}
