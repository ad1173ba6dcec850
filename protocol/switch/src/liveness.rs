//! When to look for links that have fallen silent.

use onepipe_base::Mono;

/// Times the search for dead links. The search is a pass over all ports, so it is done about once a
/// timeout, not once a frame.
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

    /// A link has come to life: there is something to watch.
    #[inline]
    pub(crate) fn on_joined(&mut self, now: Mono) {
        if self.timeout_ns > 0 && self.due.is_none() {
            self.due = Some(self.check_after(now));
        }
    }

    /// The driver has slept: no search before the neighbours had half a timeout to be heard.
    pub(crate) fn postpone(&mut self, now: Mono) {
        let earliest = now.after_ns(self.timeout_ns / 2);
        self.due = self.due.map(|due| due.max(earliest));
    }

    /// When the next search is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.due
    }

    /// Whether to search now; links that were last heard before the instant answered are dead.
    ///
    /// A switch whose driver slept through half a timeout has not listened: what its neighbours
    /// said is still waiting to be read. So the first late search is put off by one timeout; the
    /// next one is held, however late, lest a driver that is always late never finds anything.
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

    /// The search is over; `oldest` is when the live link silent longest was last heard. The next
    /// search is at least an eighth of the timeout away: staggered links must not cause one each.
    pub(crate) fn on_checked(&mut self, now: Mono, oldest: Option<Mono>) {
        self.due = oldest.map(|last_update| {
            self.check_after(last_update).max(now.after_ns(self.timeout_ns / 8 + 1))
        });
    }

    /// Just past the timeout: a link heard exactly a timeout ago is not dead yet.
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
        assert_eq!(liveness.due(), Some(at(1_402)), "not at once again");
        liveness.on_checked(at(1_402), None);
        assert_eq!(liveness.due(), None);
    }

    #[test]
    fn late_check_is_postponed_once() {
        let mut liveness = Liveness::new(800);
        liveness.on_joined(at(0));
        assert_eq!(liveness.check(at(5_000)), None);
        assert_eq!(liveness.due(), Some(at(5_800)));
        assert_eq!(liveness.check(at(9_000)), Some(at(8_200)), "late again: not excused again");
    }

    #[test]
    fn reported_stall_postpones_each_time() {
        let mut liveness = Liveness::new(800);
        liveness.postpone(at(0));
        assert_eq!(liveness.due(), None);
        liveness.on_joined(at(0));
        liveness.postpone(at(700));
        assert_eq!((liveness.check(at(1_099)), liveness.due()), (None, Some(at(1_100))));
        liveness.postpone(at(900));
        assert_eq!(liveness.check(at(1_300)), Some(at(500)));
    }

    #[test]
    fn zero_timeout_disables_checks() {
        let mut liveness = Liveness::new(0);
        liveness.on_joined(at(5));
        assert_eq!(liveness.due(), None);
    }
}
