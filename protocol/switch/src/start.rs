//! The start of a switch: when barriers are first advertised.

use onepipe_base::Mono;

/// Whether the inputs have been given the time to promise: a barrier without a slow neighbour would
/// cost that neighbour's messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Start {
    wait_ns: u64,
    /// When barriers are advertised at the latest; `None` before the first call.
    advertise_at: Option<Mono>,
    is_advertising: bool,
}

impl Start {
    pub(crate) fn new(wait_ns: u64) -> Self {
        Self { wait_ns, advertise_at: None, is_advertising: false }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(!self.is_advertising || self.advertise_at.is_some(), "advertises before it starts");
    }

    /// Whether barriers are advertised: the wait is over, or all inputs have promised.
    #[inline]
    pub(crate) fn is_advertising(&self) -> bool {
        self.is_advertising
    }

    /// Handles a call at `now`. Returns whether that is the first one.
    #[cold]
    pub(crate) fn on_call(&mut self, now: Mono, has_all_inputs: bool) -> bool {
        let is_first = self.advertise_at.is_none();
        let at = *self.advertise_at.get_or_insert_with(|| now.after_ns(self.wait_ns));
        self.is_advertising |= now >= at || has_all_inputs;
        is_first
    }

    /// Whether the wait has ended `ns` before `now`, or earlier.
    pub(crate) fn has_ended(&self, now: Mono, ns: u64) -> bool {
        self.advertise_at.is_some_and(|at| now >= at.after_ns(ns))
    }

    /// Returns when the wait ends: at once before the first call, which starts the clock.
    pub(crate) fn due(&self) -> Option<Mono> {
        let at = self.advertise_at.unwrap_or(Mono::from_ns(0));
        (!self.is_advertising).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_with_time_or_with_all_inputs() {
        let at = Mono::from_ns;
        for has_all_inputs in [false, true] {
            let mut start = Start::new(100);
            assert_eq!(start.due(), Some(at(0)), "not started");
            assert!(start.on_call(at(7), false) && !start.on_call(at(8), false));
            assert_eq!((start.due(), start.is_advertising()), (Some(at(107)), false));
            assert!(!start.on_call(at(if has_all_inputs { 9 } else { 107 }), has_all_inputs));
            assert_eq!((start.due(), start.is_advertising()), (None, true));
            assert!(!start.has_ended(at(116), 10) && start.has_ended(at(117), 10));
            start.check_invariants();
        }
    }
}
