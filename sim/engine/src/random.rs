//! Named streams of random numbers derived from one seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Probabilities are given in parts per million.
const MILLION: u32 = 1_000_000;
const BILLION: u64 = 1_000_000_000;

/// A stream of random numbers (xoshiro256++).
///
/// Each consumer has a stream of its own, with a name and a number, so that an additional draw in
/// one place does not change the draws elsewhere: histories stay comparable when a fault is
/// enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    generator: Xoshiro256PlusPlus,
}

impl Random {
    /// Returns the stream `name`, `number` of `seed`.
    pub fn named(seed: u64, name: &str, number: u64) -> Self {
        let name_hash = xxh3_64_with_seed(name.as_bytes(), seed);
        let number_hash = xxh3_64_with_seed(&number.to_be_bytes(), name_hash);
        Self { generator: Xoshiro256PlusPlus::seed_from_u64(number_hash) }
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Returns a number below `limit`, which must not be 0. The bias is below `limit` / 2^64.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        debug_assert!(limit > 0, "nothing is below zero");
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, inclusive.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high, "an empty range");
        low + self.below((high - low).saturating_add(1))
    }

    /// Returns true with a probability of `ppm` parts per million.
    #[inline]
    pub fn happens(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(u64::from(MILLION)) < u64::from(ppm)
    }

    /// Returns true with a probability of `ppb` parts per billion.
    #[inline]
    pub fn happens_rarely(&mut self, ppb: u32) -> bool {
        ppb > 0 && self.below(BILLION) < u64::from(ppb)
    }

    /// Returns one of `choices`, which must not be empty.
    #[inline]
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_seed_name_and_number() {
        let first = |seed, name, number| Random::named(seed, name, number).bits();
        let base = first(1, "loss", 0);
        assert_eq!(base, first(1, "loss", 0));
        assert!(
            [first(2, "loss", 0), first(1, "burst", 0), first(1, "loss", 1)]
                .iter()
                .all(|other| *other != base)
        );
    }

    #[test]
    fn generator_is_pinned() {
        // Another generator would change the history of every seed.
        let mut random = Random::named(42, "pinned", 7);
        let drawn = [random.bits(), random.below(1_000), random.between(5, 9)];
        assert_eq!(drawn, [2_288_423_790_208_219_889, 427, 6]);
    }

    #[test]
    fn frequencies_match_parameters() {
        let mut random = Random::named(3, "frequency", 0);
        let hits = (0..100_000).filter(|_| random.happens(300_000)).count();
        assert!((29_000..31_000).contains(&hits), "{hits} of 100000 at 30 %");
        assert!(
            (0..1_000).all(|_| !random.happens(0)) && (0..1_000).all(|_| random.happens(MILLION))
        );
        let hits = (0..1_000_000).filter(|_| random.happens_rarely(200_000)).count();
        assert!((140..260).contains(&hits), "{hits} of 1000000 at 2e-4");
        assert!(random.happens_rarely(1_000_000_000) && !random.happens_rarely(0));
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[random.between(5, 9) as usize - 5] = true);
        assert_eq!(seen, [true; 5]);
    }
}
