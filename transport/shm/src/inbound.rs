//! Frames and promises from others.

use onepipe_base::{Incarnation, Mono, Now, Port, Promises, Timestamp, Verdict};

use crate::config::{INLINE_CELL_LEN, INLINE_CELLS};
use crate::promise::{Promise, fence_after_clock};
use crate::ring::{Consumer, INLINE};
use crate::segment::Segment;
use crate::{Stats, outbound::Outbound};

/// Frames handled in one turn at most, so that sending gets its turn.
const BATCH_FRAMES: usize = 256;

/// How often lines are looked at while nobody waits for a promise, in ns. A look takes the line out
/// of its owner's cache, who then has to fetch it before it can send.
const SCAN_INTERVAL_NS: u64 = 20_000;

/// Who is asked for signs of life at one watch, at most: those who may hold others up beside.
const LIVENESS_BATCH: usize = 8;

/// Bytes of a nook that are fetched along with the entry: a message of 64 bytes takes 124.
const PREFETCH_BYTES: usize = 128;

/// What this process receives.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Everybody who ever had a place, but this process.
    senders: Vec<Sender>,
    /// Whose ring is looked at first in the next turn.
    first: usize,
    /// The machine waits for promises.
    is_awaiting_promises: bool,
    /// When lines are looked at though nobody waits.
    next_scan: Mono,
    /// Somebody may have come, or have promised something, or be gone, and the machine has not been
    /// told: most turns have nothing of the kind to tell.
    has_new_peers: bool,
    has_pending_promises: bool,
    has_departed: bool,
}

#[derive(Debug)]
struct Sender {
    process: usize,
    ring: Consumer,
    peer_incarnation: u64,
    is_attached: bool,
    is_live: bool,
    /// The promise seen on its line, to be heard once the ring is found empty.
    pending: Option<PendingPromises>,
    is_drained: bool,
    /// It was live, and the machine has not been told that it no longer is.
    is_departed: bool,
    /// The machine has not been told of this life.
    is_unreported: bool,
    /// What its line said last, and at the last watch.
    last_promise: Option<Promise>,
    checked_promise: Option<Promise>,
}

#[derive(Clone, Copy, Debug)]
struct PendingPromises {
    promises: Promises,
    /// Whether it is a sign of life.
    is_fresh: bool,
}

/// Somebody has come to life, or has died or left.
pub(crate) struct PeerChange {
    pub(crate) process: usize,
    pub(crate) is_live: bool,
    /// Without having left.
    pub(crate) has_died: bool,
}

impl Inbound {
    /// Skips what was sent to a former life of this process. With the setup lock held.
    pub(crate) fn resume(segment: &Segment) -> Self {
        let me = segment.process();
        let mut senders = Vec::with_capacity(segment.config().processes_max as usize);
        for process in (0..segment.config().processes_max as usize).filter(|process| *process != me)
        {
            // The rings of who was never there may not even have memory.
            if segment.peer_incarnation(process).0 != 0 {
                let ring = Consumer::resume(segment.ring(process, me));
                senders.push(Sender::new(process, ring));
            }
        }
        Self {
            senders,
            first: 0,
            is_awaiting_promises: true,
            next_scan: Mono::from_ns(0),
            has_new_peers: false,
            has_pending_promises: false,
            has_departed: false,
        }
    }

