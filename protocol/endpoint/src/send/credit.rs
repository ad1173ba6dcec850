//! Admission: which waiting scattering may be sent.
//!
//! A scattering is sent when all its messages fit the windows of their destinations. The oldest one
//! claims what it needs everywhere and keeps the claim while it waits, so that small scatterings do
//! not starve a large one; later ones may overtake it as far as its claims permit. Only the oldest
//! claims, and it requests reservations at its destinations one by one in ascending order of
//! process id, so no two scatterings, of one sender or of several, can deadlock
//! (docs/design/ordering.md, "How do messages larger than a window get through?").

use alloc::vec::Vec;
use core::hint::black_box;

use onepipe_base::{Mono, ProcessId, ScatteringId};
use onepipe_wire::Service;

use super::Sender;
use super::buffer::{QueuedMessage, QueuedScattering};
use super::connection::{Connection, Fit, Reservation, State};
use crate::{Config, FailureReason};

/// How many scatterings behind the oldest are considered for overtaking.
const OVERTAKERS_MAX: usize = 16;

/// Progress of admission since the state of a connection last changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credit {
    /// Scatterings at the front that are known not to fit.
    blocked: usize,
    /// Destinations of the scattering under consideration.
    destinations: Vec<u32>,
}

/// A scattering that may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub scattering: QueuedScattering,
    pub position: usize,
    /// Some of its messages use reservations, so it needs a burst of its own.
    pub needs_reservation: bool,
}

/// A message that may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdmittedMessage {
    pub scattering: ScatteringId,
    pub message: QueuedMessage,
    pub index: u16,
    pub is_local: bool,
    pub is_unordered: bool,
}

enum Decision {
    Admit {
        needs_reservation: bool,
    },
    Wait,
    /// Some messages can never be sent and were reported: consider the scattering again.
    Retry,
}

impl Credit {
    pub fn new() -> Self {
        Self { blocked: 0, destinations: Vec::new() }
    }

    /// Reconsiders all scatterings after a window has opened or a destination has failed.
    #[inline]
    pub fn reconsider(&mut self) {
        self.blocked = 0;
    }

    /// Returns whether the oldest scattering is the next to be considered.
    #[inline]
    pub fn considers_oldest(&self) -> bool {
        self.blocked == 0
    }

    /// Returns the number of scatterings that are known not to fit.
    pub fn blocked_count(&self) -> usize {
        self.blocked
    }

    /// Returns whether no scattering remains to be considered.
    #[inline]
    pub fn is_blocked(&self, queued: usize) -> bool {
        self.blocked >= queued.min(OVERTAKERS_MAX + 1)
    }
}

impl Sender {
    /// Returns the first scattering that may be sent. One that needs a reservation is returned only
    /// if it `is_first` in its burst.
    #[inline]
    pub(super) fn admit(&mut self, config: &Config, now: Mono, is_first: bool) -> Option<Admitted> {
        while !self.credit.is_blocked(self.buffer.len()) {
            let position = self.credit.blocked;
            let scattering = self.buffer.queued(position);
            if scattering.is_sent {
                self.credit.blocked += 1;
                continue;
            }
            match self.consider(config, now, position, scattering) {
                Decision::Admit { needs_reservation } if needs_reservation && !is_first => {
                    self.clear_needs();
                    return None;
                }
                Decision::Admit { needs_reservation } => {
                    self.use_credit(position == 0);
                    return Some(Admitted { scattering, position, needs_reservation });
                }
                Decision::Wait => self.credit.blocked += 1,
                Decision::Retry => {}
            }
        }
        None
    }

    /// Fast path: admits the oldest scattering if it has one message that fits the window of an
    /// open connection. [`Sender::admit`] handles all other cases.
    #[inline]
    pub(super) fn admit_single(&mut self) -> Option<AdmittedMessage> {
        if !self.credit.considers_oldest() {
            return None;
        }
        let (scattering, message, is_unordered) = self.buffer.single_after(0)?;
        let charge = message.charge();
        let connection = self.peers.get_mut(message.to as usize);
        connection.need = charge;
        let fits = charge <= connection.window && connection.fit(true) == Fit::Now;
        connection.need = 0;
        if !fits || message.has_failed() {
            return None;
        }
        connection.has_waiting = false;
        connection.claimed = 0;
        connection.sent += charge;
        let is_local = connection.is_local;
        if !is_local {
            connection.in_burst += charge;
        }
        Some(AdmittedMessage { scattering, message: *message, index: 0, is_local, is_unordered })
    }

