//! What holds between any two calls of a [`Switch`].

use super::replication::Replication;
use crate::Switch;

/// In builds with debug assertions the invariants are checked at each of this many first frames.
const CHECKED_FRAMES: u64 = 128;
/// And later once in this many frames.
const FRAMES_PER_CHECK: u64 = 64;

impl Switch {
    /// Checks all invariants in builds with debug assertions: after each of the first inputs, and
    /// after some of the later ones, because a check takes longer than most inputs.
    #[inline]
    pub(super) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let frames = self.stats.forwarded + self.stats.beacons_received;
            if frames < CHECKED_FRAMES || frames.is_multiple_of(FRAMES_PER_CHECK) {
                self.check_invariants();
            }
        }
    }

    /// Asserts what holds between any two calls, whatever the switch has received. Builds with
    /// debug assertions call this after each input; tests and fuzzers may call it at any time.
    /// Takes time in proportion to the number of ports.
    ///
    /// # Panics
    /// When an invariant is broken, which is a bug.
    pub fn check_invariants(&self) {
        self.start.check_invariants();
        self.ack_bundles.iter().for_each(|bundles| bundles.check_invariants());
        self.aggregator.check_invariants();
        self.beacons.check_invariants();
        self.demand.check_invariants();
        self.leavers.check_invariants();
        self.events.check_invariants();
        self.liveness.check_invariants();
        assert_eq!(self.control.is_some(), self.config.controllers.is_some());
        let ports = usize::from(self.config.port_count());
        assert!(self.replications.len() <= ports, "one frame of each input is copied at most");
        assert!(self.replications.iter().all(Replication::is_begun), "no copy has left");
        let live = || self.config.ports().filter(|port| self.aggregator.is_live(*port));
        self.links.check_invariants(live());
        self.joiners.check_invariants(|port| self.aggregator.promised(port).is_some());
        let is_checked = self.config.link_timeout_ns == 0 || self.liveness.due().is_some();
        assert!(is_checked || live().next().is_none(), "a live link cannot time out");
        if let Some(control) = &self.control {
            assert!(live().all(|port| self.links.is_up(port)), "a lost link is live");
            control.check_invariants(self.config.ports(), &self.aggregator);
        }
    }
}
