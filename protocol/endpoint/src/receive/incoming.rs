//! What a receiver knows of one sender.

use alloc::boxed::Box;

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

/// What is known only of a sender that has asked for room, or has restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rare {
    /// Charge in the buffer, in the window, of all former lives.
    pub held_before: u64,
    /// Charge in the buffer that is in room, of any life.
    pub held_in_room: u64,
    pub reservation_id: u32,
    pub room: Room,
    /// When it was last heard of.
    pub heard: Mono,
}

/// One sender. A line of the cache: of these there are as many as pairs of processes, so hardly any
/// is found in it, and each line more is another wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub(crate) struct Incoming {
    pub from: ProcessId,
    pub incarnation: Incarnation,
    /// Counts the lives of the sender that were met here: what is held from a former life is not
    /// counted against the window of this one.
    pub life: u16,
    pub tracker: Tracker,
    pub received: u32,
    pub marked: u32,
    /// Charge in the buffer, in the window, of this life: no window exceeds 32 bits.
    pub held: u32,
    /// Charge of this life consumed so far.
    pub consumed: u64,
    /// Charge of any life that has left the buffer since the sender was last told; no less than a
    /// window when it is so much.
    pub freed: u32,
    /// Packets since the last acknowledgement.
    pub unacknowledged: u16,
    /// An acknowledgement is due when the delay is over.
    pub is_delayed: bool,
    /// What to answer next, if anything.
    pub answer: Option<Opcode>,
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Incoming>() == 64);

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
            freed: 0,
            unacknowledged: 0,
            is_delayed: false,
            answer: None,
            rare: None,
        }
    }

    /// What is known of it only if it has asked for room or has restarted.
    #[inline]
    pub fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    /// The same, to change; from now on there is some.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(|| {
            Box::new(Rare {
                held_before: 0,
                held_in_room: 0,
                reservation_id: 0,
                room: Room::Closed,
                heard: Mono::from_ns(0),
            })
        })
    }

    /// It was heard. Of one that has no room nobody asks when.
    #[inline]
    pub fn hear(&mut self, now: Mono) {
        if let Some(rare) = &mut self.rare {
            rare.heard = now;
        }
    }

    /// The room that it was given, or waits for.
    #[inline]
    pub fn room(&self) -> Room {
        self.rare().map_or(Room::Closed, |rare| rare.room)
    }

    /// The number of its last request for room.
    #[inline]
    pub fn reservation_id(&self) -> u32 {
        self.rare().map_or(0, |rare| rare.reservation_id)
    }

    /// Whether nothing of any life of it is in the buffer.
    pub fn holds_nothing(&self) -> bool {
        self.held == 0
            && self.rare().is_none_or(|rare| rare.held_before == 0 && rare.held_in_room == 0)
    }

    /// Fetches what a frame will change. See [`crate::Endpoint::fetch`].
    #[inline]
    pub fn fetch(&self) -> u64 {
        self.held.into()
    }

    /// The sender has restarted. Answers false when it cannot be admitted: what it has left behind
    /// here in 65,535 former lives would be taken for its own.
    pub fn begin_life(&mut self, now: Mono, incarnation: Incarnation, base: Psn) -> bool {
        let life = match self.life.checked_add(1) {
            Some(life) => life,
            None if self.holds_nothing() => 0,
            None => return false,
        };
        let held = self.held;
        let rare = self.rare_mut();
        rare.held_before += u64::from(held);
        (rare.reservation_id, rare.room, rare.heard) = (0, Room::Closed, now);
        let (is_delayed, answer, rare) = (self.is_delayed, self.answer, self.rare.take());
        let fresh = Self::new(self.from, incarnation, base);
        *self = Self { life, is_delayed, answer, rare, ..fresh };
        true
    }

    /// What of `window` is left to this life.
    #[inline]
    pub fn window_bytes(&self, window: u64) -> u64 {
        window.saturating_sub(self.rare().map_or(0, |rare| rare.held_before))
    }

    /// Puts `charge` into the room that it was given, if it fits: then it is full or still open.
    pub fn take_room(&mut self, charge: u64) -> bool {
        let Some(rare) = &mut self.rare else { return false };
        let Room::Open { granted, arrived } = rare.room else { return false };
        let arrived = arrived + charge;
        if arrived > granted {
            return false;
        }
        rare.held_in_room += charge;
        rare.room = if arrived == granted { Room::Closed } else { Room::Open { granted, arrived } };
        true
    }

    /// Closes the room. Answers the charge that was set aside and will not be used.
    pub fn close_room(&mut self) -> u64 {
        let Some(rare) = &mut self.rare else { return 0 };
        match core::mem::replace(&mut rare.room, Room::Closed) {
            Room::Open { granted, arrived } => granted - arrived,
            Room::Closed | Room::Waiting(_) | Room::Refused => 0,
        }
    }
}
