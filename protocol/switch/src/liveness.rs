//! The schedule of link-timeout checks.

use onepipe_base::Mono;

/// Times the check for idle links. A check is a pass over all ports, so it runs about once per
/// timeout, not once per frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Liveness {
    timeout_ns: u64,
    due: Option<Mono>,
    has_postponed: bool,
}

impl Liveness {
    pub(crate) fn new(timeout_ns: u64) -> Self {
        Self { timeout_ns, due: None, has_postponed: false }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(self.timeout_ns > 0 || self.due.is_none(), "checked without a timeout");
        assert!(!self.has_postponed || self.due.is_some(), "postponed, and not due");
    }

    /// Starts checking once a link has come up.
    #[inline]
    pub(crate) fn on_joined(&mut self, now: Mono) {
        if self.timeout_ns > 0 && self.due.is_none() {
            self.due = Some(self.check_after(now));
        }
    }

    /// Handles a stall of the driver: no check before the neighbours had a timeout to be received.
    pub(crate) fn postpone(&mut self, now: Mono) {
        let earliest = now.after_ns(self.timeout_ns);
        self.due = self.due.map(|due| due.max(earliest));
    }

    /// Returns when the next check is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.due
    }

    //= spec/failure.md#R17
    //= spec/ordering.md#R15
    /// Returns the deadline of a check that is due now: links without an update since then are
    /// dead.
    ///
    /// After a stall of the driver for half a timeout, frames of the neighbours are still to be
    /// read, and live links look idle. So the first late check is postponed by one timeout. The
    /// next one runs however late it is, lest a driver that is always late never detects anything.
    pub(crate) fn check(&mut self, now: Mono) -> Option<Mono> {
        let due = self.due.filter(|due| *due <= now)?;
        let is_late = now.since_ns(due) > self.timeout_ns / 2;
        if is_late && !self.has_postponed {
            self.has_postponed = true;
            self.due = Some(now.after_ns(self.timeout_ns));
            return None;
        }
        self.has_postponed = false;
        Some(Mono::from_ns(now.as_ns().saturating_sub(self.timeout_ns)))
    }

    /// Completes a check; `oldest` is the oldest last update of a live link. The next check is at
    /// least an eighth of the timeout away: staggered links must not cause one each.
    pub(crate) fn on_checked(&mut self, now: Mono, oldest: Option<Mono>) {
        self.due = oldest.map(|last_update| {
            self.check_after(last_update).max(now.after_ns(self.timeout_ns / 8 + 1))
        });
        debug_assert!(self.due.is_none_or(|due| due > now), "a check is due at once");
    }

    /// Returns the instant just past the timeout: a link idle for exactly the timeout is not dead
    /// yet.
    fn check_after(&self, last_update: Mono) -> Mono {
        last_update.after_ns(self.timeout_ns.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    #[test]
    fn check_is_due_a_timeout_after_the_oldest_update() {
        let mut liveness = Liveness::new(800);
        assert_eq!(liveness.due(), None);
        liveness.on_joined(at(100));
        assert_eq!(liveness.due(), Some(at(901)));
        assert_eq!(liveness.check(at(900)), None);
        assert_eq!(liveness.check(at(901)), Some(at(101)));
        liveness.on_checked(at(901), Some(at(500)));
        assert_eq!(liveness.due(), Some(at(1_301)));
        liveness.on_checked(at(1_301), Some(at(502)));
        assert_eq!(liveness.due(), Some(at(1_402)), "not immediately again");
        liveness.on_checked(at(1_402), None);
        assert_eq!(liveness.due(), None);
    }

    //= spec/failure.md#R17
    #[test]
    fn late_check_is_postponed_once() {
        let mut liveness = Liveness::new(800);
        liveness.on_joined(at(0));
        assert_eq!(liveness.check(at(5_000)), None);
        assert_eq!(liveness.due(), Some(at(5_800)));
        assert_eq!(liveness.check(at(9_000)), Some(at(8_200)), "late again: not postponed again");
    }

    #[test]
    fn reported_stall_postpones_each_time() {
        let mut liveness = Liveness::new(800);
        liveness.postpone(at(0));
        assert_eq!(liveness.due(), None);
        liveness.on_joined(at(0));
        liveness.postpone(at(700));
        assert_eq!((liveness.check(at(1_499)), liveness.due()), (None, Some(at(1_500))));
        liveness.postpone(at(900));
        assert_eq!(liveness.check(at(1_700)), Some(at(900)));
    }

    #[test]
    fn zero_timeout_disables_checks() {
        let mut liveness = Liveness::new(0);
        liveness.on_joined(at(5));
        assert_eq!(liveness.due(), None);
    }
}
