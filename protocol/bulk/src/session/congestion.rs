//! Congestion control of a lossy link, and its round-trip time.

use onepipe_base::Psn;

/// Initial congestion window in frames (RFC 6928).
const WINDOW_INITIAL_FRAMES: u64 = 10;
/// Minimum congestion window in frames.
const WINDOW_MIN_FRAMES: u64 = 2;
/// Probe timeout in ns before the first RTT sample (compare RFC 9002, section 6.2.2).
const PROBE_TIMEOUT_INITIAL_NS: u64 = 100_000_000;

/// Fixed-point representation of 1.
const ONE: u64 = 1 << 16;
/// Weight of a new sample in `alpha` is 1/16 (RFC 8257, section 4.2).
const GAIN: u64 = 16;

//= spec/bulk.md#R23
/// Congestion controller: additive increase, multiplicative decrease at most once per round trip
/// (RFC 9002, section 7) by CUBIC's factor 0.7 (RFC 9438, section 4.6), and DCTCP's reaction to
/// congestion marks (RFC 8257).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CongestionController {
    frame_len: u64,
    window: u64,
    slow_start_threshold: u64,
    /// Window and slow-start threshold before the last collapse.
    before_collapse: Option<(u64, u64)>,
    /// Losses of frames before this one belong to a reduction that has been made.
    recovery_until: Psn,
    /// Receiver's total count of marked frames.
    marked: u32,
    /// End of the present observation window, and the frames acknowledged and marked in it.
    observed_until: Psn,
    observed: u64,
    observed_marked: u64,
    /// Smoothed fraction of marked frames, in units of 1/65,536.
    alpha: u64,
    /// Smoothed RTT in ns, times eight (RFC 6298).
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

    /// Returns the congestion window in bytes.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Returns the timeout after which a frame is probed, given the receiver's acknowledgement
    /// delay (RFC 9002, section 6.2.1).
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

    /// Handles the acknowledgement of `bytes` bytes while the window was in use.
    pub fn on_acked(&mut self, bytes: u64) {
        self.window += match self.window < self.slow_start_threshold {
            true => bytes,
            false => (self.frame_len * bytes / self.window).max(1),
        };
    }

    /// Handles the acknowledgement of `frames` frames up to `largest`, with the receiver's count of
    /// marked frames. Once per window, reduces the window by half the smoothed fraction of marked
    /// frames (DCTCP, RFC 8257). `next` is the next frame to be sent.
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

    /// Handles the loss of frame `psn`.
    pub fn on_loss(&mut self, psn: Psn, next: Psn) {
        if !psn.is_before(self.recovery_until) {
            self.recovery_until = next;
            self.reduce_to(self.window * 7 / 10);
        }
    }

    /// Handles persistent loss: reduces the window to its minimum and starts slow start.
    pub fn collapse(&mut self) {
        self.before_collapse = Some((self.window, self.slow_start_threshold));
        self.slow_start_threshold = (self.window / 2).max(WINDOW_MIN_FRAMES * self.frame_len);
        self.window = WINDOW_MIN_FRAMES * self.frame_len;
    }

    /// Undoes the last collapse, because the loss was spurious.
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

    //= spec/bulk.md#R23
    #[test]
    fn slow_start_avoidance_and_one_reduction_per_round_trip() {
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
        // Only once: the collapse is undone, later reductions are not.
        congestion.on_loss(Psn(51), Psn(60));
        congestion.undo_collapse();
        assert_eq!(congestion.window(), 7_350);
    }

    //= spec/bulk.md#R23
    #[test]
    fn marks_reduce_window_by_half_their_fraction() {
        let mut congestion = CongestionController::new(1_000);
        congestion.on_acked(90_000);
        // In one window half of the frames are marked: it enters alpha with weight 1/16.
        congestion.on_marked(1, 0, Psn(0), Psn(100));
        congestion.on_marked(50, 25, Psn(50), Psn(150));
        assert_eq!(congestion.window(), 100_000);
        congestion.on_marked(50, 50, Psn(100), Psn(200));
        assert_eq!(congestion.window(), 100_000 - 100_000 / 64);
        // If all frames are marked, alpha approaches 1 and the window is halved.
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
    fn probe_timeout_follows_rtt() {
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
