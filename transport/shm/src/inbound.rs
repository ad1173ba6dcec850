//! Frames and promises from other processes.

use onepipe_base::{Cause, Incarnation, Mono, Now, Port, Promises, Timestamp, Verdict};

use crate::config::{INLINE_CELL_LEN, INLINE_CELLS};
use crate::promise::{Promise, fence_after_clock};
use crate::ring::{Consumer, INLINE};
use crate::segment::Segment;
use crate::{Stats, outbound::Outbound};

/// Maximum number of frames handled per turn, so that sending is not starved.
const BATCH_FRAMES: usize = 256;

/// Interval of reading promise words while the machine waits for no promise, in ns. A read takes
/// the line out of its owner's cache, and the owner has to fetch it before it can send.
const SCAN_INTERVAL_NS: u64 = 20_000;

/// Maximum number of processes checked per liveness check, besides those that may stall others.
const LIVENESS_BATCH: usize = 8;

/// Bytes of an inline cell prefetched along with the entry: a message of 64 bytes takes 124.
const PREFETCH_BYTES: usize = 128;

/// The receiving side of this process.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// All processes that were ever attached, except this one.
    senders: Vec<Sender>,
    /// Index of the sender whose ring is drained first in the next turn.
    first: usize,
    /// The machine waits for promises.
    is_awaiting_promises: bool,
    /// When the promise words are read although the machine does not wait for them.
    next_scan: Mono,
    /// Whether any sender has an incarnation, a promise or a departure to report: most turns have
    /// none, and skip the scan.
    has_new_peers: bool,
    has_pending_promises: bool,
    has_departed: bool,
}

#[derive(Debug)]
struct Sender {
    process: usize,
    ring: Consumer,
    /// Slots of the sender below this are known to have memory.
    slots_reserved: u32,
    peer_incarnation: u64,
    is_attached: bool,
    is_live: bool,
    /// The promises last read from the sender's words, reported once the ring has been drained.
    pending: Option<PendingPromises>,
    /// Whether the last turn has emptied the ring.
    is_drained: bool,
    /// The sender was live, and its departure has not been reported to the machine.
    is_departed: bool,
    /// Why it departed last.
    cause: Cause,
    /// The sender's incarnation has not been reported to the machine.
    is_unreported: bool,
    /// The promise word at the last read.
    last_promise: Option<Promise>,
    /// The promise word at the last liveness check.
    checked_promise: Option<Promise>,
}

#[derive(Clone, Copy, Debug)]
struct PendingPromises {
    promises: Promises,
    /// Whether the promises show that the process is alive: it is idle, or has raised its floor.
    is_fresh: bool,
}

/// A process has attached, detached or died.
pub(crate) struct PeerChange {
    pub(crate) process: usize,
    pub(crate) is_live: bool,
    /// Died without detaching.
    pub(crate) has_died: bool,
}

