//! What waits to leave.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Now, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{AMCAST_OCTETS, Amcast, HEADER_OCTETS, Header, Opcode, seal};

/// How far back the promises lie of frames that promise nothing: a quarter of the wire's range, as
/// those of a switch that has nothing to say.
const NO_PROMISE_NS: u64 = 1 << 46;

/// A packet. The message that it bears, if any, is looked up when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Parcel {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub body: Amcast,
    /// Where the message lies that goes with it, as its owner counts.
    pub message: Option<u64>,
}

/// Behind the last.
const NONE: u32 = u32::MAX;

/// What waits for one process: the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Queue {
    to: ProcessId,
    first: u32,
    last: u32,
}

/// What waits, and what waits behind it for the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    parcel: Parcel,
    next: u32,
}

/// A queue for each process that is written to, all in one memory that never grows. Packets without
/// messages that wait for one process travel together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outbox {
    /// By process, ascending.
    queues: Vec<Queue>,
    /// Those where something waits.
    busy: VecDeque<u32>,
    places: Vec<Option<Waiting>>,
    /// Places below `used` that are empty again.
    empty: Vec<u32>,
    used: u32,
    pub lost: u64,
}

impl Outbox {
    /// An empty one, for `most` packets to any of `peers`.
    pub fn new(most: usize, peers: impl IntoIterator<Item = ProcessId>) -> Self {
        let mut peers: Vec<ProcessId> = peers.into_iter().collect();
        peers.sort_unstable();
        peers.dedup();
        Self {
            busy: VecDeque::with_capacity(peers.len()),
            queues: peers.into_iter().map(|to| Queue { to, first: NONE, last: NONE }).collect(),
            places: vec![None; most],
            empty: Vec::with_capacity(most),
            used: 0,
            lost: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.busy.is_empty()
    }

    pub fn push(&mut self, to: ProcessId, opcode: Opcode, body: Amcast, message: Option<u64>) {
        let Ok(at) = self.queues.binary_search_by_key(&to, |queue| queue.to) else {
            debug_assert!(false, "{to:?} is nobody that there is anything to say to");
            return;
        };
        let place = match self.empty.pop() {
            Some(place) => place,
            None if (self.used as usize) < self.places.len() => {
                self.used += 1;
                self.used - 1
            }
            None => {
                self.lost += 1;
                return;
            }
        };
        let parcel = Parcel { to, opcode, body, message };
        self.places[place as usize] = Some(Waiting { parcel, next: NONE });
        let queue = &mut self.queues[at];
        if queue.first == NONE {
            queue.first = place;
            self.busy.push_back(at as u32);
        } else if let Some(last) = &mut self.places[queue.last as usize] {
            last.next = place;
        }
        queue.last = place;
    }

    /// The next packet for whose turn it is, if it is like `wanted`.
    fn pop_if(&mut self, wanted: impl Fn(&Parcel) -> bool) -> Option<Parcel> {
        let at = *self.busy.front()?;
        let queue = &mut self.queues[at as usize];
        let place = queue.first;
        let Waiting { parcel, next } = self.places[place as usize]?;
        if !wanted(&parcel) {
            return None;
        }
        self.places[place as usize] = None;
        queue.first = next;
        self.empty.push(place);
        if next == NONE {
            queue.last = NONE;
            self.busy.pop_front();
        }
        if self.busy.is_empty() {
            self.empty.clear();
            self.used = 0;
        }
        Some(parcel)
    }

    /// Completes the next frame, with the message that `message` finds for its packet; a packet for
    /// which it finds none is left out. Answers the frame's octets.
    pub fn write<'a>(
        &mut self,
        slot: &mut [u8],
        now: Now,
        ends: (ProcessId, Incarnation),
        message: impl Fn(&Parcel) -> Option<&'a [u8]>,
    ) -> Option<usize> {
        let (first, message) = loop {
            let parcel = self.pop_if(|_| true)?;
            if let Some(message) = message(&parcel) {
                break (parcel, message);
            }
        };
        if first.message.is_some() {
            return Some(write(slot, now, ends, &first, message));
        }
        put(slot, 0, &first);
        let mut packets = 1;
        while slot.len() >= HEADER_OCTETS + (packets + 1) * AMCAST_OCTETS {
            let is_like = |other: &Parcel| {
                (other.to, other.opcode, other.message) == (first.to, first.opcode, None)
            };
            let Some(other) = self.pop_if(is_like) else { break };
            put(slot, packets, &other);
            packets += 1;
        }
        Some(close(slot, now, ends, &first, packets * AMCAST_OCTETS))
    }
}

/// Writes a packet behind `before` others.
fn put(slot: &mut [u8], before: usize, parcel: &Parcel) {
    let room = slot[HEADER_OCTETS..].get_mut(before * AMCAST_OCTETS..);
    room.and_then(|room| parcel.body.write(room)).expect("the room is as long as the packet");
}

/// Completes the frame around `octets` of packets.
fn close(
    slot: &mut [u8],
    now: Now,
    (src, incarnation): (ProcessId, Incarnation),
    parcel: &Parcel,
    octets: usize,
) -> usize {
    let nothing = Promises::both(Timestamp::from_ns(now.sync.as_ns().wrapping_sub(NO_PROMISE_NS)));
    let header = Header::new(parcel.opcode, src, parcel.to, incarnation);
    seal(slot, header.stamped(now.sync, nothing, Psn(0)), octets)
}

/// Completes a frame for `parcel` with the message that goes with it. Answers its octets.
pub(crate) fn write(
    slot: &mut [u8],
    now: Now,
    ends: (ProcessId, Incarnation),
    parcel: &Parcel,
    message: &[u8],
) -> usize {
    put(slot, 0, parcel);
    slot[HEADER_OCTETS + AMCAST_OCTETS..][..message.len()].copy_from_slice(message);
    close(slot, now, ends, parcel, AMCAST_OCTETS + message.len())
}

/// When what was not answered is said again: ever less often, until there is progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pause {
    repeat_ns: u64,
    doublings: u32,
}

impl Pause {
    /// How often the pause doubles.
    const DOUBLINGS_MAX: u32 = 6;

    pub const fn new(repeat_ns: u64) -> Self {
        Self { repeat_ns, doublings: 0 }
    }

    /// Progress: the next pause is the shortest.
    pub fn reset(&mut self) {
        self.doublings = 0;
    }

    /// The next pause, ns.
    pub fn next_ns(&mut self) -> u64 {
        let pause = self.repeat_ns << self.doublings;
        self.doublings = (self.doublings + 1).min(Self::DOUBLINGS_MAX);
        pause
    }
}
