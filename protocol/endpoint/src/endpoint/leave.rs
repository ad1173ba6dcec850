//! Leaving the fabric: resolve, announce, hand back.

use onepipe_base::{Backoff, Instance, Mono, Now, Timestamp, Transmit, Verdict};
use onepipe_wire::{Header, Opcode, Service};

use super::Endpoint;
use crate::{Event, Links, ReceiveMode};

/// Fraction of the link timeout that is the longest interval between two Leaves.
const LEAVES_PER_TIMEOUT: u64 = 8;

/// How far this process is in leaving.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leave {
    Active,
    /// Accepts nothing new, and waits until everything sent and received is resolved.
    Resolving,
    /// Repeats the Leave until the switch acknowledges it, and until this time at the latest: then
    /// the switch has found the link idle.
    Announcing(Backoff, Option<Mono>),
    /// Hands back what cannot be resolved in time, and sends one Leave, if it has a switch.
    HandingBack {
        is_announced: bool,
    },
    Left {
        is_acknowledged: bool,
    },
}

impl Endpoint {
    //= spec/ordering.md#R38
    //= spec/ordering.md#R56
    /// Leaves the fabric: refuses new scatterings and new messages of others, waits until the
    /// outcome of every submitted message is known and every received one is delivered, recalled or
    /// discarded, then sends Leave, so that no barrier waits for this process.
    pub fn leave(&mut self) {
        if self.leave == Leave::Active {
            self.leave = Leave::Resolving;
            self.best_effort.receiver.refuse_new();
            self.reliable.receiver.refuse_new();
        }
    }

    /// Returns whether this process has left: the switch has acknowledged its Leave, or had the
    /// time to find the link idle.
    pub fn has_left(&self) -> bool {
        match self.leave {
            Leave::Left { .. } => true,
            Leave::HandingBack { is_announced } => is_announced && !self.has_undelivered(),
            Leave::Active | Leave::Resolving | Leave::Announcing(..) => false,
        }
    }

    /// Returns whether this process has left without an acknowledgement of the switch: what it sent
    /// last may be discarded at its receivers.
    pub fn is_leave_unacknowledged(&self) -> bool {
        self.leave == Leave::Left { is_acknowledged: false }
    }

    /// Returns whether nothing is in flight any more: the outcome of every submitted message is
    /// known, and every message acknowledged to others was delivered, recalled or discarded.
    pub fn is_resolved(&self) -> bool {
        self.is_drained() && !self.has_undelivered() && !self.reliable.receiver.awaits_recalls()
    }

    /// Returns whether a message that was received is not delivered yet.
    fn has_undelivered(&self) -> bool {
        self.pending() > 0 || self.best_effort.is_staged() || self.reliable.is_staged()
    }

    //= spec/ordering.md#R58
    /// Ends a leave that is not complete in time: the messages that were acknowledged and cannot be
    /// delivered follow as [`crate::Event::Undelivered`], in their order.
    pub fn hand_back(&mut self) {
        if matches!(self.leave, Leave::Resolving | Leave::Active) {
            self.leave = Leave::HandingBack { is_announced: false };
            let Some(end) = self.end_of_received() else { return };
            for channel in [&mut self.best_effort, &mut self.reliable] {
                // Incomplete messages: their senders know that they were not delivered.
                channel.receiver.on_barrier(end);
            }
        }
    }

    /// Returns whether messages are handed back.
    #[inline]
    pub(super) fn is_handing_back(&self) -> bool {
        matches!(self.leave, Leave::HandingBack { .. })
    }

    /// Returns the next message in the order: delivered if the barrier permits that, otherwise
    /// handed back.
    #[cold]
    pub(super) fn next_handed_back(&mut self) -> Option<Event> {
        let delivery = self.next_in_order(self.end_of_received()?)?;
        let barrier = match (self.config.receive_mode, delivery.service) {
            (ReceiveMode::Merged, _) => self.link.barrier().min(self.commit_barrier()),
            (ReceiveMode::Separate, Service::BestEffort) => self.link.barrier(),
            (ReceiveMode::Separate, Service::Reliable) => self.commit_barrier(),
        };
        if Some(delivery.timestamp) < barrier {
            self.stats.messages_delivered += 1;
            return Some(Event::Delivered(delivery));
        }
        Some(Event::Undelivered(delivery))
    }

