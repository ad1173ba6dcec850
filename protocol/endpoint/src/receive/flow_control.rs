//! Flow control: windows, and reservations for messages that exceed a window.

use super::Receiver;
use super::remote_sender::{RemoteSender, Reservation};
use crate::Config;
use crate::stats::Stats;
use onepipe_base::{Incarnation, Mono, ProcessId, ProcessInstance, Psn};
use onepipe_wire::{Connect, Opcode, Probe, Service};

/// Stands for the local process in the reservation queue.
pub(super) const LOCAL: u32 = u32::MAX;

/// Reservation for a message of the process to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LocalReservation {
    None,
    Waiting(u64),
    Granted(u64),
}

impl Receiver {
    /// Requests a reservation for local messages, in the same queue as remote requests. Returns
    /// false if the size exceeds the limit.
    pub fn request_local_reservation(&mut self, size: u64) -> bool {
        if size > self.reservation_bytes_max {
            return false;
        }
        self.local_reservation = LocalReservation::Waiting(size);
        self.reservation_queue.push_back(LOCAL);
        self.grant_reservations();
        true
    }

    /// Releases the local reservation, of which `granted` bytes were handed to the sender.
    pub fn release_local_reservation(&mut self, granted: u64) {
        let unclaimed =
            match core::mem::replace(&mut self.local_reservation, LocalReservation::None) {
                LocalReservation::Granted(size) => size,
                LocalReservation::None | LocalReservation::Waiting(_) => 0,
            };
        self.reserved_bytes -= granted + unclaimed;
        self.reservation_queue.retain(|waiting| *waiting != LOCAL);
        self.grant_reservations();
    }

    /// Returns whether a local reservation was granted and not yet taken.
    pub fn has_local_grant(&self) -> bool {
        matches!(self.local_reservation, LocalReservation::Granted(_))
    }

    /// Takes the local reservation that was granted, once.
    pub fn take_local_grant(&mut self) -> Option<u64> {
        let LocalReservation::Granted(size) = self.local_reservation else { return None };
        self.local_reservation = LocalReservation::None;
        Some(size)
    }

    //= spec/ordering.md#R32
    /// Returns whether `charge` more bytes of this sender may be buffered, and charges them if so.
    #[inline]
    pub(super) fn admit(
        &mut self,
        peer_index: usize,
        charge: u64,
        is_reserved: bool,
        stats: &mut Stats,
    ) -> bool {
        let window = self.window;
        let sender = self.peers.get_mut(peer_index);
        let fits = if is_reserved {
            sender.use_reservation(charge)
        } else if u64::from(sender.buffered) + charge <= sender.window_bytes(window) {
            sender.buffered += charge as u32;
            true
        } else {
            false
        };
        if !fits {
            stats.window_violations += 1;
            return false;
        }
        self.buffered += charge;
        true
    }

    //= spec/ordering.md#R25
    //= spec/ordering.md#R89
    /// Handles a Connect: opens a connection that begins with the packet `base`, or requests a
    /// reservation. In a connection that is known, earlier packets may be on their way.
    pub fn on_connect(
        &mut self,
        config: &Config,
        now: Mono,
        from: ProcessInstance,
        base: Psn,
        connect: Connect,
    ) -> bool {
        let ProcessInstance { process, incarnation } = from;
        let first = || RemoteSender::new(process, incarnation, base);
        let peer_index = self.peers.index_or_insert(process, first);
        let sender = self.peers.get_mut(peer_index);
        if incarnation < sender.incarnation {
            return false;
        }
        if incarnation > sender.incarnation {
            self.close_reservation(peer_index);
            if !self.peers.get_mut(peer_index).restart(now, incarnation, base) {
                return false;
            }
        }
        self.delayed_acks.permit(connect.ack_delay_ns.into());
        let sender = self.peers.get_mut(peer_index);
        sender.touch(now);
        let is_newer = (connect.reservation_id.wrapping_sub(sender.reservation_id()) as i32) > 0;
        if is_newer {
            self.close_reservation(peer_index);
            let reservation_bytes_max = self.reservation_bytes_max;
            let sender = self.peers.get_mut(peer_index).cold_mut();
            sender.last_seen = now;
            sender.reservation_id = connect.reservation_id;
            sender.reservation = match connect.reservation_bytes {
                size if size > reservation_bytes_max => Reservation::Refused,
                size => Reservation::Waiting(size),
            };
            if sender.reservation != Reservation::Refused {
                self.reservation_queue.push_back(peer_index as u32);
                self.grant_reservations();
            }
        }
        self.reclaim_reservations(config, now);
        self.queue_ack(peer_index, Opcode::Grant);
        true
    }

