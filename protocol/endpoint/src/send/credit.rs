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
use super::connection::{Fit, Room, State};
use crate::{Config, Outcome, SendFailed};

/// How many scatterings behind the oldest are looked at for overtaking.
const OVERTAKERS: usize = 16;

/// Which scatterings have been looked at since something changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credit {
    /// Scatterings at the front that are known not to fit.
    stuck: usize,
    /// Destinations of the scattering under consideration.
    touched: Vec<u32>,
}

/// A scattering that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub scattering: Queued,
    pub position: usize,
    /// Some of its messages go into room: it leaves in a burst of its own.
    pub needs_room: bool,
}

/// A scattering of one message that may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Single {
    pub id: ScatteringId,
    pub message: QueuedMessage,
    pub is_local: bool,
}

enum Verdict {
    Leaves {
        needs_room: bool,
    },
    Waits,
    /// Some of its messages can never leave and are reported: look again.
    Changed,
}

impl Credit {
    pub fn new() -> Self {
        Self { stuck: 0, touched: Vec::new() }
    }

    /// A window has opened, or a destination has gone.
    #[inline]
    pub fn reconsider(&mut self) {
        self.stuck = 0;
    }

    /// Whether there is anything to consider.
    #[inline]
    pub fn is_stuck(&self, queued: usize) -> bool {
        self.stuck >= queued.min(OVERTAKERS + 1)
    }
}

impl Sender {
    /// The first scattering that may leave. One that needs room does so only when `is_first` in
    /// its burst.
    #[inline]
    pub(super) fn admit(&mut self, config: &Config, now: Mono, is_first: bool) -> Option<Admitted> {
        while !self.credit.is_stuck(self.buffer.len()) {
            let position = self.credit.stuck;
            let scattering = self.buffer.queued(position);
            if scattering.has_left {
                self.credit.stuck += 1;
                continue;
            }
            match self.consider(config, now, position, scattering) {
                Verdict::Leaves { needs_room } if needs_room && !is_first => {
                    self.forget_needs();
                    return None;
                }
                Verdict::Leaves { needs_room } => {
                    self.grant(position == 0);
                    return Some(Admitted { scattering, position, needs_room });
                }
                Verdict::Waits => self.credit.stuck += 1,
                Verdict::Changed => {}
            }
        }
        None
    }

    /// The frequent case by a short way: the oldest scattering has one message, which fits a
    /// destination that is open. Anything else is left to [`Sender::admit`].
    #[inline]
    pub(super) fn admit_single(&mut self) -> Option<Single> {
        if self.credit.stuck != 0 {
            return None;
        }
        let (id, message) = self.buffer.oldest_single()?;
        let charge = message.charge();
        let connection = self.peers.at(message.to as usize);
        connection.need = charge;
        let fits = charge <= connection.window && connection.fit(true) == Fit::Now;
        connection.need = 0;
        if !fits || message.has_failed() {
            return None;
        }
        connection.is_waited_for = false;
        connection.claimed = 0;
        connection.sent += charge;
        let is_local = connection.is_local;
        if !is_local {
            connection.in_burst += charge;
        }
        Some(Single { id, message: *message, is_local })
    }

    /// Whether `scattering` may leave. If so, what it needs stays noted at its destinations.
    fn consider(
        &mut self,
        config: &Config,
        now: Mono,
        position: usize,
        scattering: Queued,
    ) -> Verdict {
        let is_oldest = position == 0;
        self.gather(config, now, scattering);
        let (mut fit, mut needs_room, mut is_open) = (Fit::Now, false, true);
        let mut has_lost = false;
        for at in 0..self.credit.touched.len() {
            let to = self.credit.touched[at] as usize;
            let connection = self.peers.peek(to);
            is_open &= connection.state == State::Open;
            needs_room |= connection.need > connection.window && connection.state == State::Open;
            match connection.fit(is_oldest) {
                Fit::Now => {}
                Fit::Later => fit = Fit::Later,
                Fit::Never => has_lost = true,
            }
        }
        if has_lost {
            self.fail_unreachable(config, now, scattering, is_oldest);
            self.forget_needs();
            return Verdict::Changed;
        }
        if fit == Fit::Now {
            return Verdict::Leaves { needs_room };
        }
        if is_oldest {
            self.claim(config, now);
            // Not before all windows are known: rooms are asked for in the order of process ids.
            if needs_room && is_open {
                self.ask_for_room(config, now);
            }
        }
        self.forget_needs();
        Verdict::Waits
    }

    /// Adds up what the scattering needs at each destination, and opens connections on first use.
    #[inline]
    fn gather(&mut self, config: &Config, now: Mono, scattering: Queued) {
        let numbers = scattering.first..scattering.first + u64::from(scattering.messages);
        // All destinations are fetched at once: one after the other the misses would add up.
        let needs = numbers.clone().map(|number| self.buffer.message(number).to as usize);
        black_box(needs.fold(0, |all, to| all ^ self.peers.peek(to).fetch()));
        for number in numbers {
            let message = self.buffer.message(number);
            if message.has_failed() {
                continue;
            }
            let (to, charge) = (message.to, message.charge());
            let connection = self.peers.at(to as usize);
            if connection.need == 0 {
                self.credit.touched.push(to);
            }
            connection.need += charge;
            match connection.state {
                State::Closed => self.start_opening(config, now, to as usize),
                State::Unreachable(until) if until <= now => {
                    // Who scatters to it again and again shall not wait again and again.
                    let is_rare = now.since_ns(until) > connection.pause_ns(config);
                    match is_rare && connection.is_doubted() {
                        true => self.start_opening(config, now, to as usize),
                        false => self.ask_whether_back(config, now, to as usize),
                    }
                }
                _ => {}
            }
        }
    }

