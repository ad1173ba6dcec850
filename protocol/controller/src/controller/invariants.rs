//! What holds between any two calls of a [`Controller`].

use super::Controller;

impl Controller {
    /// Asserts what holds between any two calls, whatever the replica has received and the store
    /// has returned. Builds with debug assertions call this after each input; tests and fuzzers may
    /// call it at any time. Takes time in proportion to the fabric.
    ///
    /// # Panics
    /// When an invariant is broken, which is a bug.
    pub fn check_invariants(&self) {
        self.graph.check_invariants();
        self.check_stages();
    }

    /// Checks the invariants in builds with debug assertions; those of the graph only where it was
    /// evaluated.
    pub(super) fn debug_check(&self, is_evaluated: bool) {
        match is_evaluated {
            _ if !cfg!(debug_assertions) => {}
            true => self.check_invariants(),
            false => self.check_stages(),
        }
    }

    /// As [`Controller::check_invariants`] without the graph, whose size is that of the fabric.
    fn check_stages(&self) {
        self.term.check_invariants(&self.decisions);
        self.decisions.check_invariants();
        self.suspects.check_invariants(&self.decisions);
        self.recorder.check_invariants(&self.decisions, self.config.queue_max);
        self.broadcast.check_invariants();
        self.pings.check_invariants();
        self.recovery_replies.check_invariants(self.config.queue_max);
        self.send_queue.check_invariants(self.config.queue_max, self.config.payload_len_max());
        self.own_links.check_invariants(self.config.links);
        self.events.check_invariants();
        self.evaluation.check_invariants();
        match self.term.is_active() {
            true => self.check_active(),
            false => self.check_standby(),
        }
    }

    //= spec/failure.md#R61
    /// Asserts what holds of an active replica.
    fn check_active(&self) {
        let is_any_open = self.decisions.open().len() > 0;
        self.plan.check_invariants(is_any_open, self.graph.announcements());
        assert_eq!(self.term.epoch(), Some(self.broadcast.epoch()), "floods of another epoch");
    }

    //= spec/failure.md#R24
    /// Asserts that a replica without an epoch decides and sends nothing.
    fn check_standby(&self) {
        assert!(self.broadcast.round().is_none(), "a notification without an epoch");
        assert!(self.recorder.is_empty(), "a record without an epoch");
        assert!(self.send_queue.is_empty(), "a frame without an epoch");
        assert!(!self.evaluation.has_severable(), "a link is severed in no epoch");
    }
}
