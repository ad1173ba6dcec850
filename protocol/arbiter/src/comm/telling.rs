//! What was given out, on its way into control packets.

use onepipe_base::{Mono, Now, ProcessId};
use onepipe_wire::{FcpEarly, FcpForm, FcpReset, FcpTotal, HEADER_LEN, Opcode};

use super::Comm;
use crate::fcp::{Ends, Session, TOLD_MAX, Told, seal_frame};
use crate::timeslot::BATCH_SLOTS_MAX;
use crate::{Paths, Routes, Schedule, Timeslot};

/// In so many packets an endpoint is told once how early its own come.
const EARLY_EVERY: u32 = 16;

impl Comm {
    /// Tells endpoints what they were given in the first `slots` timeslots of batch `number`, which
    /// begins at `start`, by the paths that were chosen for it. Who has begun anew since the batch
    /// was closed is given nothing by it. They are told of as many batches at a time as a packet
    /// has room for; but of none later than its `until`, if it has one, and at once if it has none.
    ///
    /// # Panics
    /// When the paths are those of fewer endpoints than the schedule has.
    pub fn grant(
        &mut self,
        schedule: &Schedule,
        routes: &impl Routes,
        (number, start): (u64, Timeslot),
        slots: u32,
        until: Option<Mono>,
    ) {
        // As long as one more of this length finds room in the same packet.
        let is_held = self.config.gathers
            && until.is_some()
            && self.held_slots + 2 * slots <= BATCH_SLOTS_MAX;
        self.held_slots += slots;
        self.batch_slots = slots as u8;
        let all = u64::MAX.unbounded_shr(u64::BITS.saturating_sub(slots));
        let rack_nodes = routes.rack_nodes() as u16;
        let nodes = self.config.nodes.min(schedule.nodes());
        for src in 0..nodes as u16 {
            let busy = schedule.busy(u32::from(src)) & all;
            if busy == 0 {
                continue;
            }
            let peer = &mut self.peers[usize::from(src)];
            if !peer.session.is_open() || number < peer.since {
                // Its timeslots pass unused.
                self.stats.void += u64::from(busy.count_ones());
                continue;
            }
            let own = &mut self.totals[usize::from(src) * self.config.nodes as usize..]
                [..self.config.nodes as usize];
            let (again, owed, stats) = (&mut peer.again, &mut peer.owed, &mut self.stats);
            let mut void = |dst: u16| {
                own[usize::from(dst)].give(1);
                *owed = owed.saturating_sub(1);
                stats.void += 1;
                again.push_once(dst);
            };
            let (row, offset) = peer.rows.push((start, slots), &mut void);
            let (begin, count) = (offset as usize, slots as usize);
            let (targets, paths) = (schedule.of(u32::from(src)), routes.of(u32::from(src)));
            row.targets[begin..][..count].copy_from_slice(&targets[..count]);
            row.paths[begin..][..count].copy_from_slice(&paths[..count]);
            let (mut rest, mut told) = (busy, busy);
            while rest != 0 {
                let slot = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let leaves = src / rack_nodes != targets[slot] / rack_nodes;
                if leaves && paths[slot] == Paths::NONE {
                    void(targets[slot]);
                    told &= !(1 << slot);
                }
            }
            row.left |= told << offset;
            if !is_held {
                self.be_ready(src);
            } else if !peer.is_held {
                peer.is_held = self.held.push(src);
            }
        }
        match (is_held, self.held_until) {
            (true, None) => self.held_until = until,
            (true, Some(_)) => {}
            (false, _) => self.let_go(),
        }
    }

    /// What was held back is told.
    pub(super) fn let_go(&mut self) {
        (self.held_slots, self.held_until) = (0, None);
        while let Some(src) = self.held.pop() {
            self.peers[usize::from(src)].is_held = false;
            self.be_ready(src);
        }
    }

    /// Writes the next control packet as a frame into `slot`, which must hold a whole one. Answers
    /// its bytes.
    pub fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<usize> {
        let most = self.config.frame_len_max;
        let room = slot.get_mut(..most)?;
        if let Some(who) = self.turned_away.take() {
            let (epoch, terms) = (self.epoch, self.config.terms());
            let reset = FcpReset { time: now.sync, epoch, terms };
            let bytes = Session::turn_away(&mut room[HEADER_LEN..], reset)?;
            return Some(self.seal(now, room, (who, 1), bytes));
        }
        while let Some(src) = self.ready.pop() {
            self.peers[usize::from(src)].is_ready = false;
            if let Some((number, bytes)) = self.write(now, src, &mut room[HEADER_LEN..]) {
                self.look_after(now.mono, src);
                let to = (ProcessId(u32::from(src)), number);
                return Some(self.seal(now, room, to, bytes));
            }
        }
        None
    }

    /// Completes the frame of a control packet of this number. Answers its bytes.
    fn seal(
        &mut self,
        now: Now,
        room: &mut [u8],
        (dst, number): (ProcessId, u32),
        bytes: usize,
    ) -> usize {
        let (src, incarnation) = (self.config.process, self.config.incarnation);
        let ends = Ends { src, incarnation, dst };
        let bytes = seal_frame(room, (Opcode::Fcp, ends, number), now, bytes);
        self.stats.sent += 1;
        self.stats.sent_bytes += bytes as u64;
        bytes
    }

    /// The next packet for an endpoint: its number and its bytes.
    fn write(&mut self, now: Now, src: u16, room: &mut [u8]) -> Option<(u32, usize)> {
        let nodes = self.config.nodes as usize;
        let peer = &mut self.peers[usize::from(src)];
        if !peer.session.is_open() {
            return None;
        }
        let is_reset = peer.session.takes_reset(now.mono);
        let has_news = !peer.again.is_empty() || !peer.rows.is_empty();
        if !is_reset && peer.session.owes_since.is_none() && !has_news {
            return None;
        }
        let own = &mut self.totals[usize::from(src) * nodes..][..nodes];
        let mut writer = peer.session.write(room, (self.epoch, self.config.terms()))?;
        let number = peer.session.unheard.next();
        if number % EARLY_EVERY == 1 && peer.heard_at <= self.closed_at {
            // Said first, when the others leave room for it. If it cannot be said it is far off.
            let (ns, batch_slots) = (self.closed_at.since_ns(peer.heard_at), self.batch_slots);
            writer.early(FcpEarly { ns, batch_slots });
        }
        let mut told = Told::NONE;
        let (owed, stats) = (&mut peer.owed, &mut self.stats);
        peer.rows.write(&mut writer, &mut told, |dst| {
            own[usize::from(dst)].give(1);
            *owed = owed.saturating_sub(1);
            stats.told += 1;
        });
        // Behind what is given, which they count.
        let (mut totals, mut count) = ([FcpTotal { dst: 0, total: 0 }; TOLD_MAX], 0);
        while count < told.room()
            && let Some(dst) = peer.again.pop()
        {
            totals[count] = FcpTotal { dst, total: own[usize::from(dst)].given };
            count += 1;
        }
        let written = writer.totals(FcpForm::List, &totals[..count]);
        totals[..written].iter().for_each(|total| told.push(total.dst));
        totals[written..count].iter().for_each(|total| peer.again.push_once(total.dst));
        self.stats.sent_acks += u64::from(writer.is_empty());
        let (bytes, lost) = peer.session.finish(now.mono, writer, &told);
        lost.iter().flat_map(Told::all).for_each(|dst| peer.again.push_once(*dst));
        if !peer.rows.is_empty() || !peer.again.is_empty() {
            self.be_ready(src);
        }
        Some((number, bytes))
    }
}