    /// What was needed is now used.
    #[inline]
    fn grant(&mut self, is_oldest: bool) {
        for &to in &self.credit.touched {
            let connection = self.peers.at(to as usize);
            if is_oldest {
                connection.is_waited_for = false;
                connection.claimed = 0;
            }
            if connection.need > connection.window {
                connection.room = if connection.is_local { Room::None } else { Room::InUse };
                connection.is_roomed = true;
            } else {
                connection.sent += connection.need;
                if matches!(connection.room, Room::Granted(_) | Room::Asked(_)) {
                    // Asked for and not needed: given back with the next acknowledgement.
                    connection.room = Room::InUse;
                }
            }
            if !connection.is_local {
                connection.in_burst += connection.need;
            }
            connection.need = 0;
        }
        self.credit.touched.clear();
    }

    fn claim(&mut self, config: &Config, now: Mono) {
        for at in 0..self.credit.touched.len() {
            let to = self.credit.touched[at] as usize;
            let connection = self.peers.at(to);
            connection.is_waited_for = connection.fit(true) != Fit::Now;
            // What goes into room waits until nothing else is on the way there: claim all.
            connection.claimed = connection.need.min(connection.window);
            if connection.is_waited_for && connection.deadline.is_none() {
                self.arm(config, now, to);
            }
        }
    }

    fn forget_needs(&mut self) {
        for &to in &self.credit.touched {
            self.peers.at(to as usize).need = 0;
        }
        self.credit.touched.clear();
    }

    /// Asks the lowest destination that still lacks room for it.
    fn ask_for_room(&mut self, config: &Config, now: Mono) {
        let lacking = |to: &u32| {
            let connection = self.peers.peek(*to as usize);
            let is_granted =
                matches!(connection.room, Room::Granted(bytes) if bytes >= connection.need);
            connection.need > connection.window && !is_granted
        };
        let by_id = |to: &u32| -> ProcessId { self.peers.peek(*to as usize).to };
        let Some(to) = self.credit.touched.iter().copied().filter(lacking).min_by_key(by_id) else {
            return;
        };
        let connection = self.peers.at(to as usize);
        let need = connection.need;
        if matches!(connection.room, Room::Granted(_)) && connection.flight.is_empty() {
            // Too small: give it back, then ask anew.
            return self.give_room_back(config, now, to as usize);
        }
        // One request at a time, and none while messages of an earlier room are on the way.
        if connection.room == Room::None && connection.flight.is_empty() {
            connection.reservation_id = connection.reservation_id.wrapping_add(1);
            connection.room = Room::Asked(need);
            if connection.is_local {
                self.local_room_wanted = Some(need);
                return;
            }
            connection.wants_connect = true;
            self.queue_control(to as usize);
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
            let connection = self.peers.at(message.to as usize);
            let is_lost =
                self.service == Service::Reliable || connection.fit(is_oldest) == Fit::Never;
            if message.has_failed() || !is_lost {
                continue;
            }
            let (place, bytes) = (message.fail(), message.bytes);
            // Of a later scattering: what the oldest has claimed stays claimed.
            if is_oldest {
                (connection.claimed, connection.is_waited_for) = (0, false);
            }
            self.buffer.release(place, bytes);
            self.failures.push_back(SendFailed {
                service: self.service,
                scattering: scattering.id,
                index: (number - scattering.first) as u16,
                to: connection.to,
                timestamp: None,
                outcome: Outcome::Lost,
            });
        }
        for at in 0..self.credit.touched.len() {
            let to = self.credit.touched[at] as usize;
            if self.peers.peek(to).room == Room::Refused {
                self.peers.at(to).room = Room::None;
            }
            // Only the oldest has asked for room; of a reliable one nothing will use it.
            if is_oldest && self.service == Service::Reliable {
                self.give_room_back(config, now, to);
            }
        }
    }

    /// What was asked for at `to` is not needed.
    fn give_room_back(&mut self, config: &Config, now: Mono, to: usize) {
        let connection = self.peers.at(to);
        if !connection.is_asking_for_room() {
            return;
        }
        if connection.is_local {
            let given = match connection.room {
                Room::Granted(bytes) => bytes,
                _ => 0,
            };
            connection.room = Room::None;
            self.local_room_back = Some(given);
            self.local_room_wanted = None;
            return;
        }
        connection.room = Room::InUse;
        connection.wants_probe = connection.wants_probe.or(Some(connection.flight.base()));
        self.queue_control(to);
        self.arm(config, now, to);
    }
}

#[cfg(test)]
mod tests;
