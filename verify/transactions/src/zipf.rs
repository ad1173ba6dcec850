//! Numbers with the distribution of YCSB.

use onepipe_sim_engine::Random;

/// A source of numbers below a limit by Zipf's law, the smallest most often. The method is YCSB's
/// (Gray and others, "Quickly generating billion-record synthetic databases", SIGMOD 1994).
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
        let zeta_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let zeta = zeta_of(limit);
        let eta = (1.0 - (2.0 / limit as f64).powf(1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Self { limit, theta, zeta, eta }
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
