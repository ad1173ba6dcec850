//! Grants: from the schedule of a batch to control packets.

use onepipe_base::{Mono, Now, ProcessId};
use onepipe_wire::{FcpArrival, FcpEncoding, FcpReset, FcpTotal, Opcode, SHORT_HEADER_LEN};

use super::Comm;
use crate::fcp::{DESTINATIONS_MAX, DestinationSet, FrameAddress, Session, seal_frame};
use crate::{BatchSummary, Paths, Routes, Schedule};

/// Interval, in packets, at which an endpoint is sent how early its requests arrive.
const ARRIVAL_INTERVAL: u32 = 16;

impl Comm {
    /// Queues the grants of a batch with their paths. Endpoints reset since the batch was closed
    /// get none. Grants of several batches share a packet while there is space and `until`, the
    /// deadline for sending, has not passed; without a deadline they are sent at once.
    ///
    /// # Panics
    /// When the paths are those of fewer endpoints than the schedule has.
    pub fn grant(
        &mut self,
        schedule: &Schedule,
        routes: &impl Routes,
        batch: &BatchSummary,
        until: Option<Mono>,
    ) {
        let BatchSummary { number, start, slots, .. } = *batch;
        let until = until.filter(|_| self.config.coalesces_grants);
        let is_held = self.held.on_batch(slots, until);
        self.batch.slots = slots as u8;
        let all = u64::MAX.unbounded_shr(u64::BITS.saturating_sub(slots));
        let rack_nodes = routes.rack_nodes() as u16;
        let nodes = self.config.nodes.min(schedule.nodes());
        for src in 0..nodes as u16 {
            let busy = schedule.busy(u32::from(src)) & all;
            if busy == 0 {
                continue;
            }
            let peer = &mut self.peers[usize::from(src)];
            //= spec/arbiter.md#R15
            if !peer.session.is_open() || number < peer.first_batch {
                // The endpoint's timeslots stay unused.
                self.stats.wasted += u64::from(busy.count_ones());
                continue;
            }
            let own = &mut self.totals[usize::from(src) * self.config.nodes as usize..]
                [..self.config.nodes as usize];
            let (resend, pending, stats) = (&mut peer.resend, &mut peer.pending, &mut self.stats);
            let mut wasted = |dst: u16| {
                own[usize::from(dst)].add_granted(1);
                *pending = pending.saturating_sub(1);
                stats.wasted += 1;
                resend.push_once(dst);
            };
            let (row, offset) = peer.grants.push(start, slots, &mut wasted);
            let (begin, count) = (offset as usize, slots as usize);
            let (destinations, paths) = (schedule.of(u32::from(src)), routes.of(u32::from(src)));
            row.destinations[begin..][..count].copy_from_slice(&destinations[..count]);
            row.paths[begin..][..count].copy_from_slice(&paths[..count]);
            let (mut rest, mut advertised) = (busy, busy);
            while rest != 0 {
                let slot = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                //= spec/arbiter.md#R17
                let leaves = src / rack_nodes != destinations[slot] / rack_nodes;
                if leaves && paths[slot] == Paths::NONE {
                    wasted(destinations[slot]);
                    advertised &= !(1 << slot);
                }
            }
            row.pending |= advertised << offset;
            if !is_held {
                self.mark_ready(src);
            } else {
                self.held.push(src);
            }
        }
        match is_held {
            true => self.held.set_deadline(until),
            false => self.held.release(&mut self.ready),
        }
    }

    /// Writes the next control packet as a frame into `slot`, which must hold a whole frame.
    /// Returns its length.
    pub fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<usize> {
        let most = self.config.frame_len_max;
        let buffer = slot.get_mut(..most)?;
        if let Some(to) = self.rejection.take() {
            let (epoch, params) = (self.epoch, self.config.params());
            let reset = FcpReset { time: now.sync, epoch, params };
            let bytes = Session::reject(&mut buffer[SHORT_HEADER_LEN..], reset)?;
            return Some(self.seal(buffer, to, 1, bytes));
        }
        while let Some((src, ())) = self.ready.pop() {
            if let Some((number, bytes)) = self.write(now, src, &mut buffer[SHORT_HEADER_LEN..]) {
                self.arm_timer(now.mono, src);
                return Some(self.seal(buffer, ProcessId(u32::from(src)), number, bytes));
            }
        }
        None
    }

    /// Completes the frame of control packet `number`. Returns its length.
    fn seal(&mut self, buffer: &mut [u8], dst: ProcessId, number: u32, bytes: usize) -> usize {
        let (src, incarnation) = (self.config.process, self.config.incarnation);
        let address = FrameAddress { src, incarnation, dst };
        let bytes = seal_frame(buffer, Opcode::Fcp, address, number, bytes);
        self.stats.sent += 1;
        self.stats.sent_bytes += bytes as u64;
        bytes
    }

    /// Writes the next packet for an endpoint. Returns its number and its length.
    fn write(&mut self, now: Now, src: u16, buffer: &mut [u8]) -> Option<(u32, usize)> {
        let nodes = self.config.nodes as usize;
        let peer = &mut self.peers[usize::from(src)];
        if !peer.session.is_open() {
            return None;
        }
        let is_reset = peer.session.take_reset(now.mono);
        let has_updates = !peer.resend.is_empty() || !peer.grants.is_empty();
        if !is_reset && peer.session.ack_pending_since.is_none() && !has_updates {
            return None;
        }
        let own = &mut self.totals[usize::from(src) * nodes..][..nodes];
        let mut writer = peer.session.write(buffer, self.epoch, self.config.params())?;
        let number = peer.session.unacked.next();
        if number % ARRIVAL_INTERVAL == 1 && peer.last_seen <= self.batch.closed_at {
            // First, while there is space; a value that cannot be encoded is skipped.
            let early_ns = self.batch.closed_at.since_ns(peer.last_seen);
            let batch_slots = self.batch.slots;
            writer.arrival(FcpArrival { early_ns, batch_slots });
        }
        let mut advertised = DestinationSet::NONE;
        let (pending, stats) = (&mut peer.pending, &mut self.stats);
        peer.grants.write(&mut writer, &mut advertised, |dst| {
            own[usize::from(dst)].add_granted(1);
            *pending = pending.saturating_sub(1);
            stats.advertised += 1;
        });
        // Totals follow the grants, which they include.
        let (mut totals, mut count) = ([FcpTotal { dst: 0, total: 0 }; DESTINATIONS_MAX], 0);
        while count < advertised.free()
            && let Some(dst) = peer.resend.pop()
        {
            totals[count] = FcpTotal { dst, total: own[usize::from(dst)].granted };
            count += 1;
        }
        let written = writer.totals(FcpEncoding::List, &totals[..count]);
        totals[..written].iter().for_each(|total| advertised.push(total.dst));
        totals[written..count].iter().for_each(|total| peer.resend.push_once(total.dst));
        self.stats.sent_acks += u64::from(writer.is_empty());
        let (bytes, lost) = peer.session.finish(now.mono, writer, &advertised);
        lost.iter().flat_map(DestinationSet::as_slice).for_each(|dst| peer.resend.push_once(*dst));
        if !peer.grants.is_empty() || !peer.resend.is_empty() {
            self.mark_ready(src);
        }
        Some((number, bytes))
    }
}
