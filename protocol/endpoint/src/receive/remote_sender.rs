//! What a receiver knows of one sender.

use alloc::boxed::Box;

use onepipe_base::{Incarnation, Mono, ProcessId, Psn};
use onepipe_wire::Opcode;

use super::tracker::PacketTracker;

/// Room given to a sender for messages that exceed its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reservation {
    None,
    /// Asked for; given when enough is free.
    Waiting(u64),
    Granted {
        size: u64,
        used: u64,
    },
    Refused,
}

/// What is known only of a sender that has asked for room, or has restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColdState {
    /// Charge in the buffer, in the window, of all former lives.
    pub buffered_before: u64,
    /// Charge in the buffer that is in room, of any life.
    pub buffered_reserved: u64,
    pub reservation_id: u32,
    pub reservation: Reservation,
    /// When it was last last_seen of.
    pub last_seen: Mono,
}

/// One sender. A line of the cache: of these there are as many as pairs of processes, so hardly any
/// is found in it, and each line more is another wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub(crate) struct RemoteSender {
    pub from: ProcessId,
    pub incarnation: Incarnation,
    /// Counts the lives of the sender that were met here: what is held from a former life is not
    /// counted against the window of this one.
    pub generation: u16,
    pub tracker: PacketTracker,
    pub received: u32,
    pub marked: u32,
    /// Charge in the buffer, in the window, of this life: no window exceeds 32 bits.
    pub buffered: u32,
    /// Charge of this life consumed so far.
    pub consumed: u64,
    /// Charge of any life that has left the buffer since the sender was last told; no less than a
    /// window when it is so much.
    pub freed_since_ack: u32,
    /// Packets since the last acknowledgement.
    pub unacked: u16,
    /// An acknowledgement is due when the delay is over.
    pub is_ack_delayed: bool,
    /// What to answer next, if anything.
    pub pending_ack: Option<Opcode>,
    cold: Option<Box<ColdState>>,
}

const _: () = assert!(size_of::<RemoteSender>() == 64);

impl RemoteSender {
    pub fn new(from: ProcessId, incarnation: Incarnation, base: Psn) -> Self {
        Self {
            from,
            incarnation,
            generation: 0,
            tracker: PacketTracker::new(base),
            received: 0,
            marked: 0,
            buffered: 0,
            consumed: 0,
            freed_since_ack: 0,
            unacked: 0,
            is_ack_delayed: false,
            pending_ack: None,
            cold: None,
        }
    }

    /// What is known of it only if it has asked for room or has restarted.
    #[inline]
    pub fn cold(&self) -> Option<&ColdState> {
        self.cold.as_deref()
    }

    /// The same, to change; from now on there is some.
    pub fn cold_mut(&mut self) -> &mut ColdState {
        self.cold.get_or_insert_with(|| {
            Box::new(ColdState {
                buffered_before: 0,
                buffered_reserved: 0,
                reservation_id: 0,
                reservation: Reservation::None,
                last_seen: Mono::from_ns(0),
            })
        })
    }

    /// It was last_seen. Of one that has no room nobody asks when.
    #[inline]
    pub fn touch(&mut self, now: Mono) {
        if let Some(cold) = &mut self.cold {
            cold.last_seen = now;
        }
    }

    /// The room that it was given, or waits for.
    #[inline]
    pub fn reservation(&self) -> Reservation {
        self.cold().map_or(Reservation::None, |cold| cold.reservation)
    }

    /// The number of its last request for room.
    #[inline]
    pub fn reservation_id(&self) -> u32 {
        self.cold().map_or(0, |cold| cold.reservation_id)
    }

    /// Whether nothing of any life of it is in the buffer.
    pub fn has_nothing_buffered(&self) -> bool {
        self.buffered == 0
            && self
                .cold()
                .is_none_or(|cold| cold.buffered_before == 0 && cold.buffered_reserved == 0)
    }

    /// Fetches what a frame will change. See [`crate::Endpoint::prefetch`].
    #[inline]
    pub fn prefetch(&self) -> u64 {
        self.buffered.into()
    }

    /// The sender has restarted. Answers false when it cannot be admitted: what it has left behind
    /// here in 65,535 former lives would be taken for its own.
    pub fn restart(&mut self, now: Mono, incarnation: Incarnation, base: Psn) -> bool {
        let generation = match self.generation.checked_add(1) {
            Some(generation) => generation,
            None if self.has_nothing_buffered() => 0,
            None => return false,
        };
        let buffered = self.buffered;
        let cold = self.cold_mut();
        cold.buffered_before += u64::from(buffered);
        (cold.reservation_id, cold.reservation, cold.last_seen) = (0, Reservation::None, now);
        let (is_ack_delayed, pending_ack, cold) =
            (self.is_ack_delayed, self.pending_ack, self.cold.take());
        let fresh = Self::new(self.from, incarnation, base);
        *self = Self { generation, is_ack_delayed, pending_ack, cold, ..fresh };
        true
    }

    /// What of `window` is left to this life.
    #[inline]
    pub fn window_bytes(&self, window: u64) -> u64 {
        window.saturating_sub(self.cold().map_or(0, |cold| cold.buffered_before))
    }

    /// Puts `charge` into the room that it was given, if it fits: then it is full or still open.
    pub fn use_reservation(&mut self, charge: u64) -> bool {
        let Some(cold) = &mut self.cold else { return false };
        let Reservation::Granted { size, used } = cold.reservation else { return false };
        let used = used + charge;
        if used > size {
            return false;
        }
        cold.buffered_reserved += charge;
        cold.reservation =
            if used == size { Reservation::None } else { Reservation::Granted { size, used } };
        true
    }

    /// Closes the room. Answers the charge that was set aside and will not be used.
    pub fn close_reservation(&mut self) -> u64 {
        let Some(cold) = &mut self.cold else { return 0 };
        match core::mem::replace(&mut cold.reservation, Reservation::None) {
            Reservation::Granted { size, used } => size - used,
            Reservation::None | Reservation::Waiting(_) | Reservation::Refused => 0,
        }
    }
}
