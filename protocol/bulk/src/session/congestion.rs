//! How much may be in flight over a lossy link, and how long an answer takes.

use onepipe_base::Psn;

/// Frames in flight before anything is known of the link (RFC 6928).
const WINDOW_INITIAL_FRAMES: u64 = 10;
/// Frames that may always be in flight.
const WINDOW_MIN_FRAMES: u64 = 2;
/// Before the first answer one is expected within this (RFC 9002, section 6.2.2, halved).
const PROBE_TIMEOUT_INITIAL_NS: u64 = 100_000_000;

/// Fixed point for fractions: this is 1.
const ONE: u64 = 1 << 16;
/// A new observation has this share in `alpha` (RFC 8257, section 4.2).
const GAIN: u64 = 16;

/// Additive increase, multiplicative decrease, once a round trip (RFC 9002, section 7); the factor
/// is CUBIC's 0.7 (RFC 9438, section 4.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CongestionController {
    frame_len: u64,
    window: u64,
    slow_start_threshold: u64,
    /// Window and threshold before the window collapsed.
    before_collapse: Option<(u64, u64)>,
    /// Losses of frames before this one are of a cut that has been made.
    recovery_until: Psn,
    /// The other end's count of marked frames; and of what is observed until this frame has come,
    /// how many frames have, and how many of them were marked.
    marked: u32,
    observed_until: Psn,
    observed: u64,
    observed_marked: u64,
    /// The fraction of marked frames, smoothed; in units of 1/65,536.
    alpha: u64,
    /// Nanoseconds, eight times (RFC 6298).
    srtt_x8_ns: u64,
    rttvar_ns: u64,
}

impl CongestionController {
    pub fn new(frame_len: usize) -> Self {
        let frame_len = frame_len as u64;
        Self {
            frame_len,
            window: WINDOW_INITIAL_FRAMES * frame_len,
            slow_start_threshold: u64::MAX,
            before_collapse: None,
            recovery_until: Psn::FIRST,
            marked: 0,
            observed_until: Psn::FIRST,
            observed: 0,
            observed_marked: 0,
            alpha: 0,
            srtt_x8_ns: 0,
            rttvar_ns: 0,
        }
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// How long after a frame its answer is overdue, when it may itself be held back for `delay`.
    pub fn probe_timeout_ns(&self, delay_ns: u64) -> u64 {
        match self.srtt_x8_ns {
            0 => PROBE_TIMEOUT_INITIAL_NS,
            x8_ns => x8_ns / 8 + 4 * self.rttvar_ns + delay_ns,
        }
    }

    pub fn on_rtt(&mut self, rtt_ns: u64) {
        if self.srtt_x8_ns == 0 {
            self.srtt_x8_ns = 8 * rtt_ns.max(1);
            self.rttvar_ns = rtt_ns / 2;
            return;
        }
        let smoothed = self.srtt_x8_ns / 8;
        self.rttvar_ns = (3 * self.rttvar_ns + smoothed.abs_diff(rtt_ns)) / 4;
        self.srtt_x8_ns = (self.srtt_x8_ns - smoothed + rtt_ns).max(8);
    }

    /// So many bytes have come while the window was in use.
    pub fn on_acked(&mut self, bytes: u64) {
        self.window += match self.window < self.slow_start_threshold {
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
            self.reduce_to(self.window - self.window * self.alpha / (2 * ONE));
        }
        (self.observed, self.observed_marked) = (0, 0);
        self.observed_until = next;
    }

    fn reduce_to(&mut self, window: u64) {
        self.window = window.max(WINDOW_MIN_FRAMES * self.frame_len);
        self.slow_start_threshold = self.window;
    }

    /// Frame `psn` was lost.
    pub fn on_loss(&mut self, psn: Psn, next: Psn) {
        if !psn.is_before(self.recovery_until) {
            self.recovery_until = next;
            self.reduce_to(self.window * 7 / 10);
        }
    }

    /// Nothing has come for long: begin anew.
    pub fn collapse(&mut self) {
        self.before_collapse = Some((self.window, self.slow_start_threshold));
        self.slow_start_threshold = (self.window / 2).max(WINDOW_MIN_FRAMES * self.frame_len);
        self.window = WINDOW_MIN_FRAMES * self.frame_len;
    }

    /// It was for nothing: nothing was lost.
    pub fn undo_collapse(&mut self) {
        if let Some((window, slow_start_threshold)) = self.before_collapse.take() {
            self.window = self.window.max(window);
            self.slow_start_threshold = self.slow_start_threshold.max(slow_start_threshold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_then_creeps_and_is_cut_once_a_round() {
        let mut congestion = CongestionController::new(1_000);
        assert_eq!(
            (congestion.window(), congestion.probe_timeout_ns(7)),
            (10_000, PROBE_TIMEOUT_INITIAL_NS)
        );
        congestion.on_acked(10_000);
        assert_eq!(congestion.window(), 20_000);
        congestion.on_loss(Psn(3), Psn(30));
        congestion.on_loss(Psn(29), Psn(35));
        assert_eq!(congestion.window(), 14_000);
        congestion.on_acked(14_000);
        assert_eq!(congestion.window(), 15_000);
        congestion.on_loss(Psn(36), Psn(50));
        assert_eq!(congestion.window(), 10_500);
        congestion.collapse();
        assert_eq!(congestion.window(), 2_000);
        congestion.on_acked(5_000);
        assert_eq!(congestion.window(), 7_000);
        congestion.on_acked(1);
        assert_eq!(congestion.window(), 7_001);
        congestion.undo_collapse();
        assert_eq!(congestion.window(), 10_500);
        // Once is enough: what came of it since is kept.
        congestion.on_loss(Psn(51), Psn(60));
        congestion.undo_collapse();
        assert_eq!(congestion.window(), 7_350);
    }

    #[test]
    fn marks_take_half_their_share_once_a_window() {
        let mut congestion = CongestionController::new(1_000);
        congestion.on_acked(90_000);
        // One window in which half of the frames are marked: a sixteenth of it is believed.
        congestion.on_marked(1, 0, Psn(0), Psn(100));
        congestion.on_marked(50, 25, Psn(50), Psn(150));
        assert_eq!(congestion.window(), 100_000);
        congestion.on_marked(50, 50, Psn(100), Psn(200));
        assert_eq!(congestion.window(), 100_000 - 100_000 / 64);
        // Marked always: half, in the end.
        for window in 2..200u32 {
            let before = congestion.window();
            congestion.on_marked(
                100,
                50 + 100 * window,
                Psn(100 * window),
                Psn(100 * window + 100),
            );
            congestion.window = before.max(congestion.window);
        }
        let before = congestion.window();
        congestion.on_marked(100, 50 + 100 * 200, Psn(20_000), Psn(20_100));
        assert!((0.5..0.51).contains(&(congestion.window() as f64 / before as f64)));
    }

    #[test]
    fn patience_follows_the_round_trips() {
        let mut congestion = CongestionController::new(1_000);
        for _ in 0..200 {
            congestion.on_rtt(1_000);
        }
        assert_eq!(congestion.probe_timeout_ns(5), 1_005);
        for at in 0..200 {
            congestion.on_rtt(1_000 + at % 2 * 1_000);
        }
        assert!(
            (2_500..5_000).contains(&congestion.probe_timeout_ns(0)),
            "{}",
            congestion.probe_timeout_ns(0)
        );
    }
}
