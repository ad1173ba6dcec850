//! How much may be in flight over a lossy link, and how long an answer takes.

use onepipe_base::Psn;

/// Frames in flight before anything is known of the link (RFC 6928).
const BEGIN_FRAMES: u64 = 10;
/// Frames that may always be in flight.
const LEAST_FRAMES: u64 = 2;
/// Before the first answer one is expected within this (RFC 9002, section 6.2.2, halved).
const RTT_BEGIN_NS: u64 = 100_000_000;

/// Additive increase, multiplicative decrease, once a round trip (RFC 9002, section 7); the factor
/// is CUBIC's 0.7 (RFC 9438, section 4.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    frame_octets: u64,
    window: u64,
    threshold: u64,
    /// Losses of frames before this one are of a cut that has been made.
    cut_until: Psn,
    marked: u32,
    /// Nanoseconds, eight times (RFC 6298).
    rtt_eightfold: u64,
    deviation: u64,
}

impl Pace {
    pub fn new(frame_octets: usize) -> Self {
        let frame_octets = frame_octets as u64;
        Self {
            frame_octets,
            window: BEGIN_FRAMES * frame_octets,
            threshold: u64::MAX,
            cut_until: Psn::FIRST,
            marked: 0,
            rtt_eightfold: 0,
            deviation: 0,
        }
    }

    /// Octets that may be in flight.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// How long after a frame its answer is overdue, when it may itself be held back for `delay`.
    pub fn patience_ns(&self, delay_ns: u64) -> u64 {
        match self.rtt_eightfold {
            0 => RTT_BEGIN_NS,
            eightfold => eightfold / 8 + 4 * self.deviation + delay_ns,
        }
    }

    pub fn on_rtt(&mut self, rtt_ns: u64) {
        if self.rtt_eightfold == 0 {
            self.rtt_eightfold = 8 * rtt_ns.max(1);
            self.deviation = rtt_ns / 2;
            return;
        }
        let smoothed = self.rtt_eightfold / 8;
        self.deviation = (3 * self.deviation + smoothed.abs_diff(rtt_ns)) / 4;
        self.rtt_eightfold = (self.rtt_eightfold - smoothed + rtt_ns).max(8);
    }

    /// So many octets have come while the window was in use.
    pub fn on_acked(&mut self, octets: u64) {
        self.window += match self.window < self.threshold {
            true => octets,
            false => (self.frame_octets * octets / self.window).max(1),
        };
    }

    /// The other end's count of marked frames. `next` is the next frame to be sent.
    pub fn on_marked(&mut self, marked: u32, acked: Psn, next: Psn) {
        if core::mem::replace(&mut self.marked, marked) != marked {
            self.cut(acked, next);
        }
    }

    /// Frame `psn` was lost or marked.
    pub fn cut(&mut self, psn: Psn, next: Psn) {
        if !psn.is_before(self.cut_until) {
            self.cut_until = next;
            self.window = (self.window * 7 / 10).max(LEAST_FRAMES * self.frame_octets);
            self.threshold = self.window;
        }
    }

    /// Nothing has come for long: begin anew.
    pub fn collapse(&mut self) {
        self.threshold = (self.window / 2).max(LEAST_FRAMES * self.frame_octets);
        self.window = LEAST_FRAMES * self.frame_octets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_then_creeps_and_is_cut_once_a_round() {
        let mut pace = Pace::new(1_000);
        assert_eq!((pace.window(), pace.patience_ns(7)), (10_000, RTT_BEGIN_NS));
        pace.on_acked(10_000);
        assert_eq!(pace.window(), 20_000);
        pace.cut(Psn(3), Psn(30));
        pace.cut(Psn(29), Psn(35));
        assert_eq!(pace.window(), 14_000);
        pace.on_acked(14_000);
        assert_eq!(pace.window(), 15_000);
        pace.on_marked(1, Psn(30), Psn(50));
        pace.on_marked(1, Psn(60), Psn(70));
        assert_eq!(pace.window(), 10_500);
        pace.collapse();
        assert_eq!(pace.window(), 2_000);
        pace.on_acked(5_000);
        assert_eq!(pace.window(), 7_000);
        pace.on_acked(1);
        assert_eq!(pace.window(), 7_001);
    }

    #[test]
    fn patience_follows_the_round_trips() {
        let mut pace = Pace::new(1_000);
        for _ in 0..200 {
            pace.on_rtt(1_000);
        }
        assert_eq!(pace.patience_ns(5), 1_005);
        for at in 0..200 {
            pace.on_rtt(1_000 + at % 2 * 1_000);
        }
        assert!((2_500..5_000).contains(&pace.patience_ns(0)), "{}", pace.patience_ns(0));
    }
}
