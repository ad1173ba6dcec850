//! Refuses new messages while this process leaves.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::{Frame, Opcode, Service};

use super::Receiver;
use super::measure::messages;

/// Messages refused so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Refusal {
    pub is_active: bool,
    /// Refused reliable scatterings whose recall has not arrived. Their senders wait until this
    /// process acknowledges the recall.
    awaited: alloc::vec::Vec<(ProcessId, Timestamp)>,
}

impl Refusal {
    /// Returns the number of recalls that have yet to arrive.
    pub fn awaited_len(&self) -> usize {
        self.awaited.len()
    }
}

/// Limit on recalls that a leaving process waits for.
pub(super) const AWAITED_MAX: usize = 4096;

impl Receiver {
    /// Refuses every message that arrives from now on.
    pub fn refuse_new(&mut self) {
        self.refusal.is_active = true;
    }

    /// Returns whether the recall of a refused scattering has yet to arrive.
    pub fn awaits_recalls(&self) -> bool {
        !self.refusal.awaited.is_empty()
    }

    //= spec/ordering.md#R56
    /// Refuses a packet: its sender reports the messages as lost, and recalls reliable scatterings.
    #[cold]
    pub(super) fn refuse(&mut self, peer_index: usize, timestamp: Timestamp, frame: &Frame<'_>) {
        self.reject(peer_index, frame.header.psn());
        if self.service == Service::BestEffort {
            return;
        }
        let from = frame.header.src();
        if frame.opcode.in_best_effort() == Opcode::Fragment {
            return self.await_recall(from, timestamp);
        }
        for message in messages(frame).flatten() {
            self.await_recall(from, timestamp.wrapping_add_ns(u64::from(message.delta_ns)));
        }
    }

    fn await_recall(&mut self, from: ProcessId, timestamp: Timestamp) {
        let awaited = &mut self.refusal.awaited;
        if awaited.len() < AWAITED_MAX && !awaited.contains(&(from, timestamp)) {
            awaited.push((from, timestamp));
        }
    }

    /// Notes that a scattering was recalled.
    pub(super) fn on_recalled(&mut self, from: ProcessId, timestamp: Timestamp) {
        self.refusal.awaited.retain(|known| *known != (from, timestamp));
    }

    /// Notes that a process will recall nothing more, because it has failed or has left.
    pub fn on_recalls_ended(&mut self, process: ProcessId) {
        self.refusal.awaited.retain(|(from, _)| *from != process);
    }
}
