//! When to say again what nobody acknowledges.

use crate::{Address, Mono};

/// The first pause of a spread pace is at least this part of the slow one. An interval that is long
/// because the fabric is large leaves no room for what is said much more often: with the interval
/// of 10 ms that suits some hundred nodes it is 10 us, not much above two beacon intervals.
const SLOW_A_STEP: u64 = 1_000;

/// Says something when it has changed, again after 1, 2, 4, … steps, and then for ever at a slow
/// pace, so that who has lost it or comes later hears it (design: failure.md, "Where is the
/// controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    step_ns: u64,
    slow_ns: u64,
    wait_ns: u64,
    due: Option<Mono>,
    /// What the next pause is shortened by, if it is.
    hash: Option<u64>,
}

impl Pace {
    /// Silent until the first change. `step_ns` at least 1; both in ns.
    pub const fn new(step_ns: u64, slow_ns: u64) -> Self {
        Self { step_ns, slow_ns, wait_ns: 0, due: None, hash: None }
    }

    /// The pace of one of many who may all have begun at one moment. So that they do not go on in
    /// step, and those who come last in a queue are not the same each time, each pause is shortened
    /// by up to a half, by a hash of `address` and of how often it was said. In ns.
    pub fn spread(step_ns: u64, slow_ns: u64, address: Address) -> Self {
        let step_ns = step_ns.max(slow_ns / SLOW_A_STEP);
        Self { hash: Some(u64::from(address.to_bits())), ..Self::new(step_ns, slow_ns) }
    }

    /// It has changed: due at once.
    pub fn on_change(&mut self, now: Mono) {
        self.wait_ns = self.step_ns;
        self.due = Some(now);
    }

    /// When it is due.
    pub fn due(&self) -> Option<Mono> {
        self.due
    }

    /// Whether it is to be said now; puts the next time off.
    pub fn take(&mut self, now: Mono) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.due = Some(now.after_ns(self.wait_ns - self.shortening_ns()));
        self.wait_ns = self.wait_ns.saturating_mul(2).min(self.slow_ns.max(self.step_ns));
        true
    }

    fn shortening_ns(&mut self) -> u64 {
        let Some(hash) = &mut self.hash else { return 0 };
        *hash = mix(*hash);
        // The upper half of the product: evenly spread, whatever the pause.
        ((u128::from(self.wait_ns / 2 + 1) * u128::from(*hash)) >> 64) as u64
    }
}

/// SplitMix64 (G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn said_at_once_then_ever_more_rarely_but_for_ever() {
        let mut pace = Pace::new(10, 35);
        assert!(!pace.take(Mono::from_ns(1_000)), "nothing to say yet");
        pace.on_change(Mono::from_ns(100));
        let mut said = alloc::vec::Vec::new();
        for ns in 100..300 {
            if pace.take(Mono::from_ns(ns)) {
                said.push(ns);
            }
        }
        assert_eq!(said, [100, 110, 130, 165, 200, 235, 270]);
        pace.on_change(Mono::from_ns(301));
        assert_eq!(pace.due(), Some(Mono::from_ns(301)));
    }

    #[test]
    fn many_who_begin_at_once_do_not_go_on_in_step() {
        let address = |id| Address::Process(crate::ProcessId(id));
        let begin = |id| {
            let mut pace = Pace::spread(10_000, 1_000_000, address(id));
            pace.on_change(Mono::from_ns(0));
            assert!(pace.take(Mono::from_ns(0)), "news waits for nothing");
            pace
        };
        let mut paces: alloc::vec::Vec<Pace> = (0..1_000).map(begin).collect();
        assert_eq!(paces[7], begin(7), "always alike");
        for wait_ns in [10_000, 20_000, 40_000] {
            let mut pauses = alloc::vec::Vec::new();
            for pace in &mut paces {
                let since = pace.due().expect("goes on for ever");
                assert!(pace.take(since));
                let due = pace.due().expect("goes on for ever");
                // The pause that begins now is twice the one that has ended.
                pauses.push(due.since_ns(since) - wait_ns);
            }
            pauses.sort_unstable();
            for (part, pause) in pauses.iter().enumerate() {
                let even = wait_ns * part as u64 / 1_000;
                assert!(pause.abs_diff(even) < wait_ns / 16, "{pause}, not about {even}");
            }
            assert!(pauses[999] <= wait_ns, "no pause is longer than without");
        }
    }

    #[test]
    fn a_pace_that_is_slow_for_a_large_fabric_repeats_nothing_fast() {
        let first = |slow_ns| {
            let mut pace = Pace::spread(6_000, slow_ns, Address::Process(crate::ProcessId(1)));
            pace.on_change(Mono::from_ns(0));
            pace.take(Mono::from_ns(0));
            pace.due().expect("goes on for ever").as_ns()
        };
        assert!((3_000..=6_000).contains(&first(1_000_000)));
        assert!((500_000..=1_000_000).contains(&first(1_000_000_000)));
    }
}
