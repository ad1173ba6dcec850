//! Progress of objects: complete, stable or lost; and the end of the group.

use super::{ActiveObject, Group};
use crate::Memory;
use crate::config::Delivery;
use crate::event::{Event, Outcome};
use crate::peer::Peer;

impl<M: Memory> Group<M> {
    /// Processes all consequences of a change: deliveries, lost and stable objects, the end.
    pub(super) fn advance(&mut self) {
        if self.membership.is_over() {
            return;
        }
        let before = (self.window.complete(), self.window.resolved());
        self.window.advance_complete();
        //= spec/bulk.md#R10
        while let object = self.window.resolved()
            && (self.window.is_complete(object) || self.check_lost(object))
        {
            //= spec/bulk.md#R29
            if self.window.is_complete(object) && self.config.delivery == Delivery::AtOnce {
                self.deliver(object);
            }
            self.window.resolve();
        }
        let leader = self.membership.leader();
        if before != (self.window.complete(), self.window.resolved()) {
            self.peers.queue_state(leader);
            // After a failure any survivor may become the leader.
            if self.membership.has_failures() {
                self.peers.queue_state_to_all();
            }
        }
        if leader == self.config.own {
            self.on_stable(self.compute_stable());
            self.try_close();
        }
    }

    /// Returns whether an object is lost. An object that only other members know can be lost, too.
    fn check_lost(&mut self, object: u32) -> bool {
        if object >= self.known_to_survivors() || !self.is_unrecoverable(object) {
            return false;
        }
        if self.window.get_mut(object).is_some_and(ActiveObject::lose) {
            self.events.push_back(Event::Lost { object });
        }
        true
    }

    /// Returns the number of objects that any survivor knows.
    fn known_to_survivors(&self) -> u32 {
        let live_peers = self.peers.live(&self.membership);
        live_peers.map(|peer| peer.known).fold(self.window.known(), u32::max)
    }

    //= spec/bulk.md#R10
    fn deliver(&mut self, object: u32) {
        if self.window.deliver(object) {
            self.events.push_back(Event::Delivered { object });
        }
    }

    /// Returns the first object that is not known to be complete at every survivor.
    fn compute_stable(&self) -> u32 {
        let survivors = self.peers.live(&self.membership).count() + 1;
        //= spec/bulk.md#R29
        // A minority must not deliver: a majority may be live on the other side of a partition.
        let is_few = self.membership.has_failures() && 2 * survivors <= self.peers.len() as usize;
        if is_few && self.config.delivery == Delivery::AllOrNone {
            return self.window.stable();
        }
        let live_peers = self.peers.live(&self.membership);
        let stable = live_peers.map(|peer| peer.complete).fold(self.window.complete(), u32::min);
        debug_assert!(stable <= self.window.complete(), "a stable object is complete here, too");
        stable
    }

    //= spec/bulk.md#R13
    /// Handles the leader's report that all objects before `stable` are complete everywhere.
    pub(super) fn on_stable(&mut self, stable: u32) {
        // That includes this member, so a larger number is invalid.
        let stable = stable.min(self.window.complete());
        if stable <= self.window.stable() || self.membership.is_over() {
            return;
        }
        // If the maximum number of objects was active, no tokens were granted for the next one.
        let was_full = self.window.is_full();
        while self.window.stable() < stable {
            let object = self.window.stable();
            self.deliver(object);
            if let Some(memory) = self.window.release_first() {
                self.events.push_back(Event::Stable { object, memory });
            }
        }
        if self.membership.is_leader() {
            self.peers.queue_state_to_all();
        }
        if was_full {
            self.queue_first_tokens();
        }
    }

    //= spec/bulk.md#R28
    /// Ends the group at the leader once no object is active.
    fn try_close(&mut self) {
        let total = match self.config.own {
            0 => self.window.total(),
            // The root has failed: only objects that a survivor knows remain.
            _ => Some(self.known_to_survivors()),
        };
        debug_assert!(self.membership.is_leader(), "only the leader decides");
        let Some(total) = total.filter(|total| self.window.resolved() >= *total) else { return };
        let view = self.membership.view();
        let is_resolved = |peer: &Peer| peer.resolved >= total && peer.view.1 == view;
        if self.peers.live(&self.membership).all(is_resolved) {
            self.close_group(!self.membership.has_failures());
        }
    }

    /// Ends the group.
    pub(super) fn close_group(&mut self, is_clean: bool) {
        if self.membership.is_over() {
            return;
        }
        // The application gets the memory of all active objects back.
        for object in self.window.range() {
            self.events.extend(self.window.release(object));
        }
        self.finish(if is_clean { Outcome::Complete } else { Outcome::Failed });
        self.peers.queue_state_to_all();
    }
}
