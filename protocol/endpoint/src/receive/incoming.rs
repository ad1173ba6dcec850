//! What a receiver knows of one sender.

use onepipe_base::{Incarnation, ProcessId, Psn};
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
    /// Charge in the buffer, in the window.
    pub held: u64,
    /// Charge consumed so far.
    pub consumed: u64,
    /// What the sender was last told to be consumed.
    pub told_consumed: u64,
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
    pub fn new(from: ProcessId, incarnation: Incarnation, base: Psn) -> Self {
        Self {
            from,
            incarnation,
            life: 0,
            tracker: Tracker::new(base),
            received: 0,
            marked: 0,
            held: 0,
            consumed: 0,
            told_consumed: 0,
            room_id: 0,
            room: Room::Closed,
            unacknowledged: 0,
            is_delayed: false,
            answer: None,
        }
    }

    /// The sender has restarted.
    pub fn begin_life(&mut self, incarnation: Incarnation, base: Psn) {
        let life = self.life.wrapping_add(1);
        let (is_delayed, answer) = (self.is_delayed, self.answer);
        *self = Self { life, is_delayed, answer, ..Self::new(self.from, incarnation, base) };
    }

    /// Closes the room. Answers the charge that was set aside and will not be used.
    pub fn close_room(&mut self) -> u64 {
        match core::mem::replace(&mut self.room, Room::Closed) {
            Room::Open { granted, arrived } => granted - arrived,
            Room::Closed | Room::Waiting(_) | Room::Refused => 0,
        }
    }
}
