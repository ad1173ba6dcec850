//! The results of a client's requests that it may ask for again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_base::mistake::{Mistake, makes};

/// The reliable requests of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// The last session of the process.
    pub session: u64,
    /// All requests below this number have completed.
    floor: u64,
    /// Encoded replies by the number of the request.
    pub results: BTreeMap<u64, Vec<u8>>,
    /// Timestamp of the last request.
    pub last_at: Timestamp,
}

/// What an owner does with a reliable request.
pub enum Step {
    /// The owner executes it.
    New,
    /// The owner has executed it, and repeats this reply.
    Repeated(Vec<u8>),
    /// The owner drops it: its client needs no reply.
    Stale,
    /// The owner refuses it: too many results are remembered.
    Full,
}

impl Session {
    pub fn new(session: u64, at: Timestamp) -> Self {
        Self { session, floor: 0, results: BTreeMap::new(), last_at: at }
    }

    /// Decides on a request. `results_max` limits the results that are remembered.
    pub fn step(
        &mut self,
        at: Timestamp,
        (session, number, finished): (u64, u64, u64),
        results_max: usize,
    ) -> Step {
        if session < self.session {
            return Step::Stale;
        }
        if session > self.session {
            *self = Self::new(session, at);
        }
        self.last_at = at;
        // Only reliable requests raise the floor: all owners of a request have received the same
        // ones before, so that all of them drop a request or none.
        self.floor = self.floor.max(finished);
        self.results = self.results.split_off(&self.floor);
        if number < self.floor {
            return Step::Stale;
        }
        match self.results.get(&number) {
            Some(reply) if !makes(Mistake::BatchExecutedTwice) => Step::Repeated(reply.clone()),
            None if self.results.len() >= results_max => Step::Full,
            _ => Step::New,
        }
    }
}
