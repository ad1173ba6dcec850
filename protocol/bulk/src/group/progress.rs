//! Progress of objects: complete, stable or lost; and the end of the group.

use super::{ActiveObject, Group};
use crate::Memory;
use crate::config::Delivery;
use crate::event::{Event, Outcome};

impl<M: Memory> Group<M> {
    /// Processes all consequences of a change: deliveries, lost and stable objects, the end.
    pub(super) fn advance(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        debug_assert!(self.complete <= self.resolved, "a complete object is resolved");
        let before = (self.complete, self.resolved);
        while self.is_complete(self.complete) {
            self.complete += 1;
        }
        //= spec/bulk.md#R10
        while self.is_complete(self.resolved) || self.check_lost(self.resolved) {
            //= spec/bulk.md#R29
            if self.is_complete(self.resolved) && self.config.delivery == Delivery::AtOnce {
                self.deliver(self.resolved);
            }
            self.resolved += 1;
        }
        let leader = self.leader();
        if before != (self.complete, self.resolved) {
            self.queue_state(leader);
            // After a failure any survivor may become the leader.
            if !self.failures.is_empty() {
                self.queue_state_to_all();
            }
        }
        if leader == self.config.own {
            self.on_stable(self.compute_stable());
            self.try_close();
        }
    }

    fn is_complete(&self, object: u32) -> bool {
        self.get(object)
            .and_then(|active| active.object.as_ref())
            .is_some_and(|object| object.missing == 0)
    }

    /// Returns whether an object is lost. An object that only other members know can be lost, too.
    fn check_lost(&mut self, object: u32) -> bool {
        let known = self.live_peers().map(|peer| peer.known).fold(self.known, u32::max);
        if object >= known || !self.is_unrecoverable(object) {
            return false;
        }
        if !core::mem::replace(&mut self.active_mut(object).is_lost, true) {
            self.events.push_back(Event::Lost { object });
        }
        true
    }

    //= spec/bulk.md#R10
    fn deliver(&mut self, object: u32) {
        debug_assert!(self.is_complete(object), "only a complete object is delivered");
        // The root needs no event for its own objects.
        if !core::mem::replace(&mut self.active_mut(object).is_delivered, true)
            && self.config.own != 0
        {
            self.events.push_back(Event::Delivered { object });
        }
    }

    /// Returns the first object that is not known to be complete at every survivor.
    fn compute_stable(&self) -> u32 {
        let survivors = self.live_peers().count() + 1;
        //= spec/bulk.md#R29
        // A minority must not deliver: a majority may be live on the other side of a partition.
        let is_few = !self.failures.is_empty() && 2 * survivors <= self.peers.len();
        if is_few && self.config.delivery == Delivery::AllOrNone {
            return self.stable;
        }
        let stable = self.live_peers().map(|peer| peer.complete).fold(self.complete, u32::min);
        debug_assert!(stable <= self.complete, "a stable object is complete here, too");
        stable
    }

    //= spec/bulk.md#R13
    /// Handles the leader's report that all objects before `stable` are complete everywhere.
    pub(super) fn on_stable(&mut self, stable: u32) {
        // That includes this member, so a larger number is invalid.
        let stable = stable.min(self.complete);
        if stable <= self.stable || self.outcome.is_some() {
            return;
        }
        // If the maximum number of objects was active, no tokens were granted for the next one.
        let was_full = self.known - self.stable >= self.config.objects_max;
        while self.stable < stable {
            let object = self.stable;
            self.digest = self.digest_before(object + 1);
            self.deliver(object);
            debug_assert!(self.is_complete(object), "only a complete object is released");
            if let Some(active) = self.active.pop_front()
                && let Some(body) = active.object
            {
                self.events.push_back(Event::Stable { object, memory: body.memory });
            }
            self.active.push_back(ActiveObject::default());
            self.stable += 1;
        }
        if self.leader() == self.config.own {
            self.queue_state_to_all();
        }
        if was_full {
            self.queue_first_tokens();
        }
    }

    /// Returns the digest of all objects before `object`, which must be complete.
    pub(super) fn digest_before(&mut self, object: u32) -> u64 {
        debug_assert!(object <= self.complete, "only complete objects have a digest");
        let mut all = self.digest;
        for at in self.stable..object {
            let active = self.active_mut(at);
            all = match (active.digest, &mut active.object) {
                (Some(digest), _) => digest,
                (None, Some(body)) => body.chain_digest(all),
                (None, None) => all,
            };
            active.digest = Some(all);
        }
        all
    }

    //= spec/bulk.md#R28
    /// Ends the group at the leader once no object is active.
    fn try_close(&mut self) {
        let total = match self.config.own {
            0 => self.total,
            // The root has failed: only objects that a survivor knows remain.
            _ => Some(self.live_peers().map(|peer| peer.known).fold(self.known, u32::max)),
        };
        debug_assert_eq!(self.leader(), self.config.own, "only the leader decides");
        let Some(total) = total.filter(|total| self.resolved >= *total) else { return };
        let view = self.view;
        if self.live_peers().all(|peer| peer.resolved >= total && peer.view.1 == view) {
            self.close_group(self.failures.is_empty());
        }
    }

    /// Ends the group.
    pub(super) fn close_group(&mut self, is_clean: bool) {
        if self.outcome.is_some() {
            return;
        }
        (self.is_closed, self.is_clean) = (true, is_clean);
        self.release_memory();
        self.finish(if is_clean { Outcome::Complete } else { Outcome::Failed });
        self.queue_state_to_all();
    }

    /// Returns the memory of all active objects to the application, as stable or lost.
    fn release_memory(&mut self) {
        for at in 0..self.active.len() {
            let object = self.stable + at as u32;
            let Some(body) = self.active[at].object.take() else { continue };
            if body.missing == 0 && (self.active[at].is_delivered || self.config.own == 0) {
                self.events.push_back(Event::Stable { object, memory: body.memory });
            } else if !self.active[at].is_lost {
                self.events.push_back(Event::Lost { object });
            }
        }
    }
}
