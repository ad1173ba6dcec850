//! The nodes that join: which inputs have caught up, so that commits may be advertised to them.

use onepipe_base::{Port, Promises};

use crate::clock::carries_commit;
use crate::port_set::PortSet;
use crate::{Config, Form};

/// Which inputs are joiners (`docs/design/failure.md`, "When does a joiner commit?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Joiners {
    lower_ports: u16,
    /// Whether joiners get no commit before they have caught up.
    must_hold: bool,
    /// Whether the switches above allow joiners to get commits: one of them was received, there is
    /// no upper port, or the link timeout has passed since the start.
    is_uplink_ready: bool,
    /// Inputs that have promised, since they came up, as much as was advertised on any output.
    caught_up: PortSet,
    /// Upper inputs that promise a barrier and no commit: the switch there holds its joiners.
    without_commit: PortSet,
}

impl Joiners {
    pub(crate) fn new(config: &Config) -> Self {
        let ports = config.port_count();
        // Where frames are not rewritten they do not carry what was advertised on their path.
        let is_chip = config.form == Form::Chip;
        Self {
            lower_ports: config.lower_ports,
            must_hold: config.controllers.is_some() || config.holds_joiners || !is_chip,
            is_uplink_ready: config.upper_ports == 0,
            caught_up: PortSet::new(ports),
            without_commit: PortSet::new(ports),
        }
    }

    /// Asserts what holds between any two calls, given which ports are fed.
    pub(crate) fn check_invariants(&self, is_fed: impl Fn(Port) -> bool) {
        [&self.caught_up, &self.without_commit].into_iter().for_each(PortSet::check_invariants);
        assert!(self.caught_up.iter().all(is_fed), "a port that promises nothing has caught up");
        // A frame that an unfed mark has overtaken may carry no commit, too.
        assert!(self.without_commit.iter().all(|port| self.is_upper(port)), "held from below");
        assert!(self.must_hold || self.without_commit.is_empty(), "no joiner is held");
    }

    #[inline]
    fn is_upper(&self, port: Port) -> bool {
        port.0 >= self.lower_ports
    }

    /// Whether joiners get no commit before they have caught up.
    #[inline]
    pub(crate) fn must_hold(&self) -> bool {
        self.must_hold
    }

    /// Whether the promises of a joiner at `port` are compared with what all others count.
    pub(crate) fn is_held_below(&self, port: Port) -> bool {
        self.must_hold && !self.is_upper(port)
    }

    #[inline]
    pub(crate) fn has_caught_up(&self, port: Port) -> bool {
        self.caught_up.contains(port)
    }

    /// Whether the node at `port` is not held.
    #[inline]
    pub(crate) fn is_free(&self, port: Port) -> bool {
        !self.must_hold || self.has_caught_up(port)
    }

    //= spec/failure.md#R14
    //= spec/failure.md#R18
    //= spec/failure.md#R47
    /// Whether `port` may get commits: a joiner from below must have caught up, and no switch above
    /// holds its joiners, of which this switch is one with all that is below it.
    #[inline]
    pub(crate) fn may_get_commit(&self, port: Port) -> bool {
        self.is_upper(port) || (self.is_free(port) && self.without_commit.is_empty())
    }

    /// Notes that the switches above allow joiners to get commits.
    pub(crate) fn on_uplink_ready(&mut self) {
        self.is_uplink_ready = true;
    }

    pub(crate) fn is_uplink_ready(&self) -> bool {
        self.is_uplink_ready
    }

    /// Notes that the promises of `port` have reached what was advertised to others.
    pub(crate) fn on_caught_up(&mut self, port: Port) {
        let is_ready = self.is_uplink_ready || !self.is_held_below(port);
        debug_assert!(is_ready, "the switches above hold their joiners");
        self.caught_up.insert(port);
    }

    /// Forgets what `port` has promised: the next instance there is a joiner.
    pub(crate) fn forget(&mut self, port: Port) {
        self.caught_up.remove(port);
        self.without_commit.remove(port);
    }

    /// Makes all lower ports except `port` catch up again: the switch that has come up there has
    /// advertised commits that the processes below have not promised.
    #[cold]
    pub(crate) fn restart(&mut self, port: Port) {
        let lower_ports = self.lower_ports;
        self.caught_up.retain(|other| other.0 >= lower_ports || other == port);
    }

    /// Whether promises of `port` show that the switch above holds its joiners, or no longer does.
    #[inline]
    pub(crate) fn is_change_above(&self, port: Port, promises: Promises) -> bool {
        self.is_upper(port) && carries_commit(promises) == self.without_commit.contains(port)
    }

    //= spec/failure.md#R47
    /// Handles promises of the upper `port` that carry a commit again, or no longer do. The
    /// register of the port does not show that, because it never moves back.
    pub(crate) fn on_change_above(&mut self, port: Port, promises: Promises) {
        debug_assert!(self.must_hold && self.is_upper(port), "no joiner is held");
        if carries_commit(promises) {
            self.without_commit.remove(port);
        } else {
            self.without_commit.insert(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::Timestamp;
    use onepipe_topology::{ForwardingTable, Route};

    use super::*;
    use crate::clock::no_promise;

    fn joiners(holds_joiners: bool) -> Joiners {
        let route = Route::ForwardingTable(ForwardingTable::new(8, false));
        Joiners::new(&Config { holds_joiners, ..Config::new(2, 1, route) })
    }

    //= spec/failure.md#R47
    #[test]
    fn switch_above_that_holds_joiners_holds_all_below() {
        let mut joiners = joiners(true);
        joiners.on_uplink_ready();
        joiners.on_caught_up(Port(0));
        let may_get_commit = |joiners: &Joiners| [0, 1, 2].map(|p| joiners.may_get_commit(Port(p)));
        assert_eq!(may_get_commit(&joiners), [true, false, true]);
        let barrier = Timestamp::from_ns(1 << 50);
        let held = Promises { barrier, ..no_promise(barrier) };
        assert!(joiners.is_change_above(Port(2), held) && !joiners.is_change_above(Port(0), held));
        joiners.on_change_above(Port(2), held);
        assert_eq!(may_get_commit(&joiners), [false, false, true]);
        assert!(joiners.is_change_above(Port(2), Promises::both(barrier)));
        joiners.on_change_above(Port(2), Promises::both(barrier));
        assert_eq!(may_get_commit(&joiners), [true, false, true]);
        joiners.check_invariants(|port| port == Port(0));
    }

    #[test]
    fn switch_that_comes_up_restarts_the_others_below() {
        let mut joiners = joiners(true);
        joiners.on_uplink_ready();
        [0, 1, 2].into_iter().for_each(|port| joiners.on_caught_up(Port(port)));
        joiners.restart(Port(1));
        assert_eq!([0, 1, 2].map(|port| joiners.has_caught_up(Port(port))), [false, true, true]);
    }

    #[test]
    fn joiners_that_are_not_held_get_commits_at_once() {
        assert!(joiners(false).may_get_commit(Port(0)) && !joiners(true).may_get_commit(Port(0)));
    }
}