    /// Finds out who has come or gone.
    pub(crate) fn refresh_membership(
        &mut self,
        segment: &Segment,
        mut changed: impl FnMut(PeerChange),
    ) {
        let me = segment.process();
        for process in (0..segment.config().processes_max as usize).filter(|process| *process != me)
        {
            let (peer_incarnation, is_attached) = segment.peer_incarnation(process);
            if peer_incarnation == 0 {
                continue;
            }
            let known = self.senders.iter().position(|sender| sender.process == process);
            let at = known.unwrap_or_else(|| {
                self.senders.push(Sender::new(process, Consumer::fresh()));
                self.senders.len() - 1
            });
            let sender = &mut self.senders[at];
            if (sender.peer_incarnation, sender.is_attached) != (peer_incarnation, is_attached) {
                (sender.peer_incarnation, sender.is_attached) = (peer_incarnation, is_attached);
                // A file may say that somebody is there who died long ago.
                let is_live = is_attached && segment.is_alive(process);
                sender.is_departed |= sender.is_live && !is_live;
                (sender.is_live, sender.is_unreported) = (is_live, is_live);
                (sender.pending, sender.last_promise, sender.checked_promise) = (None, None, None);
                (self.has_new_peers, self.has_departed) = (true, true);
                changed(PeerChange { process, is_live, has_died: false });
            } else if sender.is_live && !segment.is_alive(process) {
                sender.mark_dead();
                self.has_departed = true;
                changed(PeerChange { process, is_live: false, has_died: true });
            }
        }
    }

    /// Asks after some of the living, in turn, and after those who have been sending all the time
    /// since the last watch, or seem to.
    pub(crate) fn check_liveness(
        &mut self,
        segment: &Segment,
        turn: u64,
        mut changed: impl FnMut(PeerChange),
    ) {
        let count = self.senders.len().max(1);
        let first = (turn as usize).wrapping_mul(LIVENESS_BATCH) % count;
        for (at, sender) in self.senders.iter_mut().enumerate() {
            let is_stuck = matches!(sender.last_promise, Some(Promise::Active(_)))
                && sender.last_promise == sender.checked_promise;
            let has_its_turn = (at + count - first) % count < LIVENESS_BATCH;
            sender.checked_promise = sender.last_promise;
            if sender.is_live && (is_stuck || has_its_turn) && !segment.is_alive(sender.process) {
                sender.mark_dead();
                self.has_departed = true;
                changed(PeerChange { process: sender.process, is_live: false, has_died: true });
            }
        }
    }

    /// Notes whether the machine waits for promises.
    #[inline]
    pub(crate) fn set_awaiting_promises(&mut self, is_waiting: bool) {
        self.is_awaiting_promises = is_waiting;
    }

    /// Looks at all lines, if it is time to, then empties the rings, a batch at most.
    pub(crate) fn receive(
        &mut self,
        segment: &Segment,
        now: Now,
        outbound: &mut Outbound,
        stats: &mut Stats,
        mut take: impl FnMut(Port, &mut [u8]) -> Verdict,
    ) -> usize {
        let me = segment.process();
        if self.is_awaiting_promises || now.mono >= self.next_scan {
            self.next_scan = now.mono.after_ns(SCAN_INTERVAL_NS);
            self.scan_promises(segment, now);
        }

        let config = segment.config();
        let count = self.senders.len();
        let mut left = BATCH_FRAMES;
        for ahead in 0..count {
            let at = self.first + ahead;
            let sender = &mut self.senders[if at < count { at } else { at - count }];
            let from = sender.process;
            let view = segment.ring(from, me);
            sender.is_drained = false;
            // A short frame comes in these lines; fetched now, they come when the entry does, not a
            // way from core to core after it.
            let cell = config.inline_cell_at(from, me, sender.ring.cell(INLINE_CELLS));
            segment.mapping().prefetch(cell, PREFETCH_BYTES);
            while left > 0 {
                let cell = sender.ring.cell(INLINE_CELLS);
                let Some(entry) = sender.ring.next(view) else {
                    sender.is_drained = true;
                    break;
                };
                left -= 1;
                let bytes = entry.bytes as usize;
                let offset = if entry.slot == INLINE && bytes <= INLINE_CELL_LEN {
                    config.inline_cell_at(from, me, cell)
                } else if entry.slot < config.arena_slots && bytes <= config.frame_len_max {
                    config.slot_at(from, entry.slot)
                } else {
                    stats.entries_refused += 1;
                    continue;
                };
                // SAFETY: the entry gives the slot, or the nook that belongs to its index, to this
                // process until it is released below, and nothing else in this process reaches it.
                let frame = unsafe { segment.mapping().bytes_mut(offset, bytes) };
                if let Verdict::Forward(port) = take(Port(from as u16), frame) {
                    outbound.forward(segment, port, frame, stats);
                }
            }
            sender.ring.release(view);
        }
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        let frames = BATCH_FRAMES - left;
        stats.frames_received += frames as u64;
        frames
    }

