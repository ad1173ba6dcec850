//! What one replica knows of what the other replicas of the store have stored.
//!
//! ```text
//!  a snapshot up to T waits ── AskStored(T) ──► each other replica that is up
//!  it counts               ◄── Stored(below) ── with below > T, from each of them
//! ```
//!
//! Both messages are best effort: while the snapshot waits, its replica asks those again whose
//! answer is lost or too low.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::feed::{FeedId, FeedMessage, Stored};
use crate::members::Members;
use crate::placement::Placement;
use crate::scattering::ReplicaScattering;

/// These messages belong to no feed.
const NO_FEED: FeedId = FeedId { session: 0, number: 0 };

/// What another replica has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Answer {
    sent: Timestamp,
    stored: Stored,
}

/// The questions and answers of one replica. By default the replica is alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SafePoint {
    /// This process, and where all replicas of the store are.
    of_store: Option<(ProcessId, Placement)>,
    /// The last answer of each other replica.
    answers: BTreeMap<ProcessId, Answer>,
    /// The timestamp for which a question is to be sent.
    to_ask: Option<Timestamp>,
    /// The highest timestamp that this replica awaits, or that it was asked for.
    awaited: Option<Timestamp>,
    /// The replicas that are to be answered.
    askers: BTreeSet<ProcessId>,
}

impl SafePoint {
    pub fn new(process: ProcessId, placement: Placement) -> Self {
        Self { of_store: Some((process, placement)), ..Self::default() }
    }

    /// Returns whether a process may hold a replica of the store, as far as its placement is known.
    pub fn may_hold_replica(&self, process: ProcessId) -> bool {
        let known = self.of_store.as_ref();
        known.is_none_or(|(_, placement)| placement.shard_of(process).is_some())
    }

    /// Asks, once, all other replicas whose answers do not suffice for `at`.
    pub fn await_stored(&mut self, at: Timestamp) {
        self.to_ask = self.to_ask.max(Some(at));
        self.awaited = self.awaited.max(Some(at));
    }

    /// Returns whether this replica, or another one that has asked, waits until writes at or above
    /// `below` are stored here.
    pub fn is_awaited(&self, below: Timestamp) -> bool {
        self.awaited >= Some(below)
    }

    /// Handles a message that was sent at `sent`. Returns false if the message is neither a
    /// question nor an answer.
    pub fn on_message(
        &mut self,
        sent: Timestamp,
        from: ProcessId,
        message: &FeedMessage<'_>,
    ) -> bool {
        let is_of_store = self.others().any(|other| other == from);
        match *message {
            FeedMessage::AskStored(at) if is_of_store => {
                self.awaited = self.awaited.max(Some(at));
                self.askers.insert(from);
            }
            FeedMessage::Stored(stored) if is_of_store => {
                self.answers.insert(from, Answer { sent, stored });
            }
            FeedMessage::AskStored(_) | FeedMessage::Stored(_) => {}
            _ => return false,
        }
        true
    }

    /// Returns whether all other replicas that are up, and do not catch up, are known to have
    /// stored the writes up to `at`, and each shard has such a replica. If a shard has none, a
    /// later start may have to complete its logs from others, so nothing may be dropped.
    pub fn is_stored_by_others(&self, at: Timestamp, members: &Members) -> bool {
        let Some((own, placement)) = &self.of_store else { return true };
        let has_stored = |process: &ProcessId| {
            let answer = self.answer(*process, members);
            let has_stored = answer.is_some_and(|stored| stored != Stored::Nothing);
            process == own || (members.is_up(*process) && has_stored)
        };
        let has_replica = |shard| placement.replicas(shard).iter().any(has_stored);
        let is_complete =
            self.missing(at, members).all(|(_, answer)| answer == Some(Stored::Nothing));
        is_complete && (0..placement.shards()).all(has_replica)
    }

    /// Returns the last answer of a process. An incarnation that was admitted later begins with
    /// another disk than the one that has answered.
    fn answer(&self, process: ProcessId, members: &Members) -> Option<Stored> {
        let answer = self.answers.get(&process)?;
        (Some(answer.sent) > members.admitted(process)).then_some(answer.stored)
    }

    /// Returns the other replicas that are up, and not known to have stored the writes up to `at`,
    /// with their last answers.
    fn missing(
        &self,
        at: Timestamp,
        members: &Members,
    ) -> impl Iterator<Item = (ProcessId, Option<Stored>)> {
        let up = self.others().filter(|other| members.is_up(*other));
        let answered = up.map(|other| (other, self.answer(other, members)));
        answered.filter(move |(_, answer)| match answer {
            Some(Stored::Below(below)) => *below <= at,
            Some(Stored::Nothing) | None => true,
        })
    }

    fn others(&self) -> impl Iterator<Item = ProcessId> {
        self.of_store.iter().flat_map(|(process, placement)| {
            let shards = (0..placement.shards()).map(|shard| placement.replicas(shard));
            shards.flatten().copied().filter(move |other| other != process)
        })
    }

    /// Returns the question to be sent, if there is one.
    pub fn poll_question(&mut self, members: &Members) -> Option<ReplicaScattering> {
        let at = self.to_ask.take()?;
        // One that has caught up since has another answer.
        let missing = self.missing(at, members).map(|(other, _)| other);
        scatter(missing, &FeedMessage::AskStored(at))
    }

    /// Returns the answer to be sent, if there is one. If nothing is known there is no answer, and
    /// the askers ask again.
    pub fn poll_answer(&mut self, stored: Option<Stored>) -> Option<ReplicaScattering> {
        if self.askers.is_empty() {
            return None;
        }
        let askers = core::mem::take(&mut self.askers);
        scatter(askers.into_iter(), &FeedMessage::Stored(stored?))
    }
}

/// Returns a scattering of `message` to all of `to`, if there is a receiver.
fn scatter(
    to: impl Iterator<Item = ProcessId>,
    message: &FeedMessage<'_>,
) -> Option<ReplicaScattering> {
    let payload = message.to_bytes(NO_FEED);
    let messages: Vec<_> = to.map(|to| (to, payload.clone())).collect();
    (!messages.is_empty()).then(|| ReplicaScattering::best_effort(messages))
}
