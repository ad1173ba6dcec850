//! A queue as the frames that enter it make it.

use std::collections::VecDeque;

use onepipe_sim_engine::Instant;
use onepipe_sim_network::LinkConfig;

/// The queue before a link, counted in frames: it knows no more of the network than when a frame
/// of how many octets came, and how fast the link is.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    /// When each frame that is there will have left.
    ends: VecDeque<Instant>,
    /// The most that were there at one time, the one being sent included.
    frames_max: usize,
}

impl Egress {
    /// A frame of `octets` enters.
    pub fn enter(&mut self, now: Instant, link: &LinkConfig, octets: usize) {
        while self.ends.front().is_some_and(|end| *end <= now) {
            self.ends.pop_front();
        }
        let begins = self.ends.back().copied().unwrap_or(now).max(now);
        let bits = link.rate_bits_per_s;
        let octet_ps = (8_000_000_000_000 + bits / 2) / bits;
        self.ends.push_back(begins.after((octets as u64 + link.overhead_octets) * octet_ps));
        self.frames_max = self.frames_max.max(self.ends.len());
    }

    /// The most frames that were there at one time, the one being sent included.
    pub fn frames_max(&self) -> usize {
        self.frames_max
    }

    /// Forgets how many there were.
    pub fn begin(&mut self) {
        self.frames_max = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_overlap_are_there_together() {
        let link = LinkConfig { overhead_octets: 0, ..LinkConfig::default() };
        let at = |ns: u64| Instant::from_ps(ns * 1_000);
        let mut egress = Egress::default();
        // 80 ns each.
        for ns in [0, 80, 160, 400] {
            egress.enter(at(ns), &link, 1_000);
        }
        assert_eq!(egress.frames_max(), 1);
        egress.enter(at(479), &link, 1_000);
        egress.enter(at(559), &link, 1_000);
        assert_eq!(egress.frames_max(), 2, "both wait for the one before");
        egress.enter(at(559), &link, 1_000);
        assert_eq!(egress.frames_max(), 3);
        egress.begin();
        egress.enter(at(5_000), &link, 1_000);
        assert_eq!(egress.frames_max(), 1);
    }
}
