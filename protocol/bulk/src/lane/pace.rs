//! How much may be in flight over a lossy link, and how long an answer takes.

use onepipe_base::Psn;

/// Frames in flight before anything is known of the link (RFC 6928).
const BEGIN_FRAMES: u64 = 10;
/// Frames that may always be in flight.
const LEAST_FRAMES: u64 = 2;
/// Before the first answer one is expected within this (RFC 9002, section 6.2.2, halved).
const RTT_BEGIN_NS: u64 = 100_000_000;

/// Fixed point for fractions: this is 1.
const ONE: u64 = 1 << 16;
/// A new observation has this share in `alpha` (RFC 8257, section 4.2).
const GAIN: u64 = 16;

/// Additive increase, multiplicative decrease, once a round trip (RFC 9002, section 7); the factor
/// is CUBIC's 0.7 (RFC 9438, section 4.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    frame_len: u64,
    window: u64,
    threshold: u64,
    /// Window and threshold before the window collapsed.
    before: Option<(u64, u64)>,
    /// Losses of frames before this one are of a cut that has been made.
    cut_until: Psn,
    /// The other end's count of marked frames; and of what is observed until this frame has come,
    /// how many frames have, and how many of them were marked.
    marked: u32,
    observed_until: Psn,
    observed: u64,
    observed_marked: u64,
    /// The fraction of marked frames, smoothed; in units of 1/65,536.
    alpha: u64,
    /// Nanoseconds, eight times (RFC 6298).
    rtt_eightfold: u64,
    deviation: u64,
}

impl Pace {
    pub fn new(frame_len: usize) -> Self {
        let frame_len = frame_len as u64;
        Self {
            frame_len,
            window: BEGIN_FRAMES * frame_len,
            threshold: u64::MAX,
            before: None,
            cut_until: Psn::FIRST,
            marked: 0,
            observed_until: Psn::FIRST,
            observed: 0,
            observed_marked: 0,
            alpha: 0,
            rtt_eightfold: 0,
            deviation: 0,
        }
    }

    /// Bytes that may be in flight.
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

    /// So many bytes have come while the window was in use.
    pub fn on_acked(&mut self, bytes: u64) {
        self.window += match self.window < self.threshold {
            true => bytes,
            false => (self.frame_len * bytes / self.window).max(1),
        };
    }

    /// So many frames have come, `largest` the last; and the other end's count of marked ones. Once
    /// a window of them the share of marked ones is looked at, and takes half of itself from the
    /// window: a queue that is a little long costs a little (DCTCP, RFC 8257). `next` is the next
    /// frame to be sent.
    pub fn on_marked(&mut self, frames: u64, marked: u32, largest: Psn, next: Psn) {
        let more = marked.wrapping_sub(core::mem::replace(&mut self.marked, marked));
        self.observed += frames;
        self.observed_marked += u64::from(more);
        if largest.is_before(self.observed_until) || self.observed == 0 {
            return;
        }
        let fraction = (self.observed_marked * ONE / self.observed).min(ONE);
        self.alpha = self.alpha - self.alpha / GAIN + fraction / GAIN;
        if self.observed_marked > 0 {
            self.shrink(self.window - self.window * self.alpha / (2 * ONE));
        }
        (self.observed, self.observed_marked) = (0, 0);
        self.observed_until = next;
    }

    fn shrink(&mut self, window: u64) {
        self.window = window.max(LEAST_FRAMES * self.frame_len);
        self.threshold = self.window;
    }

    /// Frame `psn` was lost.
    pub fn cut(&mut self, psn: Psn, next: Psn) {
        if !psn.is_before(self.cut_until) {
            self.cut_until = next;
            self.shrink(self.window * 7 / 10);
        }
    }

    /// Nothing has come for long: begin anew.
    pub fn collapse(&mut self) {
        self.before = Some((self.window, self.threshold));
        self.threshold = (self.window / 2).max(LEAST_FRAMES * self.frame_len);
        self.window = LEAST_FRAMES * self.frame_len;
    }

    /// It was for nothing: nothing was lost.
    pub fn restore(&mut self) {
        if let Some((window, threshold)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
        }
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
        pace.cut(Psn(36), Psn(50));
        assert_eq!(pace.window(), 10_500);
        pace.collapse();
        assert_eq!(pace.window(), 2_000);
        pace.on_acked(5_000);
        assert_eq!(pace.window(), 7_000);
        pace.on_acked(1);
        assert_eq!(pace.window(), 7_001);
        pace.restore();
        assert_eq!(pace.window(), 10_500);
        // Once is enough: what came of it since is kept.
        pace.cut(Psn(51), Psn(60));
        pace.restore();
        assert_eq!(pace.window(), 7_350);
    }

    #[test]
    fn marks_take_half_their_share_once_a_window() {
        let mut pace = Pace::new(1_000);
        pace.on_acked(90_000);
        // One window in which half of the frames are marked: a sixteenth of it is believed.
        pace.on_marked(1, 0, Psn(0), Psn(100));
        pace.on_marked(50, 25, Psn(50), Psn(150));
        assert_eq!(pace.window(), 100_000);
        pace.on_marked(50, 50, Psn(100), Psn(200));
        assert_eq!(pace.window(), 100_000 - 100_000 / 64);
        // Marked always: half, in the end.
        for window in 2..200u32 {
            let before = pace.window();
            pace.on_marked(100, 50 + 100 * window, Psn(100 * window), Psn(100 * window + 100));
            pace.window = before.max(pace.window);
        }
        let before = pace.window();
        pace.on_marked(100, 50 + 100 * 200, Psn(20_000), Psn(20_100));
        assert!((0.5..0.51).contains(&(pace.window() as f64 / before as f64)));
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
