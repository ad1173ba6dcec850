//! Repeatable fault injection: each decision is drawn from one seeded stream.

use onepipe_base::Port;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::Stats;

/// Injected faults. Probabilities are per frame, from 0 to 1; loss and corruption apply on ingress,
/// all faults on egress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed of the random stream.
    pub seed: u64,
    /// A frame is lost.
    pub loss: f64,
    /// A frame is sent twice.
    pub duplication: f64,
    /// One bit of a frame is flipped.
    pub corruption: f64,
    /// A frame is overtaken by the next one for the same port.
    pub reordering: f64,
    /// Ports that are dead in both directions.
    pub dead_ports: Vec<Port>,
}

impl Faults {
    pub(crate) fn is_none(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::default() }
    }

    /// Returns the first field that is no probability.
    pub(crate) fn out_of_range(&self) -> Option<&'static str> {
        let named = [
            ("loss", self.loss),
            ("duplication", self.duplication),
            ("corruption", self.corruption),
            ("reordering", self.reordering),
        ];
        named.iter().find(|(_, value)| !(0.0..=1.0).contains(value)).map(|(name, _)| *name)
    }
}

/// The outcome for a frame on egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pass,
    Lost,
    Twice,
    /// The frame waits for the next one for its port, and follows that one.
    Overtaken,
}

/// The state of fault injection.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    faults: Faults,
    random: Xoshiro256PlusPlus,
    /// For each port, a frame that the next one overtakes.
    held: Vec<Vec<u8>>,
}

impl FaultInjector {
    pub(crate) fn new(faults: Faults, ports: usize) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(faults.seed);
        Self { faults, random, held: vec![Vec::new(); ports] }
    }

    /// Applies faults to a received frame. Returns whether it arrives, possibly with a wrong bit.
    pub(crate) fn on_ingress(&mut self, port: Port, frame: &mut [u8], stats: &mut Stats) -> bool {
        if self.faults.dead_ports.contains(&port) || self.draw(self.faults.loss) {
            stats.faults_lost += 1;
            return false;
        }
        self.corrupt(frame, stats);
        true
    }

    /// Applies faults to a frame that leaves.
    pub(crate) fn on_egress(&mut self, port: Port, frame: &mut [u8], stats: &mut Stats) -> Outcome {
        if self.faults.dead_ports.contains(&port) || self.draw(self.faults.loss) {
            stats.faults_lost += 1;
            return Outcome::Lost;
        }
        self.corrupt(frame, stats);
        let held = &mut self.held[port.index()];
        if held.is_empty() && bernoulli(&mut self.random, self.faults.reordering) {
            stats.faults_reordered += 1;
            held.extend_from_slice(frame);
            return Outcome::Overtaken;
        }
        if self.draw(self.faults.duplication) {
            stats.faults_duplicated += 1;
            return Outcome::Twice;
        }
        Outcome::Pass
    }

    /// Passes the frame that was overtaken by one that has just left for `port`, if any, to `take`.
    pub(crate) fn release(&mut self, port: Port, take: impl FnOnce(&mut [u8])) {
        let held = &mut self.held[port.index()];
        if !held.is_empty() {
            take(held);
            held.clear();
        }
    }

    fn corrupt(&mut self, frame: &mut [u8], stats: &mut Stats) {
        if self.draw(self.faults.corruption) && !frame.is_empty() {
            stats.faults_corrupted += 1;
            let bit = self.random.next_u64() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn draw(&mut self, probability: f64) -> bool {
        bernoulli(&mut self.random, probability)
    }
}

/// Draws nothing when the outcome is certain: a disabled fault does not change the others.
pub(crate) fn bernoulli(random: &mut Xoshiro256PlusPlus, probability: f64) -> bool {
    const SCALE: f64 = (1u64 << 53) as f64;
    probability > 0.0 && ((random.next_u64() >> 11) as f64) < probability * SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(faults: Faults) -> (Vec<Outcome>, Stats) {
        let (mut fault_injector, mut stats) = (FaultInjector::new(faults, 2), Stats::default());
        let outcomes = (0..10_000).map(|number: u32| {
            let mut frame = [number as u8; 60];
            let outcome = fault_injector.on_egress(Port(1), &mut frame, &mut stats);
            if outcome != Outcome::Overtaken {
                fault_injector.release(Port(1), |_| {});
            }
            outcome
        });
        (outcomes.collect(), stats)
    }

    #[test]
    fn faults_are_seeded_and_as_frequent_as_configured() {
        let faults = Faults {
            seed: 7,
            loss: 0.3,
            duplication: 0.1,
            corruption: 0.05,
            reordering: 0.02,
            dead_ports: vec![],
        };
        let (first, stats) = outcomes(faults.clone());
        assert_eq!(outcomes(faults.clone()).0, first);
        assert_ne!(outcomes(Faults { seed: 8, ..faults }).0, first);
        assert!((2800..3200).contains(&stats.faults_lost), "{stats:?}");
        assert!((550..800).contains(&stats.faults_duplicated), "{stats:?}");
        assert!((280..420).contains(&stats.faults_corrupted), "{stats:?}");
        assert!((90..190).contains(&stats.faults_reordered), "{stats:?}");
    }

    #[test]
    fn dead_port_drops_all_frames_and_others_pass() {
        let faults = Faults { dead_ports: vec![Port(1)], ..Faults::default() };
        assert!(!faults.is_none());
        let (mut fault_injector, mut stats) = (FaultInjector::new(faults, 2), Stats::default());
        assert!(!fault_injector.on_ingress(Port(1), &mut [0], &mut stats));
        assert_eq!(fault_injector.on_egress(Port(1), &mut [0], &mut stats), Outcome::Lost);
        assert!(fault_injector.on_ingress(Port(0), &mut [0], &mut stats));
        assert_eq!(fault_injector.on_egress(Port(0), &mut [0], &mut stats), Outcome::Pass);
    }

    #[test]
    fn probabilities_are_checked() {
        assert_eq!(Faults { loss: 1.5, ..Faults::default() }.out_of_range(), Some("loss"));
        let nan = Faults { reordering: f64::NAN, ..Faults::default() };
        assert_eq!(nan.out_of_range(), Some("reordering"));
        assert!(Faults { seed: 3, ..Faults::default() }.is_none());
    }
}
