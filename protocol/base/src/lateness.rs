//! How late a process handles its timers.

use crate::Mono;

/// An estimate forgets an eighth of itself at each punctual timeout.
const DECAY: u64 = 8;
/// A periodic frame leaves at most once in this many times the lateness.
const INTERVALS_OF_LATENESS: u64 = 2;
//= spec/ordering.md#R48
/// No interval is stretched to more than this many times itself.
const STRETCH_MAX: u64 = 32;

//= spec/ordering.md#R48
/// Estimates how late a process handles its timers, as happens to every process on a machine with
/// fewer cores than processes: a maximum that fades.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lateness {
    estimate_ns: u64,
}

impl Lateness {
    /// Returns the estimate of a process whose turns have been punctual so far.
    #[must_use]
    pub const fn new() -> Self {
        Self { estimate_ns: 0 }
    }

    /// Handles a timeout that was due at `due`, if any was. Returns how late it is, in ns.
    pub fn on_timeout(&mut self, now: Mono, due: Option<Mono>) -> u64 {
        let late_ns = due.map_or(0, |due| now.since_ns(due));
        let faded_ns = self.estimate_ns - self.estimate_ns.div_ceil(DECAY);
        self.estimate_ns = late_ns.max(faded_ns);
        debug_assert!(faded_ns <= self.estimate_ns, "a maximum fades at its rate");
        late_ns
    }

    /// Returns the interval at which something leaves that is due every `interval_ns`.
    #[inline]
    #[must_use]
    pub fn stretch(&self, interval_ns: u64) -> u64 {
        let wanted_ns = self.estimate_ns.saturating_mul(INTERVALS_OF_LATENESS);
        wanted_ns.clamp(interval_ns, interval_ns.saturating_mul(STRETCH_MAX))
    }
}

impl Default for Lateness {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    //= spec/ordering.md#R48
    #[test]
    fn intervals_follow_the_lateness_within_a_bound() {
        let mut lateness = Lateness::new();
        assert_eq!(lateness.on_timeout(at(500), Some(at(500))), 0);
        assert_eq!(lateness.stretch(100), 100, "punctual");
        assert_eq!(lateness.on_timeout(at(1_000), Some(at(700))), 300);
        assert_eq!([lateness.stretch(100), lateness.stretch(1_000)], [600, 1_000]);
        lateness.on_timeout(at(1_000_000), Some(at(1_000)));
        assert_eq!(lateness.stretch(100), 3_200);
    }

    #[test]
    fn lateness_fades_with_punctual_timeouts() {
        let mut lateness = Lateness::new();
        lateness.on_timeout(at(10_000), Some(at(2_000)));
        let mut estimates = [0; 80];
        for estimate in &mut estimates {
            lateness.on_timeout(at(20_000), Some(at(20_000)));
            *estimate = lateness.stretch(1_000);
        }
        assert!(estimates.is_sorted_by(|one, next| one >= next));
        assert_eq!((estimates[0], estimates[79]), (14_000, 1_000));
    }
}