    /// Returns a timestamp above those of all messages received, and no barrier is above it. `None`
    /// if nothing was received.
    fn end_of_received(&self) -> Option<Timestamp> {
        let newest = self.best_effort.receiver.newest().max(self.reliable.receiver.newest())?;
        let barrier = self.link.barrier().max(self.commit_barrier());
        Some(newest).max(barrier).map(|newest| newest.wrapping_add_ns(1))
    }

    #[inline]
    pub(super) fn is_announcing_leave(&self) -> bool {
        matches!(self.leave, Leave::Announcing(..) | Leave::HandingBack { .. })
    }

    /// Returns whether a leaving process has an acknowledgement or its Leave frame to send now.
    #[cold]
    pub(super) fn has_final_frame(&self) -> bool {
        match self.leave {
            Leave::Resolving => {
                self.is_resolved()
                    || !self.is_member()
                    || self.best_effort.receiver.has_delayed_acks()
            }
            Leave::HandingBack { is_announced } => !is_announced,
            Leave::Active | Leave::Announcing(..) | Leave::Left { .. } => false,
        }
    }

    //= spec/ordering.md#R57
    /// Sends the first Leave. In a mesh, or where no switch was ever seen, nothing answers it.
    #[cold]
    pub(super) fn announce_leave(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.config.links == Links::Mesh {
            self.leave = Leave::Left { is_acknowledged: true };
            return None;
        }
        if !self.link.has_been_up() {
            self.leave = Leave::Left { is_acknowledged: true };
            return Some(self.poll_link_frame(now, slot, Opcode::Leave));
        }
        let (first_ns, timeout_ns) =
            (self.config.probe_timeout_min_ns, self.config.link_timeout_ns);
        let mut backoff = Backoff::new(first_ns, timeout_ns.max(first_ns) / LEAVES_PER_TIMEOUT);
        backoff.on_change(now.mono);
        let until =
            (timeout_ns > 0).then(|| now.mono.after_ns(self.link.idle_timeout_ns(&self.config)));
        self.leave = Leave::Announcing(backoff, until);
        self.poll_leave(now, slot)
    }

    /// Returns the Leave if it is due. Nothing else is sent any more.
    #[cold]
    pub(super) fn poll_leave(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let is_due = match &mut self.leave {
            Leave::Announcing(backoff, until) => {
                if until.is_some_and(|until| until <= now.mono) {
                    self.leave = Leave::Left { is_acknowledged: false };
                    return None;
                }
                if self.link.take_join(&self.config, now.mono) {
                    // The switch was lost, and accepts a Leave of a known neighbour only.
                    return Some(self.poll_link_frame(now, slot, Opcode::Join));
                }
                backoff.take(now.mono)
            }
            Leave::HandingBack { is_announced } => {
                let is_first = !core::mem::replace(is_announced, true);
                is_first && self.config.links != Links::Mesh
            }
            Leave::Active | Leave::Resolving | Leave::Left { .. } => false,
        };
        is_due.then(|| self.poll_link_frame(now, slot, Opcode::Leave))
    }

    pub(super) fn leave_deadline(&self) -> Option<Mono> {
        match &self.leave {
            Leave::Announcing(backoff, until) => {
                let due = Mono::earlier(backoff.due(), *until);
                Mono::earlier(due, self.link.join_due())
            }
            _ => None,
        }
    }

    //= spec/ordering.md#R57
    /// Handles the acknowledgement of a Leave. Its promises raise nothing.
    #[cold]
    pub(super) fn on_leave_ack(&mut self, header: &Header) -> Verdict {
        let own: Instance = self.config.instance();
        if !matches!(self.leave, Leave::Announcing(..)) || header.peer() != Some(own) {
            self.stats.frames_stale += 1;
            return Verdict::Dropped;
        }
        self.leave = Leave::Left { is_acknowledged: true };
        Verdict::Consumed
    }
}