    //= spec/ordering.md#R30
    /// Decides whether `scattering` may be sent. If so, its needs stay recorded in the connections.
    fn consider(
        &mut self,
        config: &Config,
        now: Mono,
        position: usize,
        scattering: QueuedScattering,
    ) -> Decision {
        let is_oldest = position == 0;
        self.sum_needs(config, now, scattering);
        let (mut fit, mut needs_reservation, mut is_open) = (Fit::Now, false, true);
        let mut has_lost = false;
        for i in 0..self.credit.destinations.len() {
            let to = self.credit.destinations[i] as usize;
            let connection = self.peers.get(to);
            is_open &= connection.state == State::Open;
            needs_reservation |=
                connection.need > connection.window && connection.state == State::Open;
            match connection.fit(is_oldest) {
                Fit::Now => {}
                Fit::Later => fit = Fit::Later,
                Fit::Never => has_lost = true,
            }
        }
        if has_lost {
            self.fail_unreachable(config, now, scattering, is_oldest);
            self.clear_needs();
            return Decision::Retry;
        }
        if fit == Fit::Now {
            return Decision::Admit { needs_reservation };
        }
        if is_oldest {
            self.claim(config, now);
            // Only now, because all windows must be known: reservations are requested in ascending
            // order of process id.
            if needs_reservation && is_open {
                self.request_reservation(config, now);
            }
        }
        self.clear_needs();
        Decision::Wait
    }

    /// Sums up what the scattering needs at each destination, and opens connections on first use.
    #[inline]
    fn sum_needs(&mut self, config: &Config, now: Mono, scattering: QueuedScattering) {
        let numbers = scattering.first..scattering.first + u64::from(scattering.messages);
        // All destinations are prefetched together, so that the cache misses overlap.
        let needs = numbers.clone().map(|number| self.buffer.message(number).to as usize);
        black_box(needs.fold(0, |all, to| all ^ self.peers.get(to).prefetch()));
        for number in numbers {
            let message = self.buffer.message(number);
            if message.has_failed() {
                continue;
            }
            let (to, charge) = (message.to, message.charge());
            let connection = self.peers.get_mut(to as usize);
            if connection.need == 0 {
                self.credit.destinations.push(to);
            }
            connection.need += charge;
            match connection.state {
                State::Closed => self.start_opening(config, now, to as usize),
                State::Unreachable(until) if until <= now => {
                    // A Connect delays the scattering. A presumably failed destination may do that
                    // only rarely: otherwise an application that keeps sending to it would wait
                    // again and again.
                    let is_rare = now.since_ns(until) > connection.retry_interval_ns(config);
                    match is_rare && (connection.is_presumed_failed() || connection.is_given_up()) {
                        true => self.start_opening(config, now, to as usize),
                        false => self.probe_unreachable(config, now, to as usize),
                    }
                }
                _ => {}
            }
        }
    }

    /// Charges the recorded needs to windows and reservations.
    #[inline]
    fn use_credit(&mut self, is_oldest: bool) {
        for &to in &self.credit.destinations {
            let connection = self.peers.get_mut(to as usize);
            if is_oldest {
                connection.has_waiting = false;
                connection.claimed = 0;
            }
            if connection.need > connection.window {
                connection.reservation =
                    if connection.is_local { Reservation::None } else { Reservation::InUse };
                connection.uses_reservation = true;
            } else {
                connection.sent += connection.need;
                if matches!(
                    connection.reservation,
                    Reservation::Granted(_) | Reservation::Requested(_)
                ) {
                    // Requested but not needed: released by the next probe.
                    connection.reservation = Reservation::InUse;
                }
            }
            if !connection.is_local {
                connection.in_burst += connection.need;
            }
            connection.need = 0;
        }
        self.credit.destinations.clear();
    }

