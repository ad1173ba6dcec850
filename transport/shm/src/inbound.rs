//! Frames and promises from others.

use onepipe_base::{Incarnation, Mono, Now, Port, Promises, Timestamp, Verdict};

use crate::config::{NOOK_BYTES, NOOKS};
use crate::line::{Promise, after_clock};
use crate::ring::{Consumer, IN_NOOK};
use crate::segment::Segment;
use crate::{Stats, outbound::Outbound};

/// Frames handled in one turn at most, so that sending gets its turn.
const BATCH_FRAMES: usize = 256;

/// How often lines are looked at while nobody waits for a promise, in ns. A look takes the line out
/// of its owner's cache, who then has to fetch it before it can send.
const LOOK_INTERVAL_NS: u64 = 20_000;

/// Who is asked for signs of life at one watch, at most: those who may hold others up beside.
const ASKED: usize = 8;

/// Bytes of a nook that are fetched along with the entry: a message of 64 bytes takes 124.
const FETCH_BYTES: usize = 128;

/// What this process receives.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Everybody who ever had a place, but this process.
    senders: Vec<Sender>,
    /// Whose ring is looked at first in the next turn.
    first: usize,
    /// The machine waits for promises.
    is_awaited: bool,
    /// When lines are looked at though nobody waits.
    look_at: Mono,
    /// Somebody may have come, or have promised something, or be gone, and the machine has not been
    /// told: most turns have nothing of the kind to tell.
    has_new: bool,
    has_seen: bool,
    has_gone: bool,
}

#[derive(Debug)]
struct Sender {
    process: usize,
    ring: Consumer,
    life: u64,
    is_attached: bool,
    is_live: bool,
    /// The promise seen on its line, to be heard once the ring is found empty.
    seen: Option<Seen>,
    is_drained: bool,
    /// It was live, and the machine has not been told that it no longer is.
    is_gone: bool,
    /// The machine has not been told of this life.
    is_new: bool,
    /// What its line said last, and at the last watch.
    line: Option<Promise>,
    watched: Option<Promise>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    promises: Promises,
    /// Whether it is a sign of life.
    is_news: bool,
}

