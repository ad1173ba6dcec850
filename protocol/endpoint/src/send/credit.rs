//! Which waiting scattering may leave.
//!
//! A scattering leaves when all its messages fit the windows of their destinations. The oldest one
//! claims what it needs everywhere and keeps the claim while it waits, so a large scattering is
//! not starved by small ones; later ones may overtake it as far as its claims leave room
//! (ordering.md section 4, "no live-lock"). Only the oldest claims, and it asks for room at its
//! destinations one after the other by ascending process id: no two scatterings, of one sender or
//! of several, can wait for each other.

use alloc::vec::Vec;
use core::hint::black_box;

use onepipe_base::{Mono, ProcessId, ScatteringId};
use onepipe_wire::Service;

use super::Sender;
use super::buffer::{Queued, QueuedMessage};
use super::connection::{Fit, Reservation, State};
use crate::{Config, Outcome, SendFailed};

/// How many scatterings behind the oldest are looked at for overtaking.
const OVERTAKERS_MAX: usize = 16;

/// Which scatterings have been looked at since something changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credit {
    /// Scatterings at the front that are known not to fit.
    blocked: usize,
    /// Destinations of the scattering under consideration.
    destinations: Vec<u32>,
}

/// A scattering that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub scattering: Queued,
    pub position: usize,
    /// Some of its messages go into room: it leaves in a burst of its own.
    pub needs_reservation: bool,
}

/// A scattering of one message that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SingleMessage {
    pub id: ScatteringId,
    pub message: QueuedMessage,
    pub is_local: bool,
}

enum Decision {
    Admit {
        needs_reservation: bool,
    },
    Wait,
    /// Some of its messages can never leave and are reported: look again.
    Retry,
}

impl Credit {
    pub fn new() -> Self {
        Self { blocked: 0, destinations: Vec::new() }
    }

    /// A window has opened, or a destination has gone.
    #[inline]
    pub fn reconsider(&mut self) {
        self.blocked = 0;
    }

    /// Whether there is anything to consider.
    #[inline]
    pub fn is_blocked(&self, queued: usize) -> bool {
        self.blocked >= queued.min(OVERTAKERS_MAX + 1)
    }
}

impl Sender {
    /// The first scattering that may leave. One that needs room does so only when `is_first` in
    /// its burst.
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

    /// The frequent case by a short way: the oldest scattering has one message, which fits a
    /// destination that is open. Anything else is left to [`Sender::admit`].
    #[inline]
    pub(super) fn admit_single(&mut self) -> Option<SingleMessage> {
        if self.credit.blocked != 0 {
            return None;
        }
        let (id, message) = self.buffer.oldest_single()?;
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
        Some(SingleMessage { id, message: *message, is_local })
    }

    /// Whether `scattering` may leave. If so, what it needs stays noted at its destinations.
    fn consider(
        &mut self,
        config: &Config,
        now: Mono,
        position: usize,
        scattering: Queued,
    ) -> Decision {
        let is_oldest = position == 0;
        self.sum_needs(config, now, scattering);
        let (mut fit, mut needs_reservation, mut is_open) = (Fit::Now, false, true);
        let mut has_lost = false;
        for at in 0..self.credit.destinations.len() {
            let to = self.credit.destinations[at] as usize;
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
            // Not before all windows are known: rooms are asked for in the order of process ids.
            if needs_reservation && is_open {
                self.request_reservation(config, now);
            }
        }
        self.clear_needs();
        Decision::Wait
    }

    /// Adds up what the scattering needs at each destination, and opens connections on first use.
    #[inline]
    fn sum_needs(&mut self, config: &Config, now: Mono, scattering: Queued) {
        let numbers = scattering.first..scattering.first + u64::from(scattering.messages);
        // All destinations are fetched at once: one after the other the misses would add up.
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
                    // Who scatters to it again and again shall not wait again and again.
                    let is_rare = now.since_ns(until) > connection.retry_interval_ns(config);
                    match is_rare && connection.is_presumed_failed() {
                        true => self.start_opening(config, now, to as usize),
                        false => self.probe_unreachable(config, now, to as usize),
                    }
                }
                _ => {}
            }
        }
    }

    /// What was needed is now used.
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
                    // Asked for and not needed: given back with the next acknowledgement.
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

    fn claim(&mut self, config: &Config, now: Mono) {
        for at in 0..self.credit.destinations.len() {
            let to = self.credit.destinations[at] as usize;
            let connection = self.peers.get_mut(to);
            connection.has_waiting = connection.fit(true) != Fit::Now;
            // What goes into room waits until nothing else is on the way there: claim all.
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

    /// Asks the lowest destination that still lacks room for it.
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
            // Too small: give it back, then ask anew.
            return self.release_reservation(config, now, to as usize);
        }
        // One request at a time, and none while messages of an earlier room are on the way.
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

    /// Reports every message of `scattering` that can never leave as lost: it was never sent. Of a
    /// reliable one, all: all its receivers deliver it, or none.
    #[cold]
    fn fail_unreachable(
        &mut self,
        config: &Config,
        now: Mono,
        scattering: Queued,
        is_oldest: bool,
    ) {
        for number in scattering.first..scattering.first + u64::from(scattering.messages) {
            let message = self.buffer.message_mut(number);
            let connection = self.peers.get_mut(message.to as usize);
            let is_lost =
                self.service == Service::Reliable || connection.fit(is_oldest) == Fit::Never;
            if message.has_failed() || !is_lost {
                continue;
            }
            let (payload_ref, len) = (message.fail(), message.len);
            // Of a later scattering: what the oldest has claimed stays claimed.
            if is_oldest {
                (connection.claimed, connection.has_waiting) = (0, false);
            }
            self.buffer.release(payload_ref, len);
            self.failures.push_back(SendFailed {
                service: self.service,
                scattering: scattering.id,
                index: (number - scattering.first) as u16,
                to: connection.to,
                timestamp: None,
                outcome: Outcome::Lost,
            });
        }
        for at in 0..self.credit.destinations.len() {
            let to = self.credit.destinations[at] as usize;
            if self.peers.get(to).reservation == Reservation::Refused {
                self.peers.get_mut(to).reservation = Reservation::None;
            }
            // Only the oldest has asked for room; of a reliable one nothing will use it.
            if is_oldest && self.service == Service::Reliable {
                self.release_reservation(config, now, to);
            }
        }
    }

    /// What was asked for at `to` is not needed.
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
