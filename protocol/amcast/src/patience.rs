//! Round-trip time estimation and retransmission timeouts (RFC 6298).

use core::hash::{Hash, Hasher};

use onepipe_base::Mono;

/// Round-trip time estimator (RFC 6298). Measures one exchange at a time. A timeout that follows the
/// measured times keeps retransmissions from loading a peer that is merely slow.
///
/// The estimate only affects when packets are sent, never what they say. The model checker, which
/// has no time, compares machines by state, so all estimators with the same minimum are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    mean_ns: u64,
    deviation_ns: u64,
    repeat_ns: u64,
    /// Exchange being measured: its number, and when it started.
    timed: Option<(u64, Mono)>,
}

impl Patience {
    /// Maximum timeout, in multiples of `repeat_ns`.
    const REPEATS_MAX: u64 = 64;

    /// Creates an estimator without samples, whose timeout is at least `repeat_ns`.
    pub const fn new(repeat_ns: u64) -> Self {
        Self { mean_ns: 0, deviation_ns: 0, repeat_ns, timed: None }
    }

    /// Adds a sample, in ns.
    pub fn hear(&mut self, took_ns: u64) {
        if self.mean_ns == 0 {
            (self.mean_ns, self.deviation_ns) = (took_ns, took_ns / 2);
        } else {
            let off_ns = self.mean_ns.abs_diff(took_ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + off_ns / 4;
            self.mean_ns = self.mean_ns - self.mean_ns / 8 + took_ns / 8;
        }
    }

    /// Updates the measurement, given how many exchanges have started and how many of them, in
    /// order, have completed. Measures from the start of the latest exchange to its completion.
    pub fn time(&mut self, now: Mono, begun: u64, over: u64) {
        match self.timed {
            Some((last, since)) if over >= last => {
                self.timed = None;
                self.hear(now.since_ns(since));
            }
            None if begun > over => self.timed = Some((begun, now)),
            _ => {}
        }
    }

    /// Discards the current measurement, because a retransmission would make it ambiguous (Karn's
    /// algorithm).
    pub fn forget_timed(&mut self) {
        self.timed = None;
    }

    /// Returns the timeout in ns after `doublings` expiries without progress.
    fn pause_ns(&self, doublings: u32) -> u64 {
        let usual = self.mean_ns.saturating_add(self.deviation_ns.saturating_mul(4));
        let most = self.repeat_ns.saturating_mul(Self::REPEATS_MAX);
        usual.max(self.repeat_ns).saturating_mul(1 << doublings).min(most)
    }

    /// Returns the initial retransmission timeout in ns.
    pub fn first_ns(&self) -> u64 {
        self.pause_ns(0)
    }
}

impl PartialEq for Patience {
    fn eq(&self, other: &Self) -> bool {
        self.repeat_ns == other.repeat_ns
    }
}

impl Eq for Patience {}

impl Hash for Patience {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.repeat_ns.hash(state);
    }
}

/// Retransmission timer: the timeout doubles on every expiry until there is progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pause {
    doublings: u32,
}

impl Pause {
    /// Maximum number of doublings.
    const DOUBLINGS_MAX: u32 = 6;

    /// Resets the timeout after progress.
    pub fn reset(&mut self) {
        self.doublings = 0;
    }

    /// Returns the next timeout in ns and doubles the one after it.
    pub fn next_ns(&mut self, patience: &Patience) -> u64 {
        let pause = patience.pause_ns(self.doublings);
        self.doublings = (self.doublings + 1).min(Self::DOUBLINGS_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_late_is_waited_for() {
        let mut patience = Patience::new(50);
        assert_eq!(patience.first_ns(), 50);
        (0..64).for_each(|_| patience.hear(400));
        assert!((400..500).contains(&patience.first_ns()), "{patience:?}");
        (0..64).for_each(|_| patience.hear(1 << 40));
        assert_eq!(patience.first_ns(), 64 * 50);
        let mut pause = Pause::default();
        (0..9).for_each(|_| assert_eq!(pause.next_ns(&patience), 64 * 50));
    }

    #[test]
    fn a_pause_doubles_until_there_is_progress() {
        let (patience, mut pause) = (Patience::new(50), Pause::default());
        let pauses = [50, 100, 200].map(|ns| pause.next_ns(&patience) == ns);
        assert_eq!(pauses, [true; 3]);
        pause.reset();
        assert_eq!(pause.next_ns(&patience), 50);
    }

    #[test]
    fn one_is_timed_after_the_other() {
        let mut patience = Patience::new(1);
        let mut at = |ns, begun, over| patience.time(Mono::from_ns(ns), begun, over);
        at(100, 5, 5);
        at(200, 7, 5);
        at(300, 9, 6);
        at(900, 12, 7);
        assert_eq!(patience.mean_ns, 700, "until the seventh was over");
        let mut at = |ns, begun, over| patience.time(Mono::from_ns(ns), begun, over);
        at(1_000, 12, 7);
        patience.forget_timed();
        patience.time(Mono::from_ns(9_000_000), 12, 12);
        assert_eq!(patience.mean_ns, 700, "it was said again");
    }
}
