//! What a receiver knows of one sender.

use onepipe_base::{Incarnation, Mono, ProcessId, Psn};
use onepipe_wire::Opcode;

use super::tracker::Tracker;

/// Room given to a sender for messages that exceed its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Room {
    Closed,
    /// Asked for; given when enough is free.
    Waiting(u64),
    Open {
        granted: u64,
        arrived: u64,
    },
    Refused,
}

/// One sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Incoming {
    pub from: ProcessId,
    pub incarnation: Incarnation,
    /// Counts the lives of the sender that were met here: what is held from a former life is not
    /// counted against the window of this one.
    pub life: u16,
    pub tracker: Tracker,
    pub received: u32,
    pub marked: u32,
    /// Charge in the buffer, in the window: of this life, and of all former ones.
    pub held: u64,
    pub held_before: u64,
    /// Charge in the buffer that is in room, of any life.
    pub held_in_room: u64,
    /// Charge of this life consumed so far.
    pub consumed: u64,
    /// Charge of any life that has left the buffer since the sender was last told.
    pub freed: u64,
    /// When it was last heard of.
    pub heard: Mono,
    pub room_id: u32,
    pub room: Room,
    /// Packets since the last acknowledgement.
    pub unacknowledged: u32,
    /// An acknowledgement is due when the delay is over.
    pub is_delayed: bool,
    /// What to answer next, if anything.
    pub answer: Option<Opcode>,
}

impl Incoming {
    pub fn new(now: Mono, from: ProcessId, incarnation: Incarnation, base: Psn) -> Self {
        Self {
            from,
            incarnation,
            life: 0,
            tracker: Tracker::new(base),
            received: 0,
            marked: 0,
            held: 0,
            held_before: 0,
            held_in_room: 0,
            consumed: 0,
            freed: 0,
            heard: now,
            room_id: 0,
            room: Room::Closed,
            unacknowledged: 0,
            is_delayed: false,
            answer: None,
        }
    }

    /// Fetches what a frame will change. See [`crate::Endpoint::fetch`].
    #[inline]
    pub fn fetch(&self) -> u64 {
        let near = u64::from(self.received) ^ self.held ^ self.heard.as_ns();
        near ^ u64::from(self.is_delayed) ^ u64::from(self.tracker.base().0)
    }

    /// The sender has restarted. Answers false when it cannot be admitted: what it has left behind
    /// here in 65,535 former lives would be taken for its own.
    pub fn begin_life(&mut self, now: Mono, incarnation: Incarnation, base: Psn) -> bool {
        let held_before = self.held + self.held_before;
        let life = match self.life.checked_add(1) {
            Some(life) => life,
            None if held_before == 0 && self.held_in_room == 0 => 0,
            None => return false,
        };
        let (is_delayed, answer, held_in_room) = (self.is_delayed, self.answer, self.held_in_room);
        let fresh = Self::new(now, self.from, incarnation, base);
        *self = Self { life, is_delayed, answer, held_before, held_in_room, ..fresh };
        true
    }

    /// What of `window` is left to this life.
    #[inline]
    pub fn window_octets(&self, window: u64) -> u64 {
        window.saturating_sub(self.held_before)
    }

    /// Closes the room. Answers the charge that was set aside and will not be used.
    pub fn close_room(&mut self) -> u64 {
        match core::mem::replace(&mut self.room, Room::Closed) {
            Room::Open { granted, arrived } => granted - arrived,
            Room::Closed | Room::Waiting(_) | Room::Refused => 0,
        }
    }
}
