//! Numbers with the distribution of YCSB.

use onepipe_sim_engine::Random;

/// A source of numbers below a limit, distributed by Zipf's law: smaller ones are drawn more often.
/// The method is YCSB's (Gray and others, "Quickly generating billion-record synthetic databases",
/// SIGMOD 1994).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    limit: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Creates a source of numbers below `limit`, at least 2. `theta` lies between 0 and 1; YCSB
    /// has 0.99.
    pub fn new(limit: u64, theta: f64) -> Self {
        let zeta = (1..=limit).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        Self::with_zeta(limit, theta, zeta)
    }

    /// Creates a source of numbers below `limit`; `zeta` is the sum of all `rank.powf(-theta)`.
    fn with_zeta(limit: u64, theta: f64, zeta: f64) -> Self {
        let zeta_of_two = 1.0 + 0.5_f64.powf(theta);
        let eta = (1.0 - (2.0 / limit as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta);
        Self { limit, theta, zeta, eta }
    }

    /// Returns the source that YCSB has for scattered keys, whatever their number: 10 billion
    /// numbers, `theta` 0.99. The most frequent one is drawn in 3.8 % of all cases.
    pub fn ycsb() -> Self {
        let (limit, theta) = (10_000_000_000, 0.99);
        // YCSB's own constant, as the sum would take a minute.
        let zeta = 26.469_028_201_783_02;
        Self::with_zeta(limit, theta, zeta)
    }

    /// Draws a number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let uniform = random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let rank = self.limit as f64
            * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.limit - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ycsb_draws_its_most_frequent_number_in_one_of_26_cases() {
        let (zipf, mut random) = (Zipf::ycsb(), Random::named(1, "zipf", 0));
        let drawn: Vec<u64> = (0..100_000).map(|_| zipf.draw(&mut random)).collect();
        let share = drawn.iter().filter(|number| **number == 0).count() as f64 / 1e5;
        assert!((share * 26.469 - 1.0).abs() < 0.05, "{share}");
        assert!(drawn.iter().any(|number| *number > 5_000_000_000), "the tail is drawn, too");
        // The sum of the ranks up to n is (n^0.01 - 1) / 0.01 plus a constant.
        let (few, many) = (Zipf::new(10_000, 0.99).zeta, Zipf::new(1_000_000, 0.99).zeta);
        let power = |n: f64| n.powf(0.01) / 0.01;
        let constant = many - power(1e6);
        assert!((few - power(1e4) - constant).abs() < 1e-3, "{few} {many}");
        assert!((zipf.zeta - power(1e10) - constant).abs() < 1e-3, "{}", zipf.zeta);
    }

    #[test]
    fn the_first_numbers_have_the_shares_of_zipfs_law() {
        let (zipf, mut random) = (Zipf::new(1_000, 0.99), Random::named(1, "zipf", 0));
        let mut counts = vec![0_u32; 1_000];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let share = |rank: usize| f64::from(counts[rank]) / 100_000.0;
        assert!((share(0) * zeta - 1.0).abs() < 0.05, "{}", share(0));
        assert!((share(1) * zeta * 2_f64.powf(0.99) - 1.0).abs() < 0.1, "{}", share(1));
        assert!(counts[500..].iter().sum::<u32>() > 5_000);
    }
}
