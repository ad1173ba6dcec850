//! Timers of a group: the next keepalive, and the earliest of all deadlines.

use onepipe_base::Mono;

/// Time of the last input, and deadlines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Timers {
    has_started: bool,
    now: Mono,
    keepalive_at: Option<Mono>,
    /// Lower bound of all deadlines.
    due_at: Option<Mono>,
}

impl Timers {
    /// Returns the timers of a group that has not been driven.
    pub fn new() -> Self {
        Self { has_started: false, now: Mono::from_ns(0), keepalive_at: None, due_at: None }
    }

    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// Returns the time of the last input; 0 before the first one.
    pub fn now(&self) -> Mono {
        self.now
    }

    /// Records the time. Returns whether this is the first input, which starts the keepalives.
    #[inline]
    pub fn start(&mut self, now: Mono, keepalive_ns: u64) -> bool {
        self.now = now;
        if core::mem::replace(&mut self.has_started, true) {
            return false;
        }
        self.start_keepalive(now.after_ns(keepalive_ns));
        self.restart();
        true
    }

    /// Returns whether a deadline may have passed.
    #[inline]
    pub fn is_due(&self, now: Mono) -> bool {
        self.due_at.is_some_and(|at| at <= now)
    }

    /// Ends the present keepalive interval. Returns `false` if the interval goes on.
    pub fn end_keepalive(&mut self, now: Mono) -> bool {
        self.keepalive_at.take_if(|at| *at <= now).is_some()
    }

    /// Starts a keepalive interval.
    pub fn start_keepalive(&mut self, until: Mono) {
        debug_assert!(self.has_started, "a group that has started sends keepalives");
        self.keepalive_at = Some(until);
    }

    /// Drops all deadlines but the next keepalive; [`Self::lower_to`] adds the others.
    pub fn restart(&mut self) {
        self.due_at = self.keepalive_at;
    }

    /// Adds a deadline, if any.
    #[inline]
    pub fn lower_to(&mut self, at: Option<Mono>) {
        self.due_at = Mono::earlier(self.due_at, at);
    }

    /// Returns when the next input is due.
    #[inline]
    pub fn poll(&self) -> Option<Mono> {
        // The time is unknown before the first call: request one immediately.
        if self.has_started { self.due_at } else { Some(Mono::from_ns(0)) }
    }

    /// Panics if the next input is due after a deadline.
    pub fn check_invariants(&self) {
        assert!(self.has_started || self.keepalive_at.is_none(), "keepalives follow the start");
        let is_bound = |at: Mono| self.due_at.is_some_and(|due_at| due_at <= at);
        assert!(self.keepalive_at.is_none_or(is_bound), "a keepalive is sent in time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_deadline_is_due() {
        let at = Mono::from_ns;
        let mut timers = Timers::new();
        assert_eq!(timers.poll(), Some(at(0)), "the time is requested");
        assert!(timers.start(at(5), 10) && !timers.start(at(6), 10));
        assert_eq!((timers.now(), timers.poll()), (at(6), Some(at(15))));
        timers.lower_to(Some(at(9)));
        timers.lower_to(None);
        assert!(timers.is_due(at(9)) && !timers.is_due(at(8)));
        assert!(!timers.end_keepalive(at(14)) && timers.end_keepalive(at(15)));
        timers.start_keepalive(at(25));
        timers.restart();
        assert_eq!(timers.poll(), Some(at(25)));
        timers.check_invariants();
    }
}
