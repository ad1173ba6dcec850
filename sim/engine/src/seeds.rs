//! Runs a range of seeds on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A range of seeds, and the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first seed.
    pub first: u64,
    /// Number of seeds.
    pub count: u64,
    /// Number of threads.
    pub jobs: usize,
}

impl Seeds {
    /// Runs each seed until all are done or the flag is set. Passes the results to `take`, one at a
    /// time, in order of completion.
    pub fn for_each<R>(
        &self,
        is_stopped: &AtomicBool,
        run: impl Fn(u64) -> R + Sync,
        take: impl FnMut(u64, R) + Send,
    ) {
        let (next, take) = (AtomicU64::new(0), Mutex::new(take));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while !is_stopped.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.count {
                            return;
                        }
                        let seed = self.first.wrapping_add(number);
                        let outcome = run(seed);
                        let Ok(mut take) = take.lock() else { return };
                        take(seed, outcome);
                    }
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_each_seed_once_until_stopped() {
        let is_stopped = AtomicBool::new(false);
        let mut seen = Vec::new();
        let seeds = Seeds { first: u64::MAX, count: 100, jobs: 3 };
        seeds.for_each(
            &is_stopped,
            |seed| seed.wrapping_mul(2),
            |seed, twice| seen.push((seed, twice)),
        );
        seen.sort_unstable();
        let expected = (0..99).map(|seed| (seed, 2 * seed)).chain([(u64::MAX, u64::MAX - 1)]);
        assert!(seen.iter().copied().eq(expected));
        let mut count = 0;
        Seeds { first: 0, count: 100, jobs: 1 }.for_each(
            &is_stopped,
            |_| (),
            |_, ()| {
                count += 1;
                is_stopped.store(count == 7, Ordering::Relaxed);
            },
        );
        assert_eq!(count, 7);
    }
}
