//! A bad network, repeatably: each decision is drawn from one seeded stream.

use onepipe_base::Port;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::Stats;

/// What goes wrong on purpose. Probabilities are for each frame, from 0 to 1; a frame runs the risk
/// of loss and corruption on its way in, and of everything on its way out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Where the random stream begins.
    pub seed: u64,
    /// A frame vanishes.
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

    /// The first probability that is none.
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

/// What shall become of a frame on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Lost,
    Twice,
    /// It waits for the next frame for its port, and follows that.
    Overtaken,
}

/// The faults at work.
#[derive(Debug)]
pub(crate) struct Trouble {
    faults: Faults,
    random: Xoshiro256PlusPlus,
    /// Of each port: a frame that the next one overtakes.
    held: Vec<Vec<u8>>,
}

impl Trouble {
    pub(crate) fn new(faults: Faults, ports: usize) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(faults.seed);
        Self { faults, random, held: vec![Vec::new(); ports] }
    }

    /// A frame comes in. Answers whether it arrives, be it with a wrong bit.
    pub(crate) fn on_way_in(&mut self, port: Port, frame: &mut [u8], stats: &mut Stats) -> bool {
        if self.faults.dead_ports.contains(&port) || self.happens(self.faults.loss) {
            stats.faults_lost += 1;
            return false;
        }
        self.corrupt(frame, stats);
        true
    }

    /// A frame goes out.
    pub(crate) fn on_way_out(&mut self, port: Port, frame: &mut [u8], stats: &mut Stats) -> Fate {
        if self.faults.dead_ports.contains(&port) || self.happens(self.faults.loss) {
            stats.faults_lost += 1;
            return Fate::Lost;
        }
        self.corrupt(frame, stats);
        let held = &mut self.held[port.index()];
        if held.is_empty() && chance(&mut self.random, self.faults.reordering) {
            stats.faults_reordered += 1;
            held.extend_from_slice(frame);
            return Fate::Overtaken;
        }
        if self.happens(self.faults.duplication) {
            stats.faults_duplicated += 1;
            return Fate::Twice;
        }
        Fate::Pass
    }

    /// The frame that was overtaken by one that has just left for `port`, if any: hands it to
    /// `take` and forgets it.
    pub(crate) fn release(&mut self, port: Port, take: impl FnOnce(&mut [u8])) {
        let held = &mut self.held[port.index()];
        if !held.is_empty() {
            take(held);
            held.clear();
        }
    }

    fn corrupt(&mut self, frame: &mut [u8], stats: &mut Stats) {
        if self.happens(self.faults.corruption) && !frame.is_empty() {
            stats.faults_corrupted += 1;
            let bit = self.random.next_u64() as usize % (frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn happens(&mut self, probability: f64) -> bool {
        chance(&mut self.random, probability)
    }
}

/// Draws nothing where the answer is certain: a fault that is off changes no other.
pub(crate) fn chance(random: &mut Xoshiro256PlusPlus, probability: f64) -> bool {
    const SCALE: f64 = (1u64 << 53) as f64;
    probability > 0.0 && ((random.next_u64() >> 11) as f64) < probability * SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: Faults) -> (Vec<Fate>, Stats) {
        let (mut trouble, mut stats) = (Trouble::new(faults, 2), Stats::default());
        let fates = (0..10_000).map(|number: u32| {
            let mut frame = [number as u8; 60];
            let fate = trouble.on_way_out(Port(1), &mut frame, &mut stats);
            if fate != Fate::Overtaken {
                trouble.release(Port(1), |_| {});
            }
            fate
        });
        (fates.collect(), stats)
    }

    #[test]
    fn one_seed_is_one_history_and_each_fault_is_as_frequent_as_asked() {
        let faults = Faults {
            seed: 7,
            loss: 0.3,
            duplication: 0.1,
            corruption: 0.05,
            reordering: 0.02,
            dead_ports: vec![],
        };
        let (first, stats) = fates(faults.clone());
        assert_eq!(fates(faults.clone()).0, first);
        assert_ne!(fates(Faults { seed: 8, ..faults }).0, first);
        assert!((2800..3200).contains(&stats.faults_lost), "{stats:?}");
        assert!((550..800).contains(&stats.faults_duplicated), "{stats:?}");
        assert!((280..420).contains(&stats.faults_corrupted), "{stats:?}");
        assert!((90..190).contains(&stats.faults_reordered), "{stats:?}");
    }

    #[test]
    fn a_dead_port_passes_nothing_and_the_others_do() {
        let faults = Faults { dead_ports: vec![Port(1)], ..Faults::default() };
        assert!(!faults.is_none());
        let (mut trouble, mut stats) = (Trouble::new(faults, 2), Stats::default());
        assert!(!trouble.on_way_in(Port(1), &mut [0], &mut stats));
        assert_eq!(trouble.on_way_out(Port(1), &mut [0], &mut stats), Fate::Lost);
        assert!(trouble.on_way_in(Port(0), &mut [0], &mut stats));
        assert_eq!(trouble.on_way_out(Port(0), &mut [0], &mut stats), Fate::Pass);
    }

    #[test]
    fn probabilities_are_checked() {
        assert_eq!(Faults { loss: 1.5, ..Faults::default() }.out_of_range(), Some("loss"));
        let nan = Faults { reordering: f64::NAN, ..Faults::default() };
        assert_eq!(nan.out_of_range(), Some("reordering"));
        assert!(Faults { seed: 3, ..Faults::default() }.is_none());
    }
}
