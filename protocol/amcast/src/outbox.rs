//! Outbox: packets waiting for transmission, queued by destination.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Now, ProcessId, ProcessInstance};
use onepipe_wire::{
    AMCAST_LEN, AMCAST_LENGTH_BYTES, Amcast, Header, Opcode, SHORT_HEADER_LEN, seal,
};

/// Packet, or a run of consecutive packets. Its message, if any, is looked up on transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outgoing {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub body: Amcast,
    /// Log position, or other handle of its owner, of the packet's message. The packets of a run
    /// have consecutive ones.
    pub message: Option<u64>,
}

impl Outgoing {
    /// Returns the packet at index `nth` of the run, and the handle of its message.
    fn nth(&self, nth: u8) -> (Amcast, u64) {
        (self.body.nth(nth), self.message.unwrap_or_default().wrapping_add(nth.into()))
    }

    /// Appends a packet to the run if it is the next one. Returns whether it was.
    fn append(&mut self, opcode: Opcode, body: &Amcast, message: Option<u64>) -> bool {
        // A decided proposal carries its final timestamp, which does not ascend by one.
        let can_be_run = match opcode {
            Opcode::Prop => body.flags == Amcast::MESSAGE,
            Opcode::AmcastAck | Opcode::Deliver => true,
            _ => false,
        };
        let next = self.message.map(|at| at.wrapping_add(u64::from(self.body.further) + 1));
        can_be_run && self.opcode == opcode && next == message && self.body.append(body)
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
struct Slot {
    outgoing: Outgoing,
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
    slots: Vec<Option<Slot>>,
    /// Slots below `used` that are free.
    free: Vec<u32>,
    used: u32,
    pub dropped: u64,
}

impl Outbox {
    /// Creates an empty outbox with a capacity of `capacity` packets to any of `peers`.
    pub fn new(capacity: usize, peers: impl IntoIterator<Item = ProcessId>) -> Self {
        let mut peers: Vec<ProcessId> = peers.into_iter().collect();
        peers.sort_unstable();
        peers.dedup();
        Self {
            busy: VecDeque::with_capacity(peers.len()),
            queues: peers.into_iter().map(|to| Queue { to, first: NONE, last: NONE }).collect(),
            slots: vec![None; capacity],
            free: Vec::with_capacity(capacity),
            used: 0,
            dropped: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.busy.is_empty()
    }

    pub fn push(&mut self, to: ProcessId, opcode: Opcode, body: Amcast, message: Option<u64>) {
        let Ok(at) = self.queues.binary_search_by_key(&to, |queue| queue.to) else {
            debug_assert!(false, "{to:?} is not a peer of this machine");
            return;
        };
        let last = self.slots.get_mut(self.queues[at].last as usize).and_then(Option::as_mut);
        if last.is_some_and(|last| last.outgoing.append(opcode, &body, message)) {
            return;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.used as usize) < self.slots.len() => {
                self.used += 1;
                self.used - 1
            }
            None => {
                self.dropped += 1;
                return;
            }
        };
        let outgoing = Outgoing { to, opcode, body, message };
        debug_assert!(self.slots[slot as usize].is_none(), "a free slot is empty");
        self.slots[slot as usize] = Some(Slot { outgoing, next: NONE });
        let queue = &mut self.queues[at];
        if queue.first == NONE {
            queue.first = slot;
            self.busy.push_back(at as u32);
        } else if let Some(last) = &mut self.slots[queue.last as usize] {
            last.next = slot;
        }
        queue.last = slot;
    }

    /// Removes and returns the next packet if it satisfies `wanted`.
    fn pop_if(&mut self, wanted: impl Fn(&Outgoing) -> bool) -> Option<Outgoing> {
        let at = *self.busy.front()?;
        let queue = &mut self.queues[at as usize];
        let slot = queue.first;
        let Slot { outgoing, next } = self.slots[slot as usize]?;
        if !wanted(&outgoing) {
            return None;
        }
        debug_assert_eq!(outgoing.to, queue.to, "a queue is for one process");
        self.slots[slot as usize] = None;
        queue.first = next;
        self.free.push(slot);
        if next == NONE {
            queue.last = NONE;
            self.busy.pop_front();
        }
        if self.busy.is_empty() {
            self.free.clear();
            self.used = 0;
        }
        Some(outgoing)
    }

    /// Panics if the queues and the free slots are not all slots. Takes time linear in the packets.
    pub fn check_invariants(&self) {
        let mut packets = 0;
        for (at, queue) in (0..).zip(&self.queues) {
            let is_empty = queue.first == NONE;
            assert_eq!(queue.last == NONE, is_empty, "an empty queue has no last packet");
            let turns = self.busy.iter().filter(|busy| **busy == at).count();
            assert_eq!(turns, usize::from(!is_empty), "a queue with packets has one turn");
            let (mut slot, mut last) = (queue.first, NONE);
            while let Some(entry) = self.slots.get(slot as usize) {
                let entry = entry.expect("a queue lists packets");
                assert_eq!(entry.outgoing.to, queue.to, "a queue is for one process");
                (last, slot, packets) = (slot, entry.next, packets + 1);
                assert!(packets <= self.slots.len(), "a queue ends");
            }
            assert_eq!(last, queue.last, "a queue ends with its last packet");
        }
        assert!(self.used as usize <= self.slots.len(), "the outbox is bounded");
        assert_eq!(packets + self.free.len(), self.used as usize, "a slot is queued or free");
    }

    /// Removes the first `count` packets of the next run.
    fn pop_run(&mut self, count: u8) {
        let first = self.busy.front().map(|at| self.queues[*at as usize].first);
        let entry = first.and_then(|slot| self.slots[slot as usize].as_mut());
        let Some(Slot { outgoing, .. }) = entry else { return };
        if count > outgoing.body.further {
            self.pop_if(|_| true);
        } else {
            let (first, message) = outgoing.nth(count);
            outgoing.body = Amcast { further: outgoing.body.further - count, ..first };
            outgoing.message = Some(message);
        }
    }

    /// Writes the next frame and returns its length. `message` looks up the message of a packet; a
    /// packet whose message is not found is skipped.
    pub fn write<'a>(
        &mut self,
        slot: &mut [u8],
        _now: Now,
        sender: ProcessInstance,
        message: impl Fn(&Amcast, u64) -> Option<&'a [u8]>,
    ) -> Option<usize> {
        loop {
            let first = *self.busy.front().map(|at| &self.queues[*at as usize].first)?;
            let Slot { outgoing, .. } = self.slots[first as usize]?;
            if outgoing.message.is_none() {
                break;
            }
            let find = |nth| {
                let (body, at) = outgoing.nth(nth);
                message(&body, at)
            };
            let packets = count_fitting(slot.len(), outgoing.body.further, find);
            if packets == 0 {
                self.pop_run(1);
                continue;
            }
            debug_assert!(
                packets - 1 <= outgoing.body.further,
                "a frame carries a part of the run"
            );
            let run =
                Outgoing { body: Amcast { further: packets - 1, ..outgoing.body }, ..outgoing };
            let bytes = write_run(slot, sender, &run, |nth| find(nth).unwrap_or_default());
            self.pop_run(packets);
            return Some(bytes);
        }
        let first = self.pop_if(|_| true)?;
        write_packet(slot, 0, &first);
        let mut packets = 1;
        while slot.len() >= SHORT_HEADER_LEN + (packets + 1) * AMCAST_LEN {
            let is_like = |other: &Outgoing| {
                (other.to, other.opcode, other.message) == (first.to, first.opcode, None)
            };
            let Some(other) = self.pop_if(is_like) else { break };
            write_packet(slot, packets, &other);
            packets += 1;
        }
        Some(seal_frame(slot, sender, &first, packets * AMCAST_LEN))
    }
}

/// Space left in a frame for the messages of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSpace(usize);

impl FrameSpace {
    /// Creates the space of a frame of `frame_len` bytes.
    pub const fn new(frame_len: usize) -> Self {
        Self(frame_len.saturating_sub(SHORT_HEADER_LEN + AMCAST_LEN))
    }

