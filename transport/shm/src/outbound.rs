//! Frames to other processes: the arena, and a ring to each receiver.

use onepipe_base::{AdaptiveTimeout, Mono, Port, Transmit};
use onepipe_wire::mark_congestion;

use crate::arena::{Arena, Fill};
use crate::config::{INLINE_CELL_LEN, INLINE_CELLS};
use crate::ring::{Entry, INLINE, Producer};
use crate::segment::Segment;
use crate::sleep::fence_before_wake;
use crate::{AttachError, Stats, futex};

/// Staged bytes for one receiver that are published before the burst ends, so that the receiver can
/// start on them.
const PUBLISH_BYTES: usize = 4096;
/// Frames in flight below which reading the receiver's head is not worth its cost.
const RECLAIM_FRAMES: usize = 4;
/// Number of slots below which the receivers released too few to go on without more memory.
const GROWTH_FREE_MIN: usize = 8;
/// Interval of asking for memory again that was refused, in ns.
const GROWTH_RETRY_NS: u64 = 10_000_000;
/// A process that looks at its receivers later than this fraction of the hold was off its core.
const STALLS_PER_HOLD: u64 = 8;
/// Stalls of this process extend the hold to at most this many times what is configured.
const HOLDS_MAX: u64 = 4;

/// The sending side of this process.
#[derive(Debug)]
pub(crate) struct Outbound {
    me: usize,
    /// The next frame. The machine writes it here, into lines that no other core has, and not
    /// into a slot, whose lines are in the cache of its last reader: each of the machine's small
    /// stores would wait for one of them.
    staging: Box<[u8]>,
    /// Length of the last frame that took a slot; 0 if the last frame took an inline cell.
    slot_bytes: usize,
    arena: Arena,
    receivers: Vec<Receiver>,
    /// Receivers of frames of this burst.
    touched: Vec<usize>,
    /// Receivers whose share was tight when last checked.
    tight: Vec<usize>,
    /// The frame in `staging` exceeds the share of a merely slow receiver. No frame leaves before
    /// it, so that frames keep their order.
    parked: Option<Transmit>,
    /// When memory that was refused is asked for again.
    next_growth: Option<Mono>,
    now: Mono,
    /// When this process looked at its receivers before.
    polled_at: Mono,
    /// How long a receiver whose share is full may take no frame: as configured, and adapted to
    /// how slow receivers were.
    hold_ns: u64,
    hold: AdaptiveTimeout,
    /// Until when a receiver counts as slow because this process was off its core, and the receiver
    /// perhaps as well.
    extended_until: Mono,
}

#[derive(Debug)]
struct Receiver {
    ring: Producer,
    is_live: bool,
    is_touched: bool,
    is_tight: bool,
    bytes_staged: usize,
    /// When it last took a frame, or had none to take.
    last_progress: Mono,
}

impl Outbound {
    /// Takes over what previous incarnations of this process left in flight. With the setup lock
    /// held.
    pub(crate) fn resume(segment: &Segment) -> Result<Self, AttachError> {
        let config = segment.config();
        let (me, processes) = (segment.process(), config.processes_max as usize);
        let mut is_taken = vec![false; config.arena_slots as usize];
        let mut receivers = Vec::with_capacity(processes);
        for to in 0..processes {
            let is_reading = to != me && segment.is_alive(to);
            let claim = |entry: Entry| match is_taken.get_mut(entry.slot as usize) {
                Some(is_taken) if is_reading && !*is_taken => {
                    *is_taken = true;
                    true
                }
                _ => false,
            };
            // The ring to a process that never attached has no memory, and is unused.
            let mut ring = match to != me && segment.membership(to).0 != 0 {
                true => Producer::resume(segment.ring(me, to), claim),
                false => Producer::new(config.ring_entries as usize),
            };
            if !is_reading {
                // The next process with this id skips all of these.
                ring.reclaim_all(|_| {});
            }
            receivers.push(Receiver {
                ring,
                is_live: false,
                is_touched: false,
                is_tight: false,
                bytes_staged: 0,
                last_progress: Mono::from_ns(0),
            });
        }
        // The previous incarnation had reserved what is in flight, and everything before it.
        let last_taken = is_taken.iter().rposition(|is_taken| *is_taken).unwrap_or(0);
        let reserved = config.step_end(last_taken as u32);
        segment.ensure_slots(me, 0, reserved).map_err(AttachError::io("allocate memory"))?;
        Ok(Self {
            me,
            staging: vec![0; config.frame_len_max].into_boxed_slice(),
            slot_bytes: 0,
            arena: Arena::new(config.arena_slots, reserved, |slot| is_taken[slot as usize]),
            receivers,
            touched: Vec::with_capacity(processes),
            tight: Vec::with_capacity(processes),
            parked: None,
            next_growth: None,
            now: Mono::from_ns(0),
            polled_at: Mono::from_ns(0),
            hold_ns: config.hold_ns,
            hold: AdaptiveTimeout::new(config.hold_ns),
            extended_until: Mono::from_ns(0),
        })
    }

