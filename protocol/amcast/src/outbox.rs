//! What waits to leave.

use alloc::collections::VecDeque;

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

/// A queue that never grows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outbox {
    parcels: VecDeque<Parcel>,
    most: usize,
    pub lost: u64,
}

impl Outbox {
    pub fn new(most: usize) -> Self {
        Self { parcels: VecDeque::with_capacity(most), most, lost: 0 }
    }

    pub fn push(&mut self, to: ProcessId, opcode: Opcode, body: Amcast, message: Option<u64>) {
        if self.parcels.len() < self.most {
            self.parcels.push_back(Parcel { to, opcode, body, message });
        } else {
            self.lost += 1;
        }
    }

    pub fn pop(&mut self) -> Option<Parcel> {
        self.parcels.pop_front()
    }
}

/// Completes a frame for `parcel` with the message that goes with it. Answers its octets.
pub(crate) fn write(
    slot: &mut [u8],
    now: Now,
    (src, incarnation): (ProcessId, Incarnation),
    parcel: &Parcel,
    message: &[u8],
) -> usize {
    let body = HEADER_OCTETS + AMCAST_OCTETS;
    parcel.body.write(&mut slot[HEADER_OCTETS..body]).expect("the room is as long as the packet");
    slot[body..body + message.len()].copy_from_slice(message);
    let nothing = Promises::both(Timestamp::from_ns(now.sync.as_ns().wrapping_sub(NO_PROMISE_NS)));
    let header = Header::new(parcel.opcode, src, parcel.to, incarnation);
    seal(slot, header.stamped(now.sync, nothing, Psn(0)), AMCAST_OCTETS + message.len())
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