    //= spec/ordering.md#R28
    //= spec/ordering.md#R88
    /// Handles a Probe: reports the state of the sender's packets.
    pub fn on_probe(&mut self, now: Mono, from: ProcessInstance, probe: Probe) -> bool {
        let ProcessInstance { process, incarnation } = from;
        let Some(peer_index) = self.peers.index_of(process) else {
            self.queue_reset(process, probe.resolved);
            return false;
        };
        let sender = self.peers.get_mut(peer_index);
        if incarnation != sender.incarnation {
            if incarnation > sender.incarnation {
                self.queue_reset(process, probe.resolved);
            }
            return false;
        }
        sender.touch(now);
        sender.tracker.advance_to(probe.resolved);
        let rejected = sender.tracker.reject_missing(probe.until);
        let is_done = (probe.reservation_done.wrapping_sub(sender.reservation_id()) as i32) >= 0;
        if is_done && sender.reservation() != Reservation::None {
            self.close_reservation(peer_index);
        }
        self.queue_ack(peer_index, if rejected > 0 { Opcode::Nak } else { Opcode::Ack });
        true
    }

    /// Handles the failure of a process up to `incarnation`: its reservation is released.
    pub fn on_gone(&mut self, process: ProcessId, incarnation: Incarnation) {
        if let Some(peer_index) = self.peers.index_of(process)
            && self.peers.get(peer_index).incarnation <= incarnation
        {
            self.close_reservation(peer_index);
        }
    }

    /// Reclaims reservations of idle senders if others wait. Never in the reliable service: packets
    /// in flight for the reservation would never be accepted, and their sender would never give up.
    /// There, controllers report failed senders.
    pub(super) fn reclaim_reservations(&mut self, config: &Config, now: Mono) {
        if self.reservation_queue.is_empty() || self.service == Service::Reliable {
            return;
        }
        for peer_index in 0..self.peers.len() {
            let Some(sender) = self.peers.get(peer_index).cold() else { continue };
            let is_idle = now.since_ns(sender.last_seen) >= config.reservation_timeout_ns;
            if is_idle && sender.reservation != Reservation::None {
                self.close_reservation(peer_index);
            }
        }
    }

    pub(super) fn close_reservation(&mut self, peer_index: usize) {
        let unused = self.peers.get_mut(peer_index).close_reservation();
        self.reserved_bytes -= unused;
        self.reservation_queue.retain(|waiting| *waiting as usize != peer_index);
        self.grant_reservations();
    }

    //= spec/ordering.md#R25
    /// Grants free capacity to waiting requests in FIFO order.
    pub(super) fn grant_reservations(&mut self) {
        while let Some(&peer_index) = self.reservation_queue.front() {
            let free = self.reservation_bytes_max - self.reserved_bytes;
            if peer_index == LOCAL {
                if let LocalReservation::Waiting(size) = self.local_reservation {
                    if size > free {
                        return;
                    }
                    self.local_reservation = LocalReservation::Granted(size);
                    self.reserved_bytes += size;
                }
                self.reservation_queue.pop_front();
                continue;
            }
            let sender = self.peers.get_mut(peer_index as usize);
            if let Reservation::Waiting(size) = sender.reservation() {
                if size > free {
                    return;
                }
                sender.cold_mut().reservation = Reservation::Granted { size, used: 0 };
                self.reserved_bytes += size;
                self.queue_ack(peer_index as usize, Opcode::Grant);
            }
            self.reservation_queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
