//! Lengths of values.

use onepipe_sim_engine::Random;

/// Shares of the lengths 0 to 14 of the values in Facebook's ETC pool, by "Workload Analysis of a
/// Large-Scale Key-Value Store" (SIGMETRICS 2012), section 5.
const ETC_SHORT: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];
/// Scale of the generalized Pareto distribution of all longer values, by the same section.
const ETC_SCALE: f64 = 214.476;
/// Shape of that distribution.
const ETC_SHAPE: f64 = 0.348238;
/// Longest value in bytes: the limit of the servers of that pool.
const ETC_LEN_MAX: f64 = 1e6;

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lengths {
    /// All values have this length in bytes.
    Fixed(usize),
    /// As in Facebook's ETC pool: 194 bytes in the mean.
    Etc,
}

impl Lengths {
    /// Draws the length of a value.
    pub fn draw(self, random: &mut Random) -> usize {
        self.of(random.bits())
    }

    /// Returns the length of the value that a key has before it is written, always the same.
    pub fn initial(self, key: u64) -> usize {
        // SplitMix64's finalizer: keys are spread over all values.
        let bits = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.of(bits ^ bits >> 31)
    }

    /// Returns the length for bits that are drawn evenly.
    fn of(self, bits: u64) -> usize {
        let Self::Fixed(len) = self else {
            return etc((bits >> 11) as f64 / (1_u64 << 53) as f64);
        };
        len
    }
}

/// Returns the quantile of the lengths of ETC's values at this share.
fn etc(mut share: f64) -> usize {
    for (len, probability) in ETC_SHORT.iter().enumerate() {
        if share < *probability {
            return len;
        }
        share -= probability;
    }
    let long: f64 = 1.0 - ETC_SHORT.iter().sum::<f64>();
    let above = (1.0 - share / long).max(f64::MIN_POSITIVE);
    let len = ETC_SHORT.len() as f64 + ETC_SCALE * (above.powf(-ETC_SHAPE) - 1.0) / ETC_SHAPE;
    len.min(ETC_LEN_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etc_has_its_short_values_and_its_mean() {
        let mut random = Random::named(1, "lengths", 0);
        let drawn: Vec<usize> = (0..200_000).map(|_| Lengths::Etc.draw(&mut random)).collect();
        let share = |is: fn(usize) -> bool| {
            drawn.iter().filter(|len| is(**len)).count() as f64 / drawn.len() as f64
        };
        assert!((share(|len| len == 2) - 0.1782).abs() < 0.01, "{}", share(|len| len == 2));
        assert!((share(|len| len < 15) - 0.44155).abs() < 0.01, "{}", share(|len| len < 15));
        // The mean of the generalized Pareto distribution is its scale / (1 - shape).
        let short: f64 = (0..15).map(|len| len as f64 * ETC_SHORT[len]).sum();
        let mean = short + (1.0 - 0.44155) * (15.0 + ETC_SCALE / (1.0 - ETC_SHAPE));
        let drawn_mean = drawn.iter().sum::<usize>() as f64 / drawn.len() as f64;
        assert!((drawn_mean / mean - 1.0).abs() < 0.05, "{drawn_mean} instead of {mean}");
    }

    #[test]
    fn initial_lengths_have_the_same_distribution() {
        let lens: Vec<usize> = (0..100_000).map(|key| Lengths::Etc.initial(key)).collect();
        let short = lens.iter().filter(|len| **len < 15).count() as f64 / lens.len() as f64;
        assert!((short - 0.44155).abs() < 0.01, "{short}");
        assert_eq!(lens[7], Lengths::Etc.initial(7));
        assert_eq!(Lengths::Fixed(64).initial(7), 64);
    }
}
