//! What an endpoint reports of its state: barriers, buffers, open scatterings.

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ScatteringId, Timestamp};
use onepipe_wire::Service;

use super::{Endpoint, Exclusion};
use crate::OpenScattering;

impl Endpoint {
    /// Returns the timestamp of the oldest open reliable scattering, which bounds the commit
    /// promise.
    #[inline]
    pub fn oldest_open(&self) -> Option<Timestamp> {
        self.reliable.sender.oldest_open()
    }

    /// Returns the reliable scatterings without an outcome: those that were sent by ascending
    /// timestamp, then those that wait to be sent. [`Endpoint::cancel`] ends one.
    pub fn open_scatterings(&self) -> Vec<OpenScattering> {
        self.reliable.sender.open_scatterings()
    }

    /// Returns an id below which the outcome of every scattering of a service is known, and every
    /// failure was returned by `poll_event`. Looks at all messages in flight: call it seldom.
    pub fn resolved_below(&self, service: Service) -> ScatteringId {
        self.channel(service).sender.resolved_below()
    }

    /// Sets the timestamp that the commit barrier has to pass, as the application waits for that:
    /// promises are solicited as for a reliable message. `None`: the application does not wait.
    pub fn await_commit(&mut self, above: Option<Timestamp>) {
        self.awaited_commit = above;
    }

    /// Returns the barrier: every message below it was or can be delivered. `None` before the first
    /// promise was received.
    #[inline]
    pub fn barrier(&self) -> Option<Timestamp> {
        self.link.barrier()
    }

    //= spec/failure.md#R4
    /// Returns the commit barrier: every reliable message below it was or can be delivered. `None`
    /// before the first promise was received.
    #[inline]
    pub fn commit_barrier(&self) -> Option<Timestamp> {
        let commit = match self.exclusion {
            Exclusion::Member => self.link.commit()?,
            Exclusion::Recovered(complete) | Exclusion::Finished(complete) => {
                return Some(complete);
            }
            Exclusion::Excluded(_, commit) | Exclusion::Notified(commit) => return commit,
        };
        // The received commit barrier leaves this process's own promise out, but a local message of
        // an open scattering waits for its siblings.
        let oldest = self.reliable.sender.oldest_open();
        let oldest = oldest.filter(|_| !makes(Mistake::OwnCommitIgnored));
        Some(oldest.map_or(commit, |oldest| commit.min(oldest)))
    }

    /// Returns the number of received messages that wait for the barrier, for fragments or for
    /// `poll_event`.
    #[inline]
    pub fn pending(&self) -> usize {
        self.best_effort.receiver.pending() + self.reliable.receiver.pending()
    }

    /// Returns the bytes used in the send buffers of both services, per-message charges included.
    pub fn send_buffer_bytes(&self) -> usize {
        self.best_effort.sender.buffered_bytes() + self.reliable.sender.buffered_bytes()
    }

    /// Returns the bytes used in the receive buffers of both services, per-message charges
    /// included.
    pub fn receive_buffer_bytes(&self) -> u64 {
        self.best_effort.receiver.buffered_bytes() + self.reliable.receiver.buffered_bytes()
    }

    /// Returns whether the outcome of every submitted message is known.
    pub fn is_drained(&self) -> bool {
        self.best_effort.sender.is_drained() && self.reliable.sender.is_drained()
    }
}
