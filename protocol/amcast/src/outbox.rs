//! Outbox: packets waiting for transmission, queued by destination.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Now, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{AMCAST_LEN, AMCAST_LENGTH_BYTES, Amcast, HEADER_LEN, Header, Opcode, seal};

/// Age of the promises in frames that promise nothing: a quarter of the range of a wire timestamp,
/// as in frames of a switch that has nothing to promise.
const NO_PROMISE_NS: u64 = 1 << 46;

/// Packet, or a run of consecutive packets. Its message, if any, is looked up on transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Parcel {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub body: Amcast,
    /// Log position, or other handle of its owner, of the packet's message. The packets of a run
    /// have consecutive ones.
    pub message: Option<u64>,
}

impl Parcel {
    /// Returns the packet at index `nth` of the run, and the handle of its message.
    fn nth(&self, nth: u8) -> (Amcast, u64) {
        (self.body.nth(nth), self.message.unwrap_or_default().wrapping_add(nth.into()))
    }

    /// Appends a packet to the run if it is the next one. Returns whether it was.
    fn join(&mut self, opcode: Opcode, body: &Amcast, message: Option<u64>) -> bool {
        // A decided proposal carries its final timestamp, which does not ascend by one.
        let can_be_run = match opcode {
            Opcode::Prop => body.flags == Amcast::MESSAGE,
            Opcode::AmcastAck | Opcode::Deliver => true,
            _ => false,
        };
        let next = self.message.map(|at| at.wrapping_add(u64::from(self.body.more) + 1));
        can_be_run && self.opcode == opcode && next == message && self.body.join(body)
    }
}

/// End of a list.
const NONE: u32 = u32::MAX;

/// Queue of the packets for one process: a list within the slots of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Queue {
    to: ProcessId,
    first: u32,
    last: u32,
}

/// Queued packet, and the next slot of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    parcel: Parcel,
    next: u32,
}

/// A queue for each destination, in one preallocated array of slots. Packets without messages that
/// wait for the same process share a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outbox {
    /// Queues, ordered by process.
    queues: Vec<Queue>,
    /// Queues that are not empty, in the order in which they are served.
    busy: VecDeque<u32>,
    places: Vec<Option<Waiting>>,
    /// Slots below `used` that are free.
    empty: Vec<u32>,
    used: u32,
    pub lost: u64,
}

impl Outbox {
    /// Creates an empty outbox with a capacity of `most` packets to any of `peers`.
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
        let last = self.places.get_mut(self.queues[at].last as usize).and_then(Option::as_mut);
        if last.is_some_and(|last| last.parcel.join(opcode, &body, message)) {
            return;
        }
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

    /// Removes and returns the next packet if it satisfies `wanted`.
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

    /// Removes the first `count` packets of the next run.
    fn pop_of_run(&mut self, count: u8) {
        let first = self.busy.front().map(|at| self.queues[*at as usize].first);
        let waiting = first.and_then(|place| self.places[place as usize].as_mut());
        let Some(Waiting { parcel, .. }) = waiting else { return };
        if count > parcel.body.more {
            self.pop_if(|_| true);
        } else {
            let (first, message) = parcel.nth(count);
            parcel.body = Amcast { more: parcel.body.more - count, ..first };
            parcel.message = Some(message);
        }
    }

    /// Writes the next frame and returns its length. `message` looks up the message of a packet; a
    /// packet whose message is not found is skipped.
    pub fn write<'a>(
        &mut self,
        slot: &mut [u8],
        now: Now,
        ends: (ProcessId, Incarnation),
        message: impl Fn(&Amcast, u64) -> Option<&'a [u8]>,
    ) -> Option<usize> {
        loop {
            let first = *self.busy.front().map(|at| &self.queues[*at as usize].first)?;
            let Waiting { parcel, .. } = self.places[first as usize]?;
            if parcel.message.is_none() {
                break;
            }
            let find = |nth| {
                let (body, at) = parcel.nth(nth);
                message(&body, at)
            };
            let packets = fitting(slot.len(), parcel.body.more, find);
            if packets == 0 {
                self.pop_of_run(1);
                continue;
            }
            let run = Parcel { body: Amcast { more: packets - 1, ..parcel.body }, ..parcel };
            let bytes = write_run(slot, now, ends, &run, |nth| find(nth).unwrap_or_default());
            self.pop_of_run(packets);
            return Some(bytes);
        }
        let first = self.pop_if(|_| true)?;
        put(slot, 0, &first);
        let mut packets = 1;
        while slot.len() >= HEADER_LEN + (packets + 1) * AMCAST_LEN {
            let is_like = |other: &Parcel| {
                (other.to, other.opcode, other.message) == (first.to, first.opcode, None)
            };
            let Some(other) = self.pop_if(is_like) else { break };
            put(slot, packets, &other);
            packets += 1;
        }
        Some(close(slot, now, ends, &first, packets * AMCAST_LEN))
    }
}