impl Inbound {
    /// Skips what was sent to previous incarnations of this process. With the setup lock held.
    pub(crate) fn resume(segment: &Segment) -> Self {
        let me = segment.process();
        let mut senders = Vec::with_capacity(segment.config().processes_max as usize);
        for process in (0..segment.config().processes_max as usize).filter(|process| *process != me)
        {
            // The rings of a process that never attached may have no memory.
            if segment.membership(process).0 != 0 {
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

    /// Updates the membership from the segment and reports each change.
    pub(crate) fn refresh_membership(
        &mut self,
        segment: &Segment,
        mut changed: impl FnMut(PeerChange),
    ) {
        let me = segment.process();
        for process in (0..segment.config().processes_max as usize).filter(|process| *process != me)
        {
            let (peer_incarnation, is_attached) = segment.membership(process);
            if peer_incarnation == 0 {
                continue;
            }
            let known = self.senders.iter().position(|sender| sender.process == process);
            let at = known.unwrap_or_else(|| {
                self.senders.push(Sender::new(process, Consumer::new()));
                self.senders.len() - 1
            });
            let sender = &mut self.senders[at];
            if (sender.peer_incarnation, sender.is_attached) != (peer_incarnation, is_attached) {
                (sender.peer_incarnation, sender.is_attached) = (peer_incarnation, is_attached);
                // The segment may still show a process as attached that died long ago.
                let is_live = is_attached && segment.is_alive(process);
                if sender.is_live && !is_live {
                    sender.is_departed = true;
                    sender.cause = if is_attached { Cause::Refused } else { Cause::Left };
                }
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

    /// Checks one batch of the live processes, a different one in each `round`, and all processes
    /// whose promise word has been active and unchanged since the last check.
    pub(crate) fn check_liveness(
        &mut self,
        segment: &Segment,
        round: u64,
        mut changed: impl FnMut(PeerChange),
    ) {
        let count = self.senders.len().max(1);
        let first = (round as usize).wrapping_mul(LIVENESS_BATCH) % count;
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

    /// Sets whether the machine waits for promises.
    #[inline]
    pub(crate) fn set_awaiting_promises(&mut self, is_awaiting_promises: bool) {
        self.is_awaiting_promises = is_awaiting_promises;
    }

    /// Reads the promise words if due, then drains the rings, at most one batch.
    pub(crate) fn receive(
        &mut self,
        segment: &Segment,
        now: Now,
        outbound: &mut Outbound,
        stats: &mut Stats,
        mut on_frame: impl FnMut(Port, &mut [u8]) -> Verdict,
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
            // A short frame arrives in these lines; prefetched now, they travel together with the
            // entry instead of a core-to-core latency after it.
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
                } else if bytes <= config.frame_len_max && sender.has_memory(segment, entry.slot) {
                    config.slot_at(from, entry.slot)
                } else {
                    stats.entries_refused += 1;
                    continue;
                };
                // SAFETY: the entry gives the slot, or the inline cell of its index, to this
                // process until it is released below, and nothing else in this process accesses it.
                let frame = unsafe { segment.mapping().bytes_mut(offset, bytes) };
                let mut verdict = on_frame(Port(from as u16), frame);
                while let Verdict::Replicate(port) = verdict {
                    outbound.forward(segment, port, frame, stats);
                    verdict = on_frame(Port(from as u16), frame);
                }
                if let Verdict::Forward(port) = verdict {
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

    //= spec/ordering.md#R18
    /// Reads all promise words. `now` was read before; the rings are drained after.
    fn scan_promises(&mut self, segment: &Segment, now: Now) {
        fence_after_clock();
        self.has_pending_promises = true;
        for sender in self.senders.iter_mut().filter(|sender| sender.is_live) {
            // A promise that could not be reported yet still holds.
            if sender.pending.is_none() {
                let promise = segment.promise_word(sender.process).load();
                let commit_hold =
                    segment.commit_hold(sender.process).load().map(Timestamp::from_ns);
                let is_changed = sender.last_promise.replace(promise) != Some(promise);
                let (barrier, is_fresh) = match promise {
                    Promise::Idle => (now.sync, true),
                    Promise::Active(floor) => (Timestamp::from_ns(floor), is_changed),
                };
                let commit = commit_hold.map_or(barrier, |commit_hold| commit_hold.min(barrier));
                sender.pending =
                    Some(PendingPromises { promises: Promises { barrier, commit }, is_fresh });
            }
        }
    }

    /// Reports new incarnations, each once everything of the previous one has been received.
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

    //= spec/ordering.md#R84
    /// Reports the promises of senders whose rings have been drained since the words were read.
    #[inline]
    pub(crate) fn poll_promises(
        &mut self,
        segment: &Segment,
        mut on_promises: impl FnMut(Port, Promises),
    ) {
        // The words of a lost segment read as zeros, which means idle: by such a promise, messages
        // would be delivered behind missing ones, or with bytes that were lost.
        if !self.has_pending_promises || segment.mapping().is_lost() {
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

    /// Reports departed processes, each once everything it sent has been received.
    #[inline]
    pub(crate) fn poll_links_down(&mut self, mut on_link_down: impl FnMut(Port, Cause)) {
        if !self.has_departed {
            return;
        }
        for sender in
            self.senders.iter_mut().filter(|sender| sender.is_departed && sender.is_drained)
        {
            sender.is_departed = false;
            // If it is back already, its link goes on with the next promise.
            if !sender.is_live {
                on_link_down(Port(sender.process as u16), sender.cause);
            }
        }
        self.has_departed = self.senders.iter().any(|sender| sender.is_departed);
    }

    /// Whether all rings are empty.
    pub(crate) fn is_empty(&self, segment: &Segment) -> bool {
        let me = segment.process();
        self.senders.iter().all(|sender| sender.ring.is_empty(segment.ring(sender.process, me)))
    }

    /// Returns the live processes.
    pub(crate) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        self.senders.iter().filter(|sender| sender.is_live).map(|sender| sender.process)
    }
}

impl Sender {
    fn new(process: usize, ring: Consumer) -> Self {
        Self {
            process,
            ring,
            slots_reserved: 0,
            peer_incarnation: 0,
            is_attached: false,
            is_live: false,
            pending: None,
            is_drained: false,
            is_departed: false,
            cause: Cause::Unknown,
            is_unreported: false,
            last_promise: None,
            checked_promise: None,
        }
    }

    /// Whether a slot of the sender exists and has memory, so that reading it cannot fail.
    #[inline]
    fn has_memory(&mut self, segment: &Segment, slot: u32) -> bool {
        slot < self.slots_reserved || self.ensure_memory(segment, slot)
    }

    #[cold]
    fn ensure_memory(&mut self, segment: &Segment, slot: u32) -> bool {
        if slot >= segment.config().arena_slots {
            return false;
        }
        let end = segment.config().step_end(slot);
        let is_reserved = segment.ensure_slots(self.process, self.slots_reserved, end).is_ok();
        if is_reserved {
            self.slots_reserved = end;
        }
        is_reserved
    }

    /// Marks the sender as dead, as reported by the kernel, whatever the segment says.
    fn mark_dead(&mut self) {
        self.is_live = false;
        self.is_departed = true;
        self.cause = Cause::Refused;
        self.is_unreported = false;
        self.pending = None;
    }
}