    /// Notes that a receiver has attached, detached or died; reclaims what a dead one did not take.
    pub(crate) fn set_live(&mut self, process: usize, is_live: bool) {
        let receiver = &mut self.receivers[process];
        receiver.is_live = is_live;
        receiver.last_progress = self.now;
        if !is_live {
            receiver.ring.reclaim_all(|slot| self.arena.release(slot));
        }
    }

    /// Sends the parked frame, if its receiver has capacity again or is no longer waited for.
    /// Returns whether every live receiver that takes frames has capacity for a burst.
    pub(crate) fn can_begin_burst(
        &mut self,
        segment: &Segment,
        now: Mono,
        stats: &mut Stats,
    ) -> bool {
        (self.polled_at, self.now) = (self.now, now);
        if now.since_ns(self.polled_at) > self.hold_ns / STALLS_PER_HOLD {
            self.extended_until = now.after_ns(self.hold_ns / 2);
        }
        if self.next_growth.is_some_and(|due| due <= now) {
            self.next_growth = None;
            self.arena.set_capped(false);
        }
        if let Some(transmit) = self.parked.take() {
            self.send(segment, transmit, stats);
            self.publish(segment);
            self.finish(segment, stats);
        }
        let mut is_held = self.is_parked();
        let mut index = 0;
        while let Some(&to) = self.tight.get(index) {
            self.reclaim(segment, to);
            let receiver = &mut self.receivers[to];
            if !receiver.is_live || self.fill(to) < Fill::Tight {
                self.receivers[to].is_tight = false;
                self.tight.swap_remove(index);
                continue;
            }
            is_held |= self.is_within_hold(to);
            index += 1;
        }
        !is_held
    }

    /// Returns memory for the next frame; `None` while a frame is parked.
    #[inline]
    pub(crate) fn slot(&mut self, segment: &Segment) -> Option<&mut [u8]> {
        if self.is_parked() {
            return None;
        }
        if self.slot_bytes > 0
            && let Some(slot) = self.arena.top()
        {
            // The lines travel while the machine writes the frame.
            let at = segment.config().slot_at(self.me, slot);
            segment.mapping().prefetch_write(at, self.slot_bytes);
        }
        Some(&mut self.staging)
    }

    /// Whether a frame that the machine has sent waits for capacity: then the promise made before
    /// its burst still holds.
    #[inline]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Sends the frame written into the last slot. Drops it if there is no receiver, or one that
    /// has stopped and used up its share; parks it for a slow receiver.
    #[inline]
    pub(crate) fn send(&mut self, segment: &Segment, transmit: Transmit, stats: &mut Stats) {
        self.put(segment, transmit, true, stats);
    }

    /// Copies the staged frame to an inline cell or to a slot.
    #[inline]
    fn put(&mut self, segment: &Segment, transmit: Transmit, may_park: bool, stats: &mut Stats) {
        let to = transmit.port.index();
        let mut fill = match self.receivers.get(to) {
            Some(receiver) if receiver.is_live => self.fill(to),
            _ => {
                stats.frames_unreachable += 1;
                return;
            }
        };
        let is_short = transmit.bytes <= INLINE_CELL_LEN;
        let cell = self.receivers[to].ring.cell(INLINE_CELLS).filter(|_| is_short);
        if cell.is_none() && self.arena.needs_memory() && !self.grow(segment, stats) {
            fill = self.fill(to);
        }
        // The receiver's head may have moved since it was last read.
        if fill == Fill::Full {
            match self.next_growth {
                None => self.reclaim(segment, to),
                Some(_) => self.reclaim_all(segment),
            }
            fill = self.fill(to);
        }
        if fill == Fill::Full {
            self.mark_tight(to);
            if may_park && (self.is_within_hold(to) || self.awaits_memory(to)) {
                self.parked = Some(transmit);
            } else {
                stats.frames_overflowed += 1;
            }
            return;
        }
        let bytes = transmit.bytes;
        let frame = &mut self.staging[..bytes];
        if fill >= Fill::Half {
            stats.frames_marked += 1;
            mark_congestion(frame);
        }
        let receiver = &mut self.receivers[to];
        if receiver.ring.in_flight() == 0 {
            receiver.last_progress = self.now;
        }
        let config = segment.config();
        let (slot, at) = match cell {
            Some(cell) => (INLINE, config.inline_cell_at(self.me, to, cell)),
            // Below `Fill::Full` there is a free slot.
            None => match self.arena.top() {
                Some(slot) => (slot, config.slot_at(self.me, slot)),
                None => return,
            },
        };
        // Below `Fill::Full` the ring has a free entry, so that this never refuses.
        if !receiver.ring.stage(Entry { slot, bytes: bytes as u32 }) {
            return;
        }
        // SAFETY: a free slot of this process's own arena is in no ring, so no process reads it;
        // the cell that `Producer::cell` returns belongs to an entry that the receiver has
        // released, or never had. The receiver sees neither before `publish`.
        unsafe { segment.mapping().bytes_mut(at, bytes) }.copy_from_slice(frame);
        self.slot_bytes = 0;
        if slot != INLINE {
            self.arena.take();
            self.slot_bytes = bytes;
        }
        stats.frames_sent += 1;
        if !receiver.is_touched {
            receiver.is_touched = true;
            self.touched.push(to);
        }
        receiver.bytes_staged += bytes;
        if receiver.bytes_staged >= PUBLISH_BYTES {
            receiver.ring.publish(segment.ring(self.me, to));
            receiver.bytes_staged = 0;
        }
    }

