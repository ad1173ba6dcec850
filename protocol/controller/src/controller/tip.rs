//! Comparison of the log with what processes remember of it (`docs/design/failure.md`, "What if the
//! store went back in time?").

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Instance, Mono, Now};
use onepipe_wire::{DECISION_TIP_LEN, DecisionTip};

use super::Controller;
use crate::Event;
use crate::graph::{FrozenEdge, Node, process_of};

impl Controller {
    //= spec/failure.md#R60
    /// Returns the payload of an acknowledgement: the end of the log, if it may be sent.
    pub(super) fn tip_payload(&self) -> Vec<u8> {
        let mut payload = alloc::vec![0; DECISION_TIP_LEN];
        let written = self.compared_tip().and_then(|tip| tip.write(&mut payload));
        payload.truncate(written.unwrap_or(0));
        payload
    }

    //= spec/failure.md#R60
    /// Returns the end of the log to be sent to processes; `None` until it was compared with what
    /// they know, because they would remember it instead.
    pub(super) fn compared_tip(&self) -> Option<DecisionTip> {
        self.tip().filter(|_| !self.is_comparing())
    }

    /// Whether the log is still to be compared with what processes know of it.
    pub(super) fn is_comparing(&self) -> bool {
        self.compares_until.is_some()
    }

    /// Returns the end of the log, as far as it is written; `None` unless this replica is active.
    fn tip(&self) -> Option<DecisionTip> {
        let epoch = self.active?;
        let (decided, digest) = self.decisions.end();
        Some(DecisionTip {
            epoch: epoch.0,
            decided,
            digest,
            replica: self.config.process,
            incarnation: self.config.incarnation,
        })
    }

    /// Remembers the end of this replica's own log, which a later log must contain.
    pub(super) fn remember_own_tip(&mut self) {
        if let Some(tip) = self.tip() {
            self.remember(tip);
        }
    }

    fn remember(&mut self, tip: DecisionTip) {
        if self.known_tip.is_none_or(|known| known.is_before(tip)) {
            self.known_tip = Some(tip);
        }
        assert!(self.known_tip.is_some_and(|known| !known.is_before(tip)), "what is known stays");
    }

    //= spec/failure.md#R61
    //= spec/failure.md#R62
    /// Handles the end of the log that a process knows.
    pub(super) fn on_tip(&mut self, now: Now, tip: DecisionTip) {
        // Of two replicas with one id the later one is refused, and finds that out itself.
        let is_successor =
            tip.replica == self.config.process && tip.incarnation > self.config.incarnation;
        if is_successor {
            return;
        }
        self.remember(tip);
        let Some(epoch) = self.active else { return };
        let is_other = (tip.replica, tip.incarnation)
            != (self.config.process, self.config.incarnation)
            && tip.epoch == epoch.0;
        if tip.epoch > epoch.0 || is_other || !self.contains(tip) {
            self.refuse_log(now, tip);
        }
    }

    //= spec/failure.md#R61
    /// Refuses the log with which this replica has just become active if it is older than what the
    /// replica knows. Returns whether it does.
    pub(super) fn refuse_outdated_log(&mut self, now: Now) -> bool {
        let (Some(epoch), Some(known)) = (self.active, self.known_tip) else { return false };
        // A store gives each epoch once.
        let is_outdated = known.epoch >= epoch.0 || !self.contains(known);
        is_outdated && self.refuse_log(now, known)
    }

    /// Whether the log begins with the decisions that `tip` counts.
    fn contains(&self, tip: DecisionTip) -> bool {
        self.decisions.contains(tip.decided, tip.digest)
    }

    /// Stops deciding. Returns whether it does.
    fn refuse_log(&mut self, now: Now, known: DecisionTip) -> bool {
        if makes(Mistake::OldStoreAccepted) || makes(Mistake::RefusalIgnored) {
            return false;
        }
        let Some(epoch) = self.active.take() else { return false };
        self.reset_epoch_state();
        self.notify(Event::StoreOutdated { epoch, known });
        self.schedule_evaluation(now.mono);
        true
    }

    //= spec/failure.md#R61
    /// Whether the log is still to be compared with what nodes announce: a process may know of
    /// decisions that the log lacks, and a switch may have such processes below it.
    pub(super) fn waits_for_tips(&mut self, now: Mono) -> bool {
        self.compares_until.take_if(|until| *until <= now);
        let Some(until) = self.compares_until else { return false };
        let is_announced = self.has_all_announced();
        self.compares_until = (!is_announced).then_some(until);
        !is_announced
    }

    /// Whether nodes are connected, and each node that may know something has announced itself:
    /// those that are connected, and the processes of the log that are not known to have ended. In
    /// an older log the latter are often earlier instances of processes that run; the later
    /// instance announces itself instead. If silence proves that a process has ended
    /// ([`crate::Config::silent_after_ns`] is 0), only connected nodes are awaited.
    fn has_all_announced(&self) -> bool {
        let is_certain = |entry: &&FrozenEdge| !entry.is_resolved && entry.cause.is_certain();
        let dead: BTreeSet<Instance> = (self.graph.correct_owners())
            .flat_map(|(_, node)| node.frozen.iter().filter(is_certain))
            .filter_map(|entry| entry.instance)
            .collect();
        let is_awaited = |instance, node: &Node| {
            self.config.silent_after_ns > 0
                && process_of(instance).is_some()
                && node.is_recorded
                && !self.graph.is_superseded(instance)
                && !self.decisions.has_failed(instance)
                && !dead.contains(&instance)
        };
        let is_controller = |instance| {
            process_of(instance).is_some_and(|process| self.config.controllers.contains(process))
        };
        let mut is_any_connected = false;
        for (instance, node) in self.graph.iter().filter(|(instance, _)| !is_controller(*instance))
        {
            let is_connected = self.graph.is_correct(instance);
            if node.generation.is_none() && (is_connected || is_awaited(instance, node)) {
                return false;
            }
            is_any_connected |= is_connected;
        }
        is_any_connected
    }
}
