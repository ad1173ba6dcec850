//! When the snapshot of a replica may replace records.

use alloc::boxed::Box;

use onepipe_base::{ProcessId, Timestamp};

use crate::State;
use crate::feed::{Feed, Stored};
use crate::placement::Placement;
use crate::replica::Replica;
use crate::safe_point::SafePoint;
use crate::scattering::ReplicaScattering;

impl<S: State> Replica<S> {
    /// Sets the process of this replica, and where the other replicas of the store are: their logs
    /// may need the records of this one. Without that the replica is alone.
    #[must_use]
    pub fn with_placement(self, process: ProcessId, placement: Placement) -> Self {
        Self { safe_point: Box::new(SafePoint::new(process, placement)), ..self }
    }

    /// Asks the other replicas whether they have stored the writes up to `at`. Their answers, and
    /// the question itself, may be lost, or come too early: the driver calls this about ten times a
    /// second while [`Replica::stored_by_all`] returns false.
    pub fn await_stored(&mut self, at: Timestamp) {
        self.safe_point.await_stored(at);
    }

    /// Asks the other replicas whether they have stored what is in the images that replicas which
    /// catch up have asked for. The driver of a durable replica calls this about ten times a
    /// second.
    pub fn await_stored_images(&mut self) {
        let unsent = self.feeds.iter().filter_map(Feed::unsent_image).max();
        if let Some(at) = unsent.filter(|_| self.options.is_durable) {
            self.await_stored(at);
        }
    }

    /// Returns whether no other log needs the records up to `at`: this replica and all others of
    /// all shards that are up and serve have stored the writes up to there, as far as they have
    /// answered, and each shard has such a replica.
    pub fn stored_by_all(&self, at: Timestamp) -> bool {
        self.stored_below().is_some_and(|below| below > at)
            && self.safe_point.is_stored_by_others(at, &self.members)
    }

    /// Returns whether this replica or another one waits until more is stored here, so that the
    /// driver is to sync the log if its policy does not do so by itself.
    pub fn is_sync_awaited(&self) -> bool {
        self.stored_below().is_some_and(|below| self.safe_point.is_awaited(below))
    }

    /// Returns the next message about what is stored.
    pub(super) fn poll_stored(&mut self) -> Option<ReplicaScattering> {
        let answer = self.safe_point.poll_answer(match self.catch_up {
            Some(_) => Some(Stored::Nothing),
            None => self.stored_below().map(Stored::Below),
        });
        answer.or_else(|| self.safe_point.poll_question(&self.members))
    }
}
