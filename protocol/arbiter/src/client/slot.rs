//! Timeslots: a grant is recorded until its timeslot begins, then a queued packet is sent in it.
//! Received slot frames are checked for losses.

use onepipe_base::{Incarnation, Mono, Now, ProcessId, Timestamp, Verdict};
use onepipe_wire::{Frame, Opcode, SHORT_HEADER_LEN, SLOT_HEADER_LEN, Slot};

use super::Client;
use super::calendar::{Refused, SlotGrant};
use crate::Timeslot;
use crate::fcp::seal_frame;

impl Client {
    /// Parks a granted timeslot until it begins.
    pub(super) fn record_grant(&mut self, present: Timeslot, slot: Timeslot, what: SlotGrant) {
        let counter = match self.calendar.record_grant(present, slot, what) {
            Ok(()) => {
                self.destinations[usize::from(what.dst)].pending_grants += 1;
                &mut self.stats.granted
            }
            Err(Refused::Late) => &mut self.stats.late,
            Err(Refused::Ahead) => &mut self.stats.ahead,
            Err(Refused::Duplicate) => &mut self.stats.duplicate,
        };
        *counter += 1;
    }

    /// Handles a slot frame of another endpoint.
    pub(super) fn on_slot(&mut self, now: Now, frame: &Frame<'_>) -> Verdict {
        let src = frame.header.src();
        let Ok((slot, _)) = Slot::parse(frame.payload) else { return self.drop_frame() };
        if src.0 >= self.config.nodes {
            return self.drop_frame();
        }
        self.stats.slots_received += 1;
        let incarnation: Incarnation = frame.header.incarnation();
        let number = frame.header.psn().0;
        self.losses.on_slot(now.mono, src.0 as u16, incarnation, number, &slot);
        Verdict::Consumed
    }

    /// Writes a frame for a timeslot that has begun.
    pub(super) fn poll_slot(&mut self, now: Now, buffer: &mut [u8]) -> Option<usize> {
        let present = self.clock.at(now.sync);
        while let Some((slot, what, is_late)) = self.calendar.take(present) {
            let to = &mut self.destinations[usize::from(what.dst)];
            to.pending_grants -= 1;
            if is_late {
                self.stats.late += 1;
                self.set_demand(what.dst);
                continue;
            }
            let front = SHORT_HEADER_LEN + SLOT_HEADER_LEN;
            let Some(bytes) = self.cells.take(&mut to.queue, &mut buffer[front..]) else {
                // Nothing waits, so nothing is requested in its place.
                self.stats.idle += 1;
                continue;
            };
            let (number, earlier) = (to.sent, to.earlier);
            to.sent = number.wrapping_add(1);
            //= spec/arbiter.md#R31
            to.earlier = [what.path, earlier[0], earlier[1]];
            let (src, dst) = (self.config.process.0, u32::from(what.dst));
            let label = self.config.labels.label(what.path, src, dst);
            let slot = Slot { label, timeslot: slot.0 as u32, path: what.path, earlier };
            slot.write(&mut buffer[SHORT_HEADER_LEN..])
                .expect("the frame length was checked by new");
            self.stats.slots_sent += 1;
            let address = self.address(ProcessId(u32::from(what.dst)));
            let payload = SLOT_HEADER_LEN + bytes;
            return Some(seal_frame(buffer, Opcode::Slot, address, number, payload));
        }
        None
    }

    /// Returns the time at which the next granted timeslot begins.
    pub(super) fn slot_due(&self) -> Option<Mono> {
        let (slot, now): (Timeslot, Now) = (self.calendar.next()?, self.last?);
        let sync: Timestamp = now.sync;
        Some(self.clock.mono(now, sync, slot))
    }
}
