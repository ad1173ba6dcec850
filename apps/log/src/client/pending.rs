//! An entry that is not committed yet, and what is known of it at each replica.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, Timestamp};

use crate::entry::Position;

/// What a replica has of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Known {
    /// The replica has it, and had this log up to there when it replied.
    At(Position),
    /// The replica lacks it, after all that was sent before.
    Missing,
}

/// What is known of the members that lack an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// The members that are known to lack it.
    pub lacking: BTreeSet<ProcessId>,
    /// The timestamp at which another member has it.
    pub at: Option<Timestamp>,
    /// All members lack it, so that it has no timestamp.
    pub is_lost: bool,
}

/// An entry that is not committed yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub number: u64,
    pub payload: Vec<u8>,
    pub appended_at: Mono,
    /// Number of the last request that has sent it, to each replica.
    sent: BTreeMap<ProcessId, u64>,
    known: BTreeMap<ProcessId, Known>,
    /// How often it was sent to some replica.
    attempts: u32,
}

impl Pending {
    pub fn new(number: u64, payload: Vec<u8>, appended_at: Mono) -> Self {
        let (sent, known) = (BTreeMap::new(), BTreeMap::new());
        Self { number, payload, appended_at, sent, known, attempts: 0 }
    }

    /// Returns whether the entry was sent once, so that its reply is a sample of the response time.
    pub fn is_first_attempt(&self) -> bool {
        self.attempts == 1
    }

    pub fn on_sent(&mut self, receivers: &[ProcessId], request: u64) {
        self.attempts = self.attempts.saturating_add(1);
        for receiver in receivers {
            self.sent.insert(*receiver, request);
            self.known.remove(receiver);
        }
    }

    /// Forgets what replicas have: the view has changed.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    pub fn on_position(&mut self, from: ProcessId, position: Position) {
        self.known.insert(from, Known::At(position));
    }

    /// Notes that a replica lacks the entry by its reply to a request. An earlier request than the
    /// one that has sent the entry says nothing: messages of one process arrive in the order sent,
    /// so a later one arrives after the entry, or the entry is lost.
    pub fn on_missing(&mut self, from: ProcessId, request: u64) {
        let is_later = self.sent.get(&from).is_none_or(|sent| *sent <= request);
        if is_later || makes(Mistake::AppendedTwice) {
            self.known.insert(from, Known::Missing);
        }
    }

    /// Returns the position if all members have the same.
    pub fn agreed(&self, members: impl Iterator<Item = ProcessId>) -> Option<Position> {
        let mut positions = members.map(|member| match self.known.get(&member) {
            Some(Known::At(position)) => Some(*position),
            Some(Known::Missing) | None => None,
        });
        if makes(Mistake::OneChecksumOfAll) {
            return positions.flatten().next();
        }
        let first = positions.next()??;
        positions.all(|position| position == Some(first)).then_some(first)
    }

    /// Returns which members are known to lack the entry.
    ///
    /// Unless all of them are, a member may have the entry at a timestamp, and it must not get
    /// another one.
    pub fn missing(&self, members: &BTreeSet<ProcessId>) -> Missing {
        let (mut lacking, mut at) = (BTreeSet::new(), None);
        for member in members {
            match self.known.get(member) {
                Some(Known::Missing) => {
                    lacking.insert(*member);
                }
                Some(Known::At(position)) => at = Some(position.at),
                None => {}
            }
        }
        let is_lost = lacking.len() == members.len();
        Missing { lacking, at, is_lost }
    }
}