    //= spec/ordering.md#R30
    fn claim(&mut self, config: &Config, now: Mono) {
        for i in 0..self.credit.destinations.len() {
            let to = self.credit.destinations[i] as usize;
            let connection = self.peers.get_mut(to);
            connection.has_waiting = connection.fit(true) != Fit::Now;
            // A message that uses a reservation waits until nothing else is in flight there: claim
            // the whole window.
            connection.claimed = connection.need.min(connection.window);
            if connection.has_waiting && connection.deadline.is_none() {
                self.arm(config, now, to);
            }
        }
    }

    fn clear_needs(&mut self) {
        for &to in &self.credit.destinations {
            self.peers.get_mut(to as usize).need = 0;
        }
        self.credit.destinations.clear();
    }

    //= spec/ordering.md#R31
    /// Requests a reservation at the first destination, by process id, that still needs one.
    fn request_reservation(&mut self, config: &Config, now: Mono) {
        let lacking = |to: &u32| {
            let connection = self.peers.get(*to as usize);
            let is_granted = matches!(connection.reservation, Reservation::Granted(len) if len >= connection.need);
            connection.need > connection.window && !is_granted
        };
        let by_id = |to: &u32| -> ProcessId { self.peers.get(*to as usize).to };
        let Some(to) = self.credit.destinations.iter().copied().filter(lacking).min_by_key(by_id)
        else {
            return;
        };
        let connection = self.peers.get_mut(to as usize);
        let need = connection.need;
        if matches!(connection.reservation, Reservation::Granted(_)) && connection.flight.is_empty()
        {
            // Too small: release it, then request another.
            return self.release_reservation(config, now, to as usize);
        }
        // One request at a time, and none while packets of an earlier reservation are in flight.
        if connection.reservation == Reservation::None && connection.flight.is_empty() {
            connection.reservation_id = connection.reservation_id.wrapping_add(1);
            connection.reservation = Reservation::Requested(need);
            if connection.is_local {
                self.local_request = Some(need);
                return;
            }
            connection.wants_connect = true;
            self.queue_signal(to as usize);
            self.arm(config, now, to as usize);
        }
    }

    //= spec/ordering.md#R39
    /// Reports every message of `scattering` that can never be sent as lost; all messages if the
    /// scattering is reliable, because it must be delivered as a whole.
    #[cold]
    fn fail_unreachable(
        &mut self,
        config: &Config,
        now: Mono,
        scattering: QueuedScattering,
        is_oldest: bool,
    ) {
        let unreachable = self.credit.destinations.iter().map(|to| self.peers.get(*to as usize));
        let reason_of = |connection: &Connection| connection.unreachable_reason(config);
        let reason = unreachable
            .filter(|connection| connection.fit(is_oldest) == Fit::Never)
            .map(reason_of)
            .next()
            .unwrap_or(FailureReason::NoAnswer);
        for index in 0..scattering.messages {
            let message = self.buffer.message(scattering.first + u64::from(index));
            let connection = self.peers.get_mut(message.to as usize);
            let is_lost =
                self.service == Service::Reliable || connection.fit(is_oldest) == Fit::Never;
            if message.has_failed() || !is_lost {
                continue;
            }
            // If a later scattering fails, the claims of the oldest stand.
            if is_oldest {
                (connection.claimed, connection.has_waiting) = (0, false);
            }
            self.fail_unsent(scattering, index, reason);
        }
        for i in 0..self.credit.destinations.len() {
            let to = self.credit.destinations[i] as usize;
            if self.peers.get(to).reservation == Reservation::Refused {
                self.peers.get_mut(to).reservation = Reservation::None;
            }
            // Only the oldest scattering has requested reservations; a failed reliable one will not
            // use them.
            if is_oldest && self.service == Service::Reliable {
                self.release_reservation(config, now, to);
            }
        }
    }

    /// Releases the reservation at `to`, granted or requested.
    fn release_reservation(&mut self, config: &Config, now: Mono, to: usize) {
        let connection = self.peers.get_mut(to);
        if !connection.has_requested_reservation() {
            return;
        }
        if connection.is_local {
            let granted = match connection.reservation {
                Reservation::Granted(len) => len,
                _ => 0,
            };
            connection.reservation = Reservation::None;
            self.local_release = Some(granted);
            self.local_request = None;
            return;
        }
        connection.reservation = Reservation::InUse;
        connection.wants_probe = connection.wants_probe.or(Some(connection.flight.base()));
        self.queue_signal(to);
        self.arm(config, now, to);
    }
}

#[cfg(test)]
mod tests;