    /// Looks at all lines. `now` was read before; the rings are emptied after.
    fn scan_promises(&mut self, segment: &Segment, now: Now) {
        fence_after_clock();
        self.has_pending_promises = true;
        for sender in self.senders.iter_mut().filter(|sender| sender.is_live) {
            // What was seen and could not be heard yet still stands.
            if sender.pending.is_none() {
                let promise = segment.promise_word(sender.process).load();
                let open = segment.commit_hold(sender.process).load().map(Timestamp::from_ns);
                let is_changed = sender.last_promise.replace(promise) != Some(promise);
                let (barrier, is_fresh) = match promise {
                    Promise::Idle => (now.sync, true),
                    Promise::Active(floor) => (Timestamp::from_ns(floor), is_changed),
                };
                let commit = open.map_or(barrier, |open| open.min(barrier));
                sender.pending =
                    Some(PendingPromises { promises: Promises { barrier, commit }, is_fresh });
            }
        }
    }

    /// Tells who has come, once everything that its former life sent has been taken.
    #[inline]
    pub(crate) fn poll_peers(&mut self, mut on_peer: impl FnMut(Port, Incarnation)) {
        if !self.has_new_peers {
            return;
        }
        for sender in
            self.senders.iter_mut().filter(|sender| sender.is_unreported && sender.is_drained)
        {
            sender.is_unreported = false;
            on_peer(Port(sender.process as u16), Incarnation(sender.peer_incarnation as u32));
        }
        self.has_new_peers = self.senders.iter().any(|sender| sender.is_unreported);
    }

    /// Tells what the lines said of those whose rings have been emptied since.
    #[inline]
    pub(crate) fn poll_promises(&mut self, mut on_promises: impl FnMut(Port, Promises)) {
        if !self.has_pending_promises {
            return;
        }
        for sender in self.senders.iter_mut().filter(|sender| sender.is_drained) {
            if let Some(pending) = sender.pending.take()
                && pending.is_fresh
            {
                on_promises(Port(sender.process as u16), pending.promises);
            }
        }
        self.has_pending_promises = self.senders.iter().any(|sender| sender.pending.is_some());
    }

    /// Tells who is no longer live, once everything that they sent has been taken.
    #[inline]
    pub(crate) fn poll_links_down(&mut self, mut on_link_down: impl FnMut(Port)) {
        if !self.has_departed {
            return;
        }
        for sender in
            self.senders.iter_mut().filter(|sender| sender.is_departed && sender.is_drained)
        {
            sender.is_departed = false;
            // It may be back already: then its link goes on, from where it is heard next.
            if !sender.is_live {
                on_link_down(Port(sender.process as u16));
            }
        }
        self.has_departed = self.senders.iter().any(|sender| sender.is_departed);
    }

    /// Whether no frame is there.
    pub(crate) fn is_empty(&self, segment: &Segment) -> bool {
        let me = segment.process();
        self.senders.iter().all(|sender| sender.ring.is_empty(segment.ring(sender.process, me)))
    }

    /// Who is alive.
    pub(crate) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        self.senders.iter().filter(|sender| sender.is_live).map(|sender| sender.process)
    }
}

impl Sender {
    fn new(process: usize, ring: Consumer) -> Self {
        Self {
            process,
            ring,
            peer_incarnation: 0,
            is_attached: false,
            is_live: false,
            pending: None,
            is_drained: false,
            is_departed: false,
            is_unreported: false,
            last_promise: None,
            checked_promise: None,
        }
    }

    /// The kernel says that it is dead, whatever the segment says.
    fn mark_dead(&mut self) {
        self.is_live = false;
        self.is_departed = true;
        self.is_unreported = false;
        self.pending = None;
    }
}
