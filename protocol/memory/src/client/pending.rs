//! A request in flight.

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, ScatteringId};

use super::options::{Executed, MemoryError};
use crate::request::Order;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The request waits to be sent.
    Queued,
    /// The fabric has it.
    Sent,
    /// The fabric has reported its loss; the client sends it again at its deadline.
    Failed,
}

/// The batch for an owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub owner: ProcessId,
    /// Number of operations.
    pub count: usize,
    /// The encoded operations.
    pub operations: Vec<u8>,
    pub answer: Option<Result<Executed, MemoryError>>,
}

/// A request that has not completed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    pub parts: Vec<Part>,
    pub is_reliable: bool,
    pub order: Order,
    pub phase: Phase,
    /// Repetitions of the request and questions for its replies.
    pub attempts: u32,
    /// Attempts that the fabric has reported as lost.
    pub failures: u32,
    pub first_sent_at: Option<Mono>,
    pub sent_at: Option<Mono>,
    pub deadline: Option<Mono>,
    /// The last scattering, and whether that was reliable.
    pub scattering: Option<(bool, ScatteringId)>,
}

impl Pending {
    pub fn new(parts: Vec<Part>, is_reliable: bool, order: Order) -> Self {
        debug_assert!(!is_reliable || order == Order::Total, "reliable requests have one order");
        Self {
            parts,
            is_reliable,
            order,
            phase: Phase::Queued,
            attempts: 0,
            failures: 0,
            first_sent_at: None,
            sent_at: None,
            deadline: None,
            scattering: None,
        }
    }

    /// Returns the batches whose owners are awaited.
    pub fn unanswered(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.answer.is_none())
    }

    /// Returns the batches whose owners are awaited, for changes.
    pub fn unanswered_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.parts.iter_mut().filter(|part| part.answer.is_none())
    }
}