/// Space left in a frame for the messages of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room(usize);

impl Room {
    /// Creates the space of a frame of `frame_bytes`.
    pub const fn new(frame_len: usize) -> Self {
        Self(frame_len.saturating_sub(HEADER_LEN + AMCAST_LEN))
    }

    /// Reserves space for a message. Returns whether it fits.
    pub const fn take(&mut self, message_len: usize) -> bool {
        match self.0.checked_sub(AMCAST_LENGTH_BYTES + message_len) {
            Some(rest) => self.0 = rest,
            None => return false,
        }
        true
    }
}

/// Returns how many packets of a run fit a frame, up to the first whose message is not found. The
/// first packet always fits.
fn fitting<'a>(frame_len: usize, more: u8, message: impl Fn(u8) -> Option<&'a [u8]>) -> u8 {
    let (mut room, mut packets) = (Room::new(frame_len), 0);
    while packets <= more && packets < u8::MAX {
        let Some(message) = message(packets) else { break };
        if !room.take(message.len()) {
            return packets.max(1);
        }
        packets += 1;
    }
    packets
}

/// Writes a packet behind `before` others.
fn put(slot: &mut [u8], before: usize, parcel: &Parcel) {
    let room = slot[HEADER_LEN..].get_mut(before * AMCAST_LEN..);
    room.and_then(|room| parcel.body.write(room)).expect("the room is as long as the packet");
}

/// Seals a frame that contains packets of the given length.
fn close(
    slot: &mut [u8],
    now: Now,
    (src, incarnation): (ProcessId, Incarnation),
    parcel: &Parcel,
    bytes: usize,
) -> usize {
    let nothing = Promises::both(Timestamp::from_ns(now.sync.as_ns().wrapping_sub(NO_PROMISE_NS)));
    let header = Header::new(parcel.opcode, src, parcel.to, incarnation);
    seal(slot, header.stamped(now.sync, nothing, Psn(0)), bytes)
}

/// Writes a frame with a run and its messages. Returns the frame's length.
pub(crate) fn write_run<'a>(
    slot: &mut [u8],
    now: Now,
    ends: (ProcessId, Incarnation),
    parcel: &Parcel,
    message: impl Fn(u8) -> &'a [u8],
) -> usize {
    put(slot, 0, parcel);
    let room = &mut slot[HEADER_LEN + AMCAST_LEN..];
    let mut bytes = 0;
    for nth in 0..=parcel.body.more {
        let message = message(nth);
        if parcel.body.more > 0 {
            let length = (message.len() as u16).to_be_bytes();
            room[bytes..bytes + length.len()].copy_from_slice(&length);
            bytes += length.len();
        }
        room[bytes..bytes + message.len()].copy_from_slice(message);
        bytes += message.len();
    }
    close(slot, now, ends, parcel, AMCAST_LEN + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Mono;
    use onepipe_wire::{Frame, GroupId, GroupSet, LogicalTime, MessageId};

    #[test]
    fn what_is_lost_in_a_run_leaves_a_gap_in_it() {
        let mut outbox = Outbox::new(16, [ProcessId(1)]);
        for nth in 0..7 {
            let id = MessageId { client: 0, sequence: nth as u32 };
            let body = Amcast::new(GroupId(0), 1).of(id, GroupSet::from_bits(1));
            let body = Amcast { timestamp: LogicalTime(9 + nth), position: nth, ..body };
            outbox.push(ProcessId(1), Opcode::Prop, body, Some(nth));
        }
        let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
        let find = |_: &Amcast, position: u64| (position != 2).then_some(&[7; 50][..]);
        // The slot has space for three messages.
        let mut slot = [0; HEADER_LEN + AMCAST_LEN + 3 * 52];
        let mut positions = Vec::new();
        while let Some(bytes) = outbox.write(&mut slot, now, (ProcessId(0), Incarnation(1)), find) {
            let frame = Frame::parse(&slot[..bytes]).expect("just written");
            let packets = Amcast::packets(frame.opcode, frame.payload);
            let packets = packets.map(|packet| packet.expect("just written"));
            positions.push(packets.map(|(body, _)| body.position).collect::<Vec<_>>());
        }
        assert_eq!(positions, [vec![0, 1], vec![3, 4, 5], vec![6]]);
        assert!(outbox.is_empty() && outbox.used == 0);
    }
}
