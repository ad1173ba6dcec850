//! Requests to an arbiter: random arrivals of transfers, as in the evaluation of Fastpass.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Mean packets per transfer.
const MEAN: f64 = 10.0;

/// Poisson arrivals of transfers with exponential lengths between uniformly random pairs;
/// deterministic for given parameters.
pub(super) struct Load {
    random: Xoshiro256PlusPlus,
    nodes: u32,
    /// Transfers per timeslot.
    rate: f64,
    /// Arrival time of the next transfer, in timeslots.
    next: f64,
    arrivals: Vec<(u32, u32, u32)>,
    times: Vec<f64>,
}

impl Load {
    /// Creates a load that is a fraction of what the endpoints can send.
    pub fn new(nodes: u32, load: f64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(u64::from(nodes));
        // A transfer has at least one packet (0.5 rounds up to 1), so the mean is a little more
        // than that of the exponential distribution.
        let mean = MEAN + (1.0 - (-0.5 / MEAN).exp());
        let rate = load * f64::from(nodes) / mean;
        Self { random, nodes, rate, next: 0.0, arrivals: Vec::new(), times: Vec::new() }
    }

    /// Returns another trace with the same parameters.
    pub fn of_trace(self, number: u64) -> Self {
        let seed = u64::from(self.nodes) + number * u64::from(u32::MAX);
        Self { random: Xoshiro256PlusPlus::seed_from_u64(seed), ..self }
    }

    /// Returns the arrivals since the last call until `slot`: source, destination, packets.
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

    /// Returns the arrival time of each transfer that the last call of [`Load::until`] returned, in
    /// timeslots.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// Samples an exponential distribution with mean 1.
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