    /// Reserves space for a message. Returns whether it fits.
    pub const fn reserve(&mut self, message_len: usize) -> bool {
        match self.0.checked_sub(AMCAST_LENGTH_BYTES + message_len) {
            Some(rest) => self.0 = rest,
            None => return false,
        }
        true
    }
}

/// Returns how many packets of a run fit a frame, up to the first whose message is not found. The
/// first packet always fits.
fn count_fitting<'a>(
    frame_len: usize,
    further: u8,
    message: impl Fn(u8) -> Option<&'a [u8]>,
) -> u8 {
    let (mut space, mut packets) = (FrameSpace::new(frame_len), 0);
    while packets <= further && packets < u8::MAX {
        let Some(message) = message(packets) else { break };
        if !space.reserve(message.len()) {
            return packets.max(1);
        }
        packets += 1;
    }
    packets
}

/// Writes a packet behind `before` others.
fn write_packet(slot: &mut [u8], before: usize, outgoing: &Outgoing) {
    let space = slot[SHORT_HEADER_LEN..].get_mut(before * AMCAST_LEN..);
    space.and_then(|space| outgoing.body.write(space)).expect("the slot has space for the packet");
}

/// Seals a frame that contains packets of the given length.
fn seal_frame(
    slot: &mut [u8],
    sender: ProcessInstance,
    outgoing: &Outgoing,
    bytes: usize,
) -> usize {
    let header = Header::new(outgoing.opcode, sender.process, outgoing.to, sender.incarnation);
    seal(slot, header, bytes)
}

