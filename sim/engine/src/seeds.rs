//! Runs a range of seeds on several threads.

use std::str::FromStr;
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

/// One of several parts of a range of seeds, each run by a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of this part, from 0.
    index: u64,
    /// Number of parts.
    count: u64,
}

impl FromStr for Shard {
    type Err = String;

    /// Parses `INDEX/COUNT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').map(|(index, count)| (index.parse(), count.parse()));
        let Some((Ok(index), Ok(count))) = parts else {
            return Err("write INDEX/COUNT, like 0/16 for the first of 16 shards".to_owned());
        };
        match count {
            0 => Err("there is at least one shard".to_owned()),
            _ if index < count => Ok(Self { index, count }),
            _ => Err(format!("{count} shards are 0/{count} to {}/{count}", count - 1)),
        }
    }
}

impl Seeds {
    /// Returns the seeds of one shard. All shards together hold each seed once, in ranges whose
    /// lengths differ by one at most.
    #[must_use]
    pub fn shard(self, shard: Shard) -> Self {
        let boundary = |index: u64| {
            let product = u128::from(self.count) * u128::from(index);
            (product / u128::from(shard.count)) as u64
        };
        let (start, end) = (boundary(shard.index), boundary(shard.index + 1));
        Self { first: self.first.wrapping_add(start), count: end - start, ..self }
    }

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
    fn shards_hold_each_seed_once() {
        for (count, shards) in [(10, 3), (7, 7), (2, 5), (0, 1), (u64::MAX, 6)] {
            let seeds = Seeds { first: 100, count, jobs: 1 };
            let mut next = seeds.first;
            for index in 0..shards {
                let shard = format!("{index}/{shards}").parse().expect("a shard");
                let part = seeds.shard(shard);
                assert_eq!(part.first, next);
                assert!(
                    (count / shards..=count.div_ceil(shards)).contains(&part.count),
                    "{part:?}"
                );
                next = next.wrapping_add(part.count);
            }
            assert_eq!(next, seeds.first.wrapping_add(count));
        }
    }

    #[test]
    fn rejects_shards_that_do_not_exist() {
        let error = |text: &str| text.parse::<Shard>().expect_err("no shard");
        assert_eq!(error("4/4"), "4 shards are 0/4 to 3/4");
        assert_eq!(error("0/0"), "there is at least one shard");
        for text in ["", "3", "-1/4", "a/b", "1/2/3"] {
            assert!(error(text).starts_with("write INDEX/COUNT"), "{text}");
        }
    }

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
