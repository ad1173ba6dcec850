//! What holds between any two calls of a [`Switch`].

use onepipe_base::Port;

use super::control::Control;
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
    pub(crate) fn debug_check(&self) {
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
        self.aggregator.check_invariants();
        self.beacons.check_invariants();
        self.demand.check_invariants();
        self.leavers.check_invariants();
        self.events.check_invariants();
        self.liveness.check_invariants();
        assert!(self.config.upper_ports > 0 || self.is_uplink_ready, "waits for no switch");
        assert_eq!(self.control.is_some(), self.config.controllers.is_some());
        assert!(self.replication.as_ref().is_none_or(Replication::is_begun), "no copy has left");
        assert!(self.lost.is_empty(), "links found dead are taken down at once");
        let mut is_any_live = false;
        for port in (0..self.port_count() as u16).map(Port) {
            let is_live = self.aggregator.is_live(port);
            is_any_live |= is_live;
            self.check_link_state(port, is_live);
        }
        let is_checked = self.config.link_timeout_ns == 0 || self.liveness.due().is_some();
        assert!(is_checked || !is_any_live, "a live link cannot time out");
        if let Some(control) = &self.control {
            self.check_control(control);
        }
    }

    //= spec/failure.md#R14
    fn check_link_state(&self, port: Port, is_live: bool) {
        assert!(!is_live || self.linked.contains(port), "port {} gets no beacons", port.0);
        let is_fed = self.aggregator.promised(port).is_some();
        assert!(is_fed || !self.caught_up.contains(port), "port {} promises nothing", port.0);
        // A frame that an unfed mark has overtaken may say so, too.
        let holds_joiners = self.without_commit.contains(port);
        assert!(!holds_joiners || self.aggregator.is_upper(port), "port {} is below", port.0);
        if self.control.is_some() && is_live {
            assert!(self.neighbours.is_up(port), "port {} was lost", port.0);
        }
    }

    //= spec/failure.md#R13
    fn check_control(&self, control: &Control) {
        control.flood.check_invariants();
        control.controller_ports.check_invariants();
        control.check_invariants();
        for (index, frozen) in control.frozen.iter().enumerate() {
            let mut before = control.frozen.iter().take(index);
            let is_other = before.all(|other| {
                other.number != frozen.number
                    && (other.port, other.instance) != (frozen.port, frozen.instance)
            });
            assert!(is_other, "one death of {:?} has two numbers", frozen.instance);
            assert!(self.aggregator.is_held(frozen.port), "port {} holds nothing", frozen.port.0);
        }
        for port in (0..self.port_count() as u16).map(Port) {
            let is_frozen = || control.frozen.iter().any(|frozen| frozen.port == port);
            assert!(!self.aggregator.is_held(port) || is_frozen(), "port {} is held", port.0);
        }
    }
}
