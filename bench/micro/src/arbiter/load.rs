//! What endpoints ask an arbiter for: transfers that come at random (design: arbiter.md section 5).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Packets of a transfer, in the mean.
const MEAN: f64 = 10.0;

/// Poisson arrivals of transfers of exponential length between uniformly random pairs. Always the
/// same for the same numbers.
pub(super) struct Load {
    random: Xoshiro256PlusPlus,
    nodes: u32,
    /// Transfers a timeslot.
    rate: f64,
    /// When the next one comes, in timeslots.
    next: f64,
    arrivals: Vec<(u32, u32, u32)>,
    times: Vec<f64>,
}

impl Load {
    /// `load`: part of what the endpoints could send at most.
    pub fn new(nodes: u32, load: f64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(u64::from(nodes));
        // A transfer has at least one packet, so the mean is a little more than that of the
        // exponential: this much, 0.5 being rounded up to 1.
        let mean = MEAN + (1.0 - (-0.5 / MEAN).exp());
        let rate = load * f64::from(nodes) / mean;
        Self { random, nodes, rate, next: 0.0, arrivals: Vec::new(), times: Vec::new() }
    }

    /// Another trace of the same kind.
    pub fn of_trace(self, number: u64) -> Self {
        let seed = u64::from(self.nodes) + number * u64::from(u32::MAX);
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), ..self }
    }

    /// What has come since the last call until `slot`: source, destination, packets.
    pub fn until(&mut self, slot: u64) -> &[(u32, u32, u32)] {
        self.arrivals.clear();
        self.times.clear();
        while self.next < slot as f64 {
            self.times.push(self.next);
            self.next += self.exponential() / self.rate;
            let src = self.random.random_range(0..self.nodes);
            let other = self.random.random_range(0..self.nodes - 1);
            let dst = if other >= src { other + 1 } else { other };
            let packets = (MEAN * self.exponential()).round().max(1.0) as u32;
            self.arrivals.push((src, dst, packets));
        }
        &self.arrivals
    }

    /// When each of these came, in timeslots.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// With mean 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.random.random::<f64>()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generates_requested_load() {
        let mut load = Load::new(64, 0.5);
        let packets: u64 = (1..=1_000)
            .flat_map(|batch| load.until(64 * batch).to_vec())
            .map(|(src, dst, packets)| {
                assert!(src < 64 && dst < 64 && src != dst && packets > 0);
                u64::from(packets)
            })
            .sum();
        let part = packets as f64 / (64_000.0 * 64.0);
        assert!((0.49..0.51).contains(&part), "{part}");
    }
}
