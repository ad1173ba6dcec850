//! The epoch of a replica, and the comparison of its log with what others remember of it
//! (`docs/design/failure.md`, "What if the store went back in time?").

use alloc::collections::BTreeSet;

use onepipe_base::{Instance, Mono};
use onepipe_wire::DecisionTip;

use crate::decisions::DecisionLog;
use crate::graph::{FrozenEdge, Graph, Node, process_of};
use crate::{Config, Epoch};

/// Whether a replica decides, and what it knows of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Term {
    role: Role,
    /// The latest end of the log that this replica has had itself or was announced to it.
    known: Option<DecisionTip>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Role {
    /// The replica receives only.
    #[default]
    Standby,
    /// The replica is active, but has yet to compare the log with what processes know of it.
    Comparing {
        epoch: Epoch,
        /// Until when decisions wait for processes that have not announced themselves.
        until: Mono,
    },
    /// The replica decides.
    Deciding { epoch: Epoch },
}

impl Term {
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self, decisions: &DecisionLog) {
        if let (Some(epoch), Some(known)) = (self.epoch(), self.known) {
            assert!(known.epoch <= epoch.0, "a later epoch is known");
            let is_contained = decisions.contains(known.decided, known.digest);
            assert!(is_contained, "the log lacks decisions that this replica knows of");
        }
    }

    /// Returns the epoch in which this replica is active.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        match self.role {
            Role::Standby => None,
            Role::Comparing { epoch, .. } | Role::Deciding { epoch } => Some(epoch),
        }
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.role != Role::Standby
    }

    /// Whether the log is still to be compared with what processes know of it.
    #[inline]
    pub(crate) fn is_comparing(&self) -> bool {
        matches!(self.role, Role::Comparing { .. })
    }

    /// Makes the replica active in `epoch`. Decisions wait until `until` for processes that do not
    /// announce themselves.
    pub(crate) fn start(&mut self, epoch: Epoch, until: Mono) {
        assert!(!self.is_active(), "the previous epoch has ended");
        self.role = Role::Comparing { epoch, until };
    }

    /// Ends the epoch. Returns which one it was.
    pub(crate) fn end(&mut self) -> Option<Epoch> {
        let epoch = self.epoch();
        self.role = Role::Standby;
        epoch
    }

    /// Returns the end of the log, as far as it is written; `None` unless this replica is active.
    fn tip(&self, config: &Config, decisions: &DecisionLog) -> Option<DecisionTip> {
        let epoch = self.epoch()?.0;
        let (decided, digest) = decisions.end();
        let (replica, incarnation) = (config.process, config.incarnation);
        Some(DecisionTip { epoch, decided, digest, replica, incarnation })
    }

    //= spec/failure.md#R60
    /// Returns the end of the log to be sent to processes; `None` until it was compared with what
    /// they know, because they would remember it instead.
    pub(crate) fn compared_tip(
        &self,
        config: &Config,
        decisions: &DecisionLog,
    ) -> Option<DecisionTip> {
        self.tip(config, decisions).filter(|_| !self.is_comparing())
    }

    /// Remembers the end of this replica's own log, which a later log must contain.
    pub(crate) fn remember_own(&mut self, config: &Config, decisions: &DecisionLog) {
        if let Some(tip) = self.tip(config, decisions) {
            self.remember(tip);
        }
    }

    fn remember(&mut self, tip: DecisionTip) {
        if self.known.is_none_or(|known| known.is_before(tip)) {
            self.known = Some(tip);
        }
        assert!(self.known.is_some_and(|known| !known.is_before(tip)), "what is known stays");
    }

    //= spec/failure.md#R61
    //= spec/failure.md#R62
    /// Handles the end of the log that a process knows. Returns whether this replica is active and
    /// its log must be refused.
    pub(crate) fn on_tip(
        &mut self,
        tip: DecisionTip,
        config: &Config,
        decisions: &DecisionLog,
    ) -> bool {
        // Of two replicas with one id the later one is refused, and finds that out itself.
        let is_successor = tip.replica == config.process && tip.incarnation > config.incarnation;
        if is_successor {
            return false;
        }
        self.remember(tip);
        let Some(epoch) = self.epoch() else { return false };
        let is_own = (tip.replica, tip.incarnation) == (config.process, config.incarnation);
        let is_other = !is_own && tip.epoch == epoch.0;
        tip.epoch > epoch.0 || is_other || !decisions.contains(tip.decided, tip.digest)
    }

    //= spec/failure.md#R61
    /// Returns what this replica knows of the log if the log with which it has just become active
    /// is older.
    pub(crate) fn outdated_by(&self, decisions: &DecisionLog) -> Option<DecisionTip> {
        let (epoch, known) = (self.epoch()?, self.known?);
        // A store gives each epoch once.
        let is_outdated =
            known.epoch >= epoch.0 || !decisions.contains(known.decided, known.digest);
        is_outdated.then_some(known)
    }

    //= spec/failure.md#R61
    /// Ends the comparison of the log with what nodes announce once nothing more is awaited: a
    /// process may know of decisions that the log lacks, and a switch may have such processes below
    /// it. Returns until when it may last otherwise.
    pub(crate) fn compare(
        &mut self,
        now: Mono,
        config: &Config,
        graph: &Graph,
        decisions: &DecisionLog,
    ) -> Option<Mono> {
        let Role::Comparing { epoch, until } = self.role else { return None };
        if until <= now || has_all_announced(config, graph, decisions) {
            self.role = Role::Deciding { epoch };
            return None;
        }
        Some(until)
    }
}

