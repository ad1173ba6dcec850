//! The queue of unicast frames.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Psn};
use onepipe_wire::Opcode;

/// A frame to one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutgoingFrame {
    pub opcode: Opcode,
    pub to: ProcessId,
    pub psn: Psn,
    pub payload: Vec<u8>,
}

/// A bounded queue. A frame that does not fit is dropped: its receiver repeats the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SendQueue {
    frames: VecDeque<OutgoingFrame>,
}

impl SendQueue {
    /// Queues `frame`. Returns false if there are `max` already.
    pub(crate) fn push(&mut self, frame: OutgoingFrame, max: usize) -> bool {
        let has_capacity = self.frames.len() < max;
        if has_capacity {
            self.frames.push_back(frame);
        }
        has_capacity
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self, max: usize, payload_len_max: usize) {
        assert!(self.frames.len() <= max, "frames beyond the limit");
        assert!(self.frames.iter().all(|frame| frame.payload.len() <= payload_len_max));
    }

    pub(crate) fn pop(&mut self) -> Option<OutgoingFrame> {
        self.frames.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.frames.clear();
    }
}
