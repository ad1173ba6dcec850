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
    pub(crate) fn depart(&mut self, index: usize, port: Port, frame: FrameRef) {
        let place = self.nodes[index].first_port + port.index();
        let number = self.ports[place];
        assert!(number != NO_LINK, "node {index} has no link at port {}", port.0);
        if self.nodes[index].frames_left.is_some() && self.is_over(index, frame) {
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
            return self.queue_up(number, frame);
        }
        match link.admit(self.now, bytes.len()) {
            Admission::Full => {
                self.stats.drops.queue_full += 1;
                self.pool.free(frame);
            }
            Admission::At { arrival, is_marked } => {
                if is_marked {
                    mark_congestion(bytes);
                    self.stats.marked += 1;
                }
                self.send(number, frame, arrival);
            }
        }
    }

    /// Whether the node has sent its last frame before a [`crate::Fault::CrashAfter`].
    #[cold]
    fn is_over(&mut self, index: usize, frame: FrameRef) -> bool {
        let opcode = parse_header(self.pool.bytes(frame)).map(|(_, opcode)| opcode);
        let Some(left) = &mut self.nodes[index].frames_left else { return false };
        if opcode == Ok(Opcode::Beacon) {
            return false;
        }
        let is_over = *left == 0;
        *left = left.saturating_sub(1);
        is_over
    }

    /// Handles the end of a transmission on a link with priorities: starts the next frame.
    pub(crate) fn on_sent(&mut self, number: u32, epoch: u32) {
        if self.links[number as usize].epoch == epoch {
            self.send_next(number);
        }
    }

    /// Drops all frames that are queued before a link with priorities.
    pub(crate) fn drop_waiting(&mut self, number: u32) {
        let Some(classes) = &mut self.links[number as usize].classes else { return };
        classes.is_busy = false;
        while let Some((frame, _)) = classes.pop() {
            self.stats.drops.link_down += 1;
            self.pool.free(frame);
        }
    }

    fn queue_up(&mut self, number: u32, frame: FrameRef) {
        let link = &mut self.links[number as usize];
        let bytes = self.pool.bytes_mut(frame);
        let class = (self.config.class)(bytes);
        let classes = link.classes.as_ref().expect("checked by the caller");
        let class = classes.of(class);
        let waiting = classes.waiting(class);
        if !link.has_room(waiting, bytes.len()) {
            self.stats.drops.queue_full += 1;
            return self.pool.free(frame);
        }
        if link.is_long(waiting) {
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
        self.send(number, frame, arrival);
    }

    /// Schedules the arrival of a transmitted frame, subject to the link's faults.
    #[inline]
    fn send(&mut self, number: u32, frame: FrameRef, arrival: Instant) {
        let link = &self.links[number as usize];
        if link.faults.is_some() {
            return self.send_with_faults(number, frame, arrival);
        }
        self.arrive(number, frame, arrival);
    }

    #[inline]
    fn arrive(&mut self, number: u32, frame: FrameRef, arrival: Instant) {
        let link = &self.links[number as usize];
        let (to, epoch) = (link.to.index(), link.epoch);
        self.queue(to).schedule(arrival, Event::Arrive { link: number, frame, epoch });
    }

    fn send_with_faults(&mut self, number: u32, frame: FrameRef, arrival: Instant) {
        let link = &mut self.links[number as usize];
        let state = link.faults.as_mut().expect("checked by the caller");
        let fate = state.decide(self.pool.bytes(frame));
        if fate.is_lost {
            self.stats.drops.lost += 1;
            return self.pool.free(frame);
        }
        // Duplicate before corrupting: the second copy is intact.
        let copy = fate.duplicate_delay_ns.map(|delay_ns| (self.pool.duplicate(frame), delay_ns));
        if fate.is_corrupted {
            self.stats.corrupted += 1;
            let left = state.corrupt(self.pool.bytes_mut(frame));
            self.pool.truncate(frame, left);
        }
        if let Some((frame, delay_ns)) = copy {
            self.stats.duplicated += 1;
            let arrival = arrival.after(delay_ns * NANOSECOND);
            self.arrive(number, frame, arrival);
        }
        self.stats.delayed += u64::from(fate.delay_ns > 0);
        let arrival = arrival.after(fate.delay_ns * NANOSECOND);
        self.arrive(number, frame, arrival);
    }
}