/// Whether nodes are connected, and each node that may know something has announced itself: those
/// that are connected, and the processes of the log that are not known to have ended. In an older
/// log the latter are often earlier instances of processes that run; the later instance announces
/// itself instead. If silence proves that a process has ended ([`Config::silent_after_ns`] is 0),
/// only connected nodes are awaited.
fn has_all_announced(config: &Config, graph: &Graph, decisions: &DecisionLog) -> bool {
    let is_certain = |entry: &&FrozenEdge| !entry.is_resolved && entry.cause.is_certain();
    let dead: BTreeSet<Instance> = (graph.correct_owners())
        .flat_map(|(_, node)| node.frozen.iter().filter(is_certain))
        .filter_map(|entry| entry.instance)
        .collect();
    let is_awaited = |instance, node: &Node| {
        config.silent_after_ns > 0
            && process_of(instance).is_some()
            && node.is_recorded
            && !graph.is_superseded(instance)
            && !decisions.has_failed(instance)
            && !dead.contains(&instance)
    };
    let is_controller =
        |instance| process_of(instance).is_some_and(|process| config.controllers.contains(process));
    let mut is_any_connected = false;
    for (instance, node) in graph.iter().filter(|(instance, _)| !is_controller(*instance)) {
        let is_connected = graph.is_correct(instance);
        if node.generation.is_none() && (is_connected || is_awaited(instance, node)) {
            return false;
        }
        is_any_connected |= is_connected;
    }
    is_any_connected
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Controllers, Incarnation, ProcessId};

    fn tip(epoch: u32, replica: u32) -> DecisionTip {
        let (replica, incarnation) = (ProcessId(replica), Incarnation(0));
        DecisionTip { epoch, decided: 0, digest: 0, replica, incarnation }
    }

    fn config() -> Config {
        Config::new(ProcessId(90), Controllers { first: ProcessId(90), count: 2 })
    }

    #[test]
    fn log_is_compared_until_a_deadline() {
        let (config, decisions) = (config(), DecisionLog::default());
        let graph = Graph::new(config.own(), config.controllers, config.limits());
        let (mut term, at) = (Term::default(), Mono::from_ns);
        assert!(!term.is_active() && term.compare(at(0), &config, &graph, &decisions).is_none());
        term.start(Epoch(3), at(50));
        assert_eq!(term.compare(at(49), &config, &graph, &decisions), Some(at(50)));
        assert_eq!(term.compared_tip(&config, &decisions), None);
        assert_eq!(term.compare(at(50), &config, &graph, &decisions), None);
        assert_eq!(term.compared_tip(&config, &decisions), Some(tip(3, 90)));
        assert_eq!((term.end(), term.end(), term.epoch()), (Some(Epoch(3)), None, None));
    }

    #[test]
    fn log_of_an_earlier_epoch_is_outdated() {
        let (config, decisions) = (config(), DecisionLog::default());
        let mut term = Term::default();
        assert!(!term.on_tip(tip(4, 91), &config, &decisions), "no log is in use");
        term.start(Epoch(4), Mono::from_ns(0));
        assert_eq!(term.outdated_by(&decisions), Some(tip(4, 91)));
        term.end();
        term.start(Epoch(5), Mono::from_ns(0));
        assert_eq!(term.outdated_by(&decisions), None);
        assert!(!term.on_tip(tip(5, 90), &config, &decisions), "its own");
        assert!(term.on_tip(tip(5, 91), &config, &decisions), "another replica has the epoch");
        assert!(term.on_tip(tip(6, 91), &config, &decisions), "the epoch is over");
    }
}
