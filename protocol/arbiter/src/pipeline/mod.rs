//! Timeslots given out by several cores.
//!
//! desk → commands → `[worker, worker, …]` → batches → desk
//!
//! Each [`Worker`] gives out every so many-th batch. What it cannot serve it hands on to the next
//! one while both work, and behind that the ledger, which says who wants what; so commands of a
//! batch go to the one worker that gives it out, and count when the ledger comes to it. All that
//! travels between them travels in order, and there is one at either end: whoever drives them needs
//! rings with one writer and one reader, and nothing else. What is given out is what one
//! [`crate::Allocator`] gives that is told the same commands (design: arbiter.md section 2).

mod allocated;
mod worker;

use core::ops::Range;

use crate::desk::{BATCH_DEMANDS_MAX, Command, FLIGHT_MAX, ORDERS_MAX};

pub use allocated::{Allocated, Refused};
pub use worker::Worker;

/// Whose command it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    workers: usize,
    next: usize,
}

impl Turn {
    /// Commands that may wait for one worker: all of a batch, so that none waits for room behind
    /// which the worker would learn that the batch is to begin.
    pub const COMMANDS_MAX: usize = BATCH_DEMANDS_MAX as usize + ORDERS_MAX + FLIGHT_MAX as usize;

    /// Of so many workers, one at least; the first is first.
    pub const fn new(workers: usize) -> Self {
        Self { workers: if workers == 0 { 1 } else { workers }, next: 0 }
    }

    /// Who gives out the next batch.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Which workers are to hear `command`: all hear what to avoid, for they choose paths.
    pub fn of(&mut self, command: &Command) -> Range<usize> {
        let own = self.next..self.next + 1;
        match command {
            Command::Demand(_) => own,
            Command::Avoid { .. } => 0..self.workers,
            Command::Batch(_) => {
                self.advance();
                own
            }
        }
    }

    /// Another one gives out the batch that comes then.
    pub fn advance(&mut self) {
        self.next = (self.next + 1) % self.workers;
    }
}
