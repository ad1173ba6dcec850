//! What may be put into the receive buffer: windows, and room for messages that exceed them.

use super::Receiver;
use super::incoming::{Incoming, Room};
use crate::Config;
use crate::stats::Stats;
use onepipe_base::{Incarnation, Mono, ProcessId, Psn};
use onepipe_wire::{Connect, Opcode, Probe, Service};

/// Stands for the process itself among those who wait for room.
const LOCAL: u32 = u32::MAX;

/// Room for a message of the process to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LocalRoom {
    None,
    Waiting(u64),
    Granted(u64),
}

impl Receiver {
    /// The process asks for room at itself, in line with all others. Answers false when there is no
    /// such room.
    pub fn ask_local_room(&mut self, bytes: u64) -> bool {
        if bytes > self.room_max {
            return false;
        }
        self.local_room = LocalRoom::Waiting(bytes);
        self.room_queue.push_back(LOCAL);
        self.give_room();
        true
    }

    /// The process does not need the room that it has asked for, of which it was told that `given`
    /// bytes are its own.
    pub fn take_back_local_room(&mut self, given: u64) {
        let unclaimed = match core::mem::replace(&mut self.local_room, LocalRoom::None) {
            LocalRoom::Granted(bytes) => bytes,
            LocalRoom::None | LocalRoom::Waiting(_) => 0,
        };
        self.room_used -= given + unclaimed;
        self.room_queue.retain(|waiting| *waiting != LOCAL);
        self.give_room();
    }

    /// Whether room was given to the process itself that it has not been told of.
    pub fn has_local_room(&self) -> bool {
        matches!(self.local_room, LocalRoom::Granted(_))
    }

    /// The room that was given to the process itself, told once.
    pub fn take_local_room(&mut self) -> Option<u64> {
        let LocalRoom::Granted(bytes) = self.local_room else { return None };
        self.local_room = LocalRoom::None;
        Some(bytes)
    }

    /// Whether `charge` more bytes of this sender may be held, and if so counts them.
    #[inline]
    pub(super) fn admit(
        &mut self,
        at: usize,
        charge: u64,
        in_room: bool,
        stats: &mut Stats,
    ) -> bool {
        let window = self.window;
        let sender = self.peers.at(at);
        let fits = if in_room {
            sender.take_room(charge)
        } else if u64::from(sender.held) + charge <= sender.window_bytes(window) {
            sender.held += charge as u32;
            true
        } else {
            false
        };
        if !fits {
            stats.window_violations += 1;
            return false;
        }
        self.held += charge;
        true
    }

    /// A sender opens a connection or asks for room.
    pub fn on_connect(
        &mut self,
        config: &Config,
        now: Mono,
        from: (ProcessId, Incarnation),
        base: Psn,
        connect: Connect,
    ) -> bool {
        let (process, incarnation) = from;
        let first = || Incoming::new(process, incarnation, base);
        let at = self.peers.meet(process, first);
        let sender = self.peers.at(at);
        if incarnation < sender.incarnation {
            return false;
        }
        if incarnation > sender.incarnation {
            self.close_room(at);
            if !self.peers.at(at).begin_life(now, incarnation, base) {
                return false;
            }
        } else {
            sender.tracker.settle_forward(base);
        }
        let sender = self.peers.at(at);
        sender.hear(now);
        let is_newer = (connect.reservation_id.wrapping_sub(sender.reservation_id()) as i32) > 0;
        if is_newer {
            self.close_room(at);
            let room_max = self.room_max;
            let sender = self.peers.at(at).rare_mut();
            sender.heard = now;
            sender.reservation_id = connect.reservation_id;
            sender.room = match connect.reservation_bytes {
                bytes if bytes > room_max => Room::Refused,
                bytes => Room::Waiting(bytes),
            };
            if sender.room != Room::Refused {
                self.room_queue.push_back(at as u32);
                self.give_room();
            }
        }
        self.reclaim_room(config, now);
        self.answer_now(at, Opcode::Grant);
        true
    }

    /// A sender asks what became of its packets.
    pub fn on_probe(&mut self, now: Mono, from: (ProcessId, Incarnation), probe: Probe) -> bool {
        let Some(at) = self.peers.find(from.0) else {
            self.on_unknown(from.0, probe.resolved);
            return false;
        };
        let sender = self.peers.at(at);
        if from.1 != sender.incarnation {
            if from.1 > sender.incarnation {
                self.on_unknown(from.0, probe.resolved);
            }
            return false;
        }
        sender.hear(now);
        sender.tracker.settle_forward(probe.resolved);
        let fenced = sender.tracker.fence_missing(probe.until);
        let is_done = (probe.reservation_done.wrapping_sub(sender.reservation_id()) as i32) >= 0;
        if is_done && sender.room() != Room::Closed {
            self.close_room(at);
        }
        self.answer_now(at, if fenced > 0 { Opcode::Nak } else { Opcode::Ack });
        true
    }

    /// A process is known to be gone in lives up to `incarnation`: nobody waits for what it has
    /// asked for.
    pub fn on_gone(&mut self, process: ProcessId, incarnation: Incarnation) {
        if let Some(at) = self.peers.find(process)
            && self.peers.peek(at).incarnation <= incarnation
        {
            self.close_room(at);
        }
    }

    /// Takes room back that is kept by a process not heard of for long, if others wait for room.
    /// Not in the reliable service: what is on the way into it would never be taken, and its sender
    /// would never give it up. There, controllers say who is gone.
    pub(super) fn reclaim_room(&mut self, config: &Config, now: Mono) {
        if self.room_queue.is_empty() || self.service == Service::Reliable {
            return;
        }
        for at in 0..self.peers.len() {
            let Some(sender) = self.peers.peek(at).rare() else { continue };
            let is_silent = now.since_ns(sender.heard) >= config.room_timeout_ns;
            if is_silent && sender.room != Room::Closed {
                self.close_room(at);
            }
        }
    }

    pub(super) fn close_room(&mut self, at: usize) {
        let unused = self.peers.at(at).close_room();
        self.room_used -= unused;
        self.room_queue.retain(|waiting| *waiting as usize != at);
        self.give_room();
    }

    /// Gives free room to those who wait, first come first served.
    pub(super) fn give_room(&mut self) {
        while let Some(&at) = self.room_queue.front() {
            let free = self.room_max - self.room_used;
            if at == LOCAL {
                if let LocalRoom::Waiting(bytes) = self.local_room {
                    if bytes > free {
                        return;
                    }
                    self.local_room = LocalRoom::Granted(bytes);
                    self.room_used += bytes;
                }
                self.room_queue.pop_front();
                continue;
            }
            let sender = self.peers.at(at as usize);
            if let Room::Waiting(bytes) = sender.room() {
                if bytes > free {
                    return;
                }
                sender.rare_mut().room = Room::Open { granted: bytes, arrived: 0 };
                self.room_used += bytes;
                self.answer_now(at as usize, Opcode::Grant);
            }
            self.room_queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
