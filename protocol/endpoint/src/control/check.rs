//! Invariants of the control plane.

use super::{CONTROLLER_TIMEOUTS, ControlPlane};
use crate::Config;

const _: () = assert!(CONTROLLER_TIMEOUTS > 1, "controllers send less often than beacons");

impl ControlPlane {
    /// Checks the state of links, floods, failures and of what is sent to the controllers.
    pub fn check_invariants(&self, config: &Config) {
        assert_eq!(self.process, config.process, "the process does not change");
        assert_eq!(self.own, config.instance(), "the instance does not change");
        assert_eq!(self.controllers, config.controllers, "the controllers do not change");
        assert!(!self.has_stopped || self.excluded.is_some(), "only an excluded process stops");
        self.links.check_invariants();
        self.announcer.check_invariants();
        self.floods.check_invariants();
        self.failures.check_invariants();
        self.relay.check_invariants();
        self.undeliverable.check_invariants();
        self.recovery.check_invariants();
        if self.controllers.is_none() {
            assert!(self.is_registered, "without controllers no process is registered");
            assert!(self.excluded.is_none(), "only controllers declare a process failed");
            assert!(self.active_controller.is_none(), "no frame comes from a controller");
            assert!(self.pending_pong.is_none(), "no frame comes from a controller");
            assert!(!self.failures.has_unreported(), "only controllers report failures");
            assert!(!self.floods.is_open(), "only controllers flood");
            assert_eq!(self.undeliverable.pending(), 0, "recalls are not recorded");
        }
    }

    /// Returns the number of recalls that were passed on and whose record was not taken.
    pub fn recording(&self) -> usize {
        self.undeliverable.recording()
    }
}
