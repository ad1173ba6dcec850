//! Handles received frames.

use onepipe_base::{Now, Port, Verdict};
use onepipe_wire::{Frame, Opcode, Service};

use super::Endpoint;
use crate::Links;
use crate::control::LinkEvent;

impl Endpoint {
    /// Handles a frame that arrived on `port`.
    #[inline]
    pub(super) fn on_frame(&mut self, now: Now, port: Port, bytes: &mut [u8]) -> Verdict {
        let clock = self.timestamps.read(now);
        let parsed = match self.config.has_checksums {
            true => Frame::parse_for(bytes, self.config.process),
            false => Frame::parse_unsummed(bytes),
        };
        let Ok(frame) = parsed else {
            self.stats.frames_malformed += 1;
            return Verdict::Dropped;
        };
        let (src, dst) = (frame.header.src(), frame.header.dst());
        let is_hop_only = frame.opcode.is_hop_only();
        // Messages of a process to itself never use the network.
        let is_from_peer = src.0 < self.config.processes_max && src != self.config.process;
        let is_ours = (dst == self.config.process && is_from_peer) || is_hop_only;
        if !is_ours || !self.accepts_from(port, src, frame.opcode) {
            self.stats.frames_misrouted += 1;
            return Verdict::Dropped;
        }
        self.stats.frames_received += 1;
        let has_promise = frame.header.has_timestamps() && !self.is_direct(port);
        if has_promise && self.is_too_far_ahead(clock, frame.header.promises(clock)) {
            return Verdict::Dropped;
        }
        if frame.opcode == Opcode::LeaveAck {
            return self.on_leave_ack(&frame.header);
        }
        if self.config.links == Links::Mesh && self.is_failed(&frame) {
            // A late frame of a failed incarnation would bring the link up again.
            self.stats.frames_stale += 1;
            return Verdict::Dropped;
        }
        let event = match self.is_direct(port) {
            // The frame has passed no aggregator, so it shows nothing about a link.
            true => LinkEvent::NoPromise,
            false => self.on_link_frame(now, port, &frame),
        };
        if let LinkEvent::Refused | LinkEvent::Dead = event {
            return Verdict::Dropped;
        }
        //= spec/failure.md#R19
        if frame.opcode.is_control() {
            let is_accepted = self.on_control(now, clock, port, &frame);
            return if is_accepted { Verdict::Consumed } else { Verdict::Dropped };
        }
        //= spec/ordering.md#R23
        // Messages before promises: a promise covers what follows its frame.
        let is_failed = !is_hop_only && self.is_failed(&frame);
        if frame.opcode.service() == Some(Service::Reliable) {
            self.control.on_direct(src);
        }
        let is_accepted = !is_failed && self.on_message_frame(now, clock, &frame);
        self.stats.frames_stale += u64::from(is_failed);
        self.on_frame_promises(now, clock, port, &frame, event);
        if frame.opcode == Opcode::Solicit {
            self.on_solicit(clock, &frame);
        } else if is_accepted && frame.opcode.has_messages() {
            self.on_received(now, clock, &frame);
        }
        if is_accepted { Verdict::Consumed } else { Verdict::Dropped }
    }
}