    /// Sends a copy of `frame`, which lies in another process's arena. Drops it if there is no
    /// capacity.
    pub(crate) fn forward(
        &mut self,
        segment: &Segment,
        port: Port,
        frame: &[u8],
        stats: &mut Stats,
    ) {
        // A forwarded frame must not overtake a parked one. It is never parked itself, because it
        // belongs to no burst.
        match self.slot(segment) {
            Some(slot) if frame.len() <= slot.len() => {
                slot[..frame.len()].copy_from_slice(frame);
                self.put(segment, Transmit { port, bytes: frame.len() }, false, stats);
            }
            _ => stats.frames_overflowed += 1,
        }
    }

    /// Publishes all staged frames to their receivers.
    #[inline]
    pub(crate) fn publish(&mut self, segment: &Segment) {
        for &to in &self.touched {
            let receiver = &mut self.receivers[to];
            receiver.ring.publish(segment.ring(self.me, to));
            receiver.bytes_staged = 0;
        }
    }

    /// Wakes sleeping receivers of this burst, and reclaims what receivers have read.
    #[inline]
    pub(crate) fn finish(&mut self, segment: &Segment, stats: &mut Stats) {
        if self.touched.is_empty() {
            return;
        }
        fence_before_wake();
        for &to in &self.touched {
            let futex_slot = segment.futex_slot(to);
            if futex_slot.take_wake() {
                stats.wakes += 1;
                futex::wake(futex_slot.0);
            }
        }
        while let Some(to) = self.touched.pop() {
            self.receivers[to].is_touched = false;
            if self.receivers[to].ring.in_flight() >= RECLAIM_FRAMES {
                self.reclaim(segment, to);
            }
            if self.fill(to) >= Fill::Tight {
                self.mark_tight(to);
            }
        }
    }

    fn mark_tight(&mut self, to: usize) {
        if !self.receivers[to].is_tight {
            self.receivers[to].is_tight = true;
            self.tight.push(to);
        }
    }

    /// Whether a receiver without capacity is still waited for: it counts as merely slow.
    fn is_within_hold(&self, to: usize) -> bool {
        let waited_ns = self.now.since_ns(self.receivers[to].last_progress);
        let is_extended = self.now < self.extended_until;
        waited_ns < self.hold.ns(self.now)
            || (is_extended && waited_ns < HOLDS_MAX.saturating_mul(self.hold_ns))
    }

    /// Frees slots that receivers have released meanwhile or, if those are few, reserves memory
    /// for more. Returns false if it was refused.
    #[cold]
    fn grow(&mut self, segment: &Segment, stats: &mut Stats) -> bool {
        self.reclaim_all(segment);
        if self.arena.free() >= GROWTH_FREE_MIN {
            return true;
        }
        let end = segment.config().step_end(self.arena.reserved());
        let is_reserved = segment.grow_arena(self.arena.reserved(), end).is_ok();
        if is_reserved {
            self.arena.grow(end);
        } else {
            stats.growths_refused += 1;
            self.arena.set_capped(true);
            self.next_growth = Some(self.now.after_ns(GROWTH_RETRY_NS));
        }
        is_reserved
    }

    /// Whether a receiver that takes all its frames has no share because others, which are merely
    /// slow, use all slots: where memory is scarce there may be fewer slots than receivers.
    #[cold]
    fn awaits_memory(&self, to: usize) -> bool {
        let is_busy = |at: usize| self.receivers[at].ring.in_flight() > 0;
        let is_awaited = |other| is_busy(other) && self.is_within_hold(other);
        !is_busy(to) && (0..self.receivers.len()).any(is_awaited)
    }

    /// Reclaims what any receiver has read.
    #[cold]
    fn reclaim_all(&mut self, segment: &Segment) {
        for to in 0..self.receivers.len() {
            if self.receivers[to].ring.in_flight() > 0 {
                self.reclaim(segment, to);
            }
        }
    }

    #[inline]
    fn fill(&self, to: usize) -> Fill {
        let ring = &self.receivers[to].ring;
        self.arena.fill(ring.in_flight(), ring.capacity())
    }

    #[inline]
    fn reclaim(&mut self, segment: &Segment, to: usize) {
        let receiver = &mut self.receivers[to];
        let view = segment.ring(self.me, to);
        if receiver.ring.reclaim(view, |slot| self.arena.release(slot)) > 0 {
            // Of the others it is not known when they took it; of this one, that it had not before
            // the last poll.
            if receiver.is_tight {
                let waited_ns = self.polled_at.since_ns(receiver.last_progress);
                self.hold.on_response(self.now, waited_ns);
            }
            receiver.last_progress = self.now;
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.arena.usable()
    }
}
