//! State of one sender at a receiver.

use alloc::boxed::Box;

use onepipe_base::{Incarnation, Mono, ProcessId, Psn};
use onepipe_reliability::PacketTracker;
use onepipe_wire::{AckDelay, Opcode};

/// Memory reserved for messages of a sender that exceed its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reservation {
    None,
    /// Requested; granted when enough memory is free.
    Waiting(u64),
    Granted {
        size: u64,
        used: u64,
    },
    Refused,
}

/// State that exists only for senders that have requested a reservation or have restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColdState {
    /// Charge of messages of previous incarnations that occupy the window.
    pub buffered_before: u64,
    /// Charge of messages that occupy reserved memory, of any incarnation.
    pub buffered_reserved: u64,
    pub reservation_id: u32,
    pub reservation: Reservation,
    /// When a frame of the sender last arrived.
    pub last_seen: Mono,
}

/// State of one sender. It fills one cache line: there is one for each pair of processes, so it is
/// rarely in the cache, and a second line would be a second miss.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub(crate) struct RemoteSender {
    pub from: ProcessId,
    pub incarnation: Incarnation,
    /// Number of restarts of the sender seen here. Messages of previous incarnations do not count
    /// against the window of the current one.
    pub generation: u16,
    pub tracker: PacketTracker,
    /// Packets received, and those of them with the congestion mark; both wrap.
    pub received: u32,
    pub marked: u32,
    /// Charge of this incarnation's messages that occupy the window; no window exceeds 32 bits.
    pub buffered: u32,
    /// Charge of this incarnation's messages that the application has consumed so far.
    pub consumed: u64,
    /// Charge of any incarnation's messages freed since the last acknowledgement; saturates.
    pub freed_since_ack: u32,
    /// Data packets since the last acknowledgement; saturates.
    pub unacked: u8,
    /// When the oldest and the newest of them arrived, in ticks of [`AckDelay`].
    pub oldest_at: u16,
    pub newest_at: u16,
    /// The acknowledgement to send next, if any.
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
            oldest_at: 0,
            newest_at: 0,
            pending_ack: None,
            cold: None,
        }
    }

    /// Returns the cold state, if there is any.
    #[inline]
    pub fn cold(&self) -> Option<&ColdState> {
        self.cold.as_deref()
    }

    /// Returns the cold state, creating it if there is none.
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

    /// Records that a frame arrived. Only the timeout of reservations needs the time.
    #[inline]
    pub fn touch(&mut self, now: Mono) {
        if let Some(cold) = &mut self.cold {
            cold.last_seen = now;
        }
    }

    /// Returns the reservation, granted or requested.
    #[inline]
    pub fn reservation(&self) -> Reservation {
        self.cold().map_or(Reservation::None, |cold| cold.reservation)
    }

    /// Returns the id of the last reservation request.
    #[inline]
    pub fn reservation_id(&self) -> u32 {
        self.cold().map_or(0, |cold| cold.reservation_id)
    }

    /// Returns whether packets wait for an acknowledgement that is not due.
    #[inline]
    pub fn is_ack_delayed(&self) -> bool {
        self.unacked > 0 && self.pending_ack.is_none()
    }

    /// Returns for how long the newest packet has waited for its acknowledgement; 0 if it was
    /// acknowledged already. A longer wait than 64 ms is reported modulo 67 ms: the sender then
    /// measures too long a round trip, never too short a one.
    #[inline]
    pub fn newest_delay(&self, now: Mono) -> AckDelay {
        match self.unacked {
            0 => AckDelay::default(),
            _ => AckDelay(AckDelay::ticks(now.as_ns()).wrapping_sub(self.newest_at)),
        }
    }

    /// Records that all packets were acknowledged.
    #[inline]
    pub fn on_acked(&mut self) {
        (self.unacked, self.freed_since_ack) = (0, 0);
    }

    /// Returns whether a piggybacked acknowledgement says all of the connection's state: no packet
    /// is missing or rejected, the window is whole, and no reservation is open.
    #[inline]
    pub fn fits_piggyback(&self) -> bool {
        let is_plain =
            |cold: &ColdState| cold.buffered_before == 0 && cold.reservation == Reservation::None;
        self.tracker.is_complete() && self.cold().is_none_or(is_plain)
    }

    /// Returns whether no message of any incarnation is buffered.
    pub fn has_nothing_buffered(&self) -> bool {
        self.buffered == 0
            && self
                .cold()
                .is_none_or(|cold| cold.buffered_before == 0 && cold.buffered_reserved == 0)
    }

    /// Prefetches the state that a frame will change. See [`crate::Endpoint::prefetch`].
    #[inline]
    pub fn prefetch(&self) -> u64 {
        self.buffered.into()
    }

    /// Handles a restart of the sender. Returns false, and admits no packet of the new incarnation,
    /// if the generation would wrap to 0 while messages of earlier generations are buffered.
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
        let (pending_ack, cold) = (self.pending_ack, self.cold.take());
        let fresh = Self::new(self.from, incarnation, base);
        *self = Self { generation, pending_ack, cold, ..fresh };
        true
    }

    /// Returns what previous incarnations leave of `window` to this one.
    #[inline]
    pub fn window_bytes(&self, window: u64) -> u64 {
        window.saturating_sub(self.cold().map_or(0, |cold| cold.buffered_before))
    }

    /// Charges a message to the reservation. Returns false if it does not fit.
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

    /// Closes the reservation. Returns its unused charge.
    pub fn close_reservation(&mut self) -> u64 {
        let Some(cold) = &mut self.cold else { return 0 };
        match core::mem::replace(&mut cold.reservation, Reservation::None) {
            Reservation::Granted { size, used } => size - used,
            Reservation::None | Reservation::Waiting(_) | Reservation::Refused => 0,
        }
    }
}