/// Somebody has come to life, or has died or left.
pub(crate) struct Change {
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
            if segment.life(process).0 != 0 {
                let ring = Consumer::resume(segment.ring(process, me));
                senders.push(Sender::new(process, ring));
            }
        }
        Self {
            senders,
            first: 0,
            is_awaited: true,
            look_at: Mono::from_ns(0),
            has_new: false,
            has_seen: false,
            has_gone: false,
        }
    }

    /// Finds out who has come or gone.
    pub(crate) fn update(&mut self, segment: &Segment, mut changed: impl FnMut(Change)) {
        let me = segment.process();
        for process in (0..segment.config().processes_max as usize).filter(|process| *process != me)
        {
            let (life, is_attached) = segment.life(process);
            if life == 0 {
                continue;
            }
            let known = self.senders.iter().position(|sender| sender.process == process);
            let at = known.unwrap_or_else(|| {
                self.senders.push(Sender::new(process, Consumer::fresh()));
                self.senders.len() - 1
            });
            let sender = &mut self.senders[at];
            if (sender.life, sender.is_attached) != (life, is_attached) {
                (sender.life, sender.is_attached) = (life, is_attached);
                // A file may say that somebody is there who died long ago.
                let is_live = is_attached && segment.is_alive(process);
                sender.is_gone |= sender.is_live && !is_live;
                (sender.is_live, sender.is_new) = (is_live, is_live);
                (sender.seen, sender.line, sender.watched) = (None, None, None);
                (self.has_new, self.has_gone) = (true, true);
                changed(Change { process, is_live, has_died: false });
            } else if sender.is_live && !segment.is_alive(process) {
                sender.die();
                self.has_gone = true;
                changed(Change { process, is_live: false, has_died: true });
            }
        }
    }

    /// Asks after some of the living, in turn, and after those who have been sending all the time
    /// since the last watch, or seem to.
    pub(crate) fn watch(&mut self, segment: &Segment, turn: u64, mut changed: impl FnMut(Change)) {
        let count = self.senders.len().max(1);
        let first = (turn as usize).wrapping_mul(ASKED) % count;
        for (at, sender) in self.senders.iter_mut().enumerate() {
            let is_stuck =
                matches!(sender.line, Some(Promise::Active(_))) && sender.line == sender.watched;
            let has_its_turn = (at + count - first) % count < ASKED;
            sender.watched = sender.line;
            if sender.is_live && (is_stuck || has_its_turn) && !segment.is_alive(sender.process) {
                sender.die();
                self.has_gone = true;
                changed(Change { process: sender.process, is_live: false, has_died: true });
            }
        }
    }

    /// Notes whether the machine waits for promises.
    #[inline]
    pub(crate) fn expect(&mut self, is_waiting: bool) {
        self.is_awaited = is_waiting;
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
        if self.is_awaited || now.mono >= self.look_at {
            self.look_at = now.mono.after_ns(LOOK_INTERVAL_NS);
            self.look(segment, now);
        }

        let config = segment.config();
        let count = self.senders.len();
        let mut left = BATCH_FRAMES;
        for ahead in 0..count {
            let at = self.first + ahead;
            let sender = &mut self.senders[if at < count { at } else { at - count }];
            let from = sender.process;
            let cells = segment.ring(from, me);
            sender.is_drained = false;
            // A short frame comes in these lines; fetched now, they come when the entry does, not a
            // way from core to core after it.
            let nook = config.nook_at(from, me, sender.ring.nook(NOOKS));
            segment.mapping().prefetch(nook, FETCH_BYTES);
            while left > 0 {
                let nook = sender.ring.nook(NOOKS);
                let Some(entry) = sender.ring.next(cells) else {
                    sender.is_drained = true;
                    break;
                };
                left -= 1;
                let bytes = entry.bytes as usize;
                let place = if entry.slot == IN_NOOK && bytes <= NOOK_BYTES {
                    config.nook_at(from, me, nook)
                } else if entry.slot < config.arena_slots && bytes <= config.frame_len_max {
                    config.slot_at(from, entry.slot)
                } else {
                    stats.entries_refused += 1;
                    continue;
                };
                // SAFETY: the entry gives the slot, or the nook that belongs to its index, to this
                // process until it is released below, and nothing else in this process reaches it.
                let frame = unsafe { segment.mapping().bytes_mut(place, bytes) };
                if let Verdict::Forward(port) = take(Port(from as u16), frame) {
                    outbound.forward(segment, port, frame, stats);
                }
            }
            sender.ring.release(cells);
        }
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        let frames = BATCH_FRAMES - left;
        stats.frames_received += frames as u64;
        frames
    }

    /// Looks at all lines. `now` was read before; the rings are emptied after.
    fn look(&mut self, segment: &Segment, now: Now) {
        after_clock();
        self.has_seen = true;
        for sender in self.senders.iter_mut().filter(|sender| sender.is_live) {
            // What was seen and could not be heard yet still stands.
            if sender.seen.is_none() {
                let promise = segment.line(sender.process).look();
                let open = segment.open_word(sender.process).look().map(Timestamp::from_ns);
                let is_changed = sender.line.replace(promise) != Some(promise);
                let (barrier, is_news) = match promise {
                    Promise::Idle => (now.sync, true),
                    Promise::Active(floor) => (Timestamp::from_ns(floor), is_changed),
                };
                let commit = open.map_or(barrier, |open| open.min(barrier));
                sender.seen = Some(Seen { promises: Promises { barrier, commit }, is_news });
            }
        }
    }

    /// Tells who has come, once everything that its former life sent has been taken.
    #[inline]
    pub(crate) fn met(&mut self, mut meet: impl FnMut(Port, Incarnation)) {
        if !self.has_new {
            return;
        }
        for sender in self.senders.iter_mut().filter(|sender| sender.is_new && sender.is_drained) {
            sender.is_new = false;
            meet(Port(sender.process as u16), Incarnation(sender.life as u32));
        }
        self.has_new = self.senders.iter().any(|sender| sender.is_new);
    }

    /// Tells what the lines said of those whose rings have been emptied since.
    #[inline]
    pub(crate) fn heard(&mut self, mut hear: impl FnMut(Port, Promises)) {
        if !self.has_seen {
            return;
        }
        for sender in self.senders.iter_mut().filter(|sender| sender.is_drained) {
            if let Some(seen) = sender.seen.take()
                && seen.is_news
            {
                hear(Port(sender.process as u16), seen.promises);
            }
        }
        self.has_seen = self.senders.iter().any(|sender| sender.seen.is_some());
    }

    /// Tells who is no longer live, once everything that they sent has been taken.
    #[inline]
    pub(crate) fn gone(&mut self, mut unlink: impl FnMut(Port)) {
        if !self.has_gone {
            return;
        }
        for sender in self.senders.iter_mut().filter(|sender| sender.is_gone && sender.is_drained) {
            sender.is_gone = false;
            // It may be back already: then its link goes on, from where it is heard next.
            if !sender.is_live {
                unlink(Port(sender.process as u16));
            }
        }
        self.has_gone = self.senders.iter().any(|sender| sender.is_gone);
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
            life: 0,
            is_attached: false,
            is_live: false,
            seen: None,
            is_drained: false,
            is_gone: false,
            is_new: false,
            line: None,
            watched: None,
        }
    }

    /// The kernel says that it is dead, whatever the segment says.
    fn die(&mut self) {
        self.is_live = false;
        self.is_gone = true;
        self.is_new = false;
        self.seen = None;
    }
}