/// Writes a frame with a run and its messages. Returns the frame's length.
pub(crate) fn write_run<'a>(
    slot: &mut [u8],
    sender: ProcessInstance,
    outgoing: &Outgoing,
    message: impl Fn(u8) -> &'a [u8],
) -> usize {
    write_packet(slot, 0, outgoing);
    let space = &mut slot[SHORT_HEADER_LEN + AMCAST_LEN..];
    let mut bytes = 0;
    for nth in 0..=outgoing.body.further {
        let message = message(nth);
        if outgoing.body.further > 0 {
            let length = (message.len() as u16).to_be_bytes();
            space[bytes..bytes + length.len()].copy_from_slice(&length);
            bytes += length.len();
        }
        space[bytes..bytes + message.len()].copy_from_slice(message);
        bytes += message.len();
    }
    seal_frame(slot, sender, outgoing, AMCAST_LEN + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Incarnation, Mono};
    use onepipe_wire::{Frame, GroupId, GroupSet, LogicalTime, MessageId};

    #[test]
    fn full_outbox_drops_and_counts_packets() {
        let mut outbox = Outbox::new(2, [ProcessId(1), ProcessId(2)]);
        let body = Amcast::new(GroupId(0), 1);
        for (to, opcode) in [(1, Opcode::Gap), (2, Opcode::Gap), (1, Opcode::Prop)] {
            outbox.push(ProcessId(to), opcode, body, None);
        }
        outbox.push(ProcessId(2), Opcode::Prop, body, None);
        outbox.check_invariants();
        assert_eq!(outbox.dropped, 2, "there is space for two");
        let own = ProcessInstance { process: ProcessId(0), incarnation: Incarnation(1) };
        let now = Now { mono: Mono::from_ns(0), sync: onepipe_base::Timestamp::from_ns(1 << 50) };
        let mut slot = [0; SHORT_HEADER_LEN + AMCAST_LEN];
        assert!(outbox.write(&mut slot, now, own, |_, _| None).is_some());
        outbox.push(ProcessId(2), Opcode::Prop, body, None);
        outbox.check_invariants();
        assert_eq!(outbox.dropped, 2, "a packet that was sent makes space");
    }

    #[test]
    fn missing_message_splits_run() {
        let mut outbox = Outbox::new(16, [ProcessId(1)]);
        for nth in 0..7 {
            let id = MessageId { client: 0, sequence: nth as u32 };
            let body = Amcast::new(GroupId(0), 1).with_message(id, GroupSet::from_bits(1));
            let body = Amcast { timestamp: LogicalTime(9 + nth), position: nth, ..body };
            outbox.push(ProcessId(1), Opcode::Prop, body, Some(nth));
        }
        let now = Now { mono: Mono::from_ns(0), sync: onepipe_base::Timestamp::from_ns(1 << 50) };
        let find = |_: &Amcast, position: u64| (position != 2).then_some(&[7; 50][..]);
        let own = ProcessInstance { process: ProcessId(0), incarnation: Incarnation(1) };
        // The slot has space for three messages.
        let mut slot = [0; SHORT_HEADER_LEN + AMCAST_LEN + 3 * 52];
        let mut positions = Vec::new();
        while let Some(bytes) = outbox.write(&mut slot, now, own, find) {
            let frame = Frame::parse(&slot[..bytes]).expect("just written");
            let packets = Amcast::packets(frame.opcode, frame.payload);
            let packets = packets.map(|packet| packet.expect("just written"));
            positions.push(packets.map(|(body, _)| body.position).collect::<Vec<_>>());
        }
        assert_eq!(positions, [vec![0, 1], vec![3, 4, 5], vec![6]]);
        assert!(outbox.is_empty() && outbox.used == 0);
    }
}
