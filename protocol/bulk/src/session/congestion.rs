//! Congestion control of a lossy link, and its round-trip time.

use onepipe_base::{Psn, ResponseTime};
use onepipe_reliability::{CongestionWindow, MarkedFraction};

/// Initial congestion window in frames (RFC 6928).
const WINDOW_INITIAL_FRAMES: u64 = 10;
/// Minimum congestion window in frames.
const WINDOW_MIN_FRAMES: u64 = 2;
const _: () = assert!(0 < WINDOW_MIN_FRAMES && WINDOW_MIN_FRAMES <= WINDOW_INITIAL_FRAMES);
/// Probe timeout in ns before the first RTT sample (compare RFC 9002, section 6.2.2).
const PROBE_TIMEOUT_INITIAL_NS: u64 = 100_000_000;

//= spec/bulk.md#R23
/// Congestion controller: additive increase, multiplicative decrease at most once per round trip
/// (RFC 9002, section 7) by CUBIC's factor 0.7 (RFC 9438, section 4.6), and DCTCP's reaction to
/// congestion marks (RFC 8257).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CongestionController {
    window: CongestionWindow,
    window_min: u64,
    /// The window before the last collapse.
    before_collapse: Option<CongestionWindow>,
    /// Losses of frames before this one belong to a reduction that has been made.
    recovery_until: Psn,
    /// Receiver's total count of marked frames.
    marked: u32,
    marks: MarkedFraction,
    rtt: ResponseTime,
}

impl CongestionController {
    pub fn new(frame_len: usize) -> Self {
        let frame_len = frame_len as u64;
        Self {
            window: CongestionWindow::new(WINDOW_INITIAL_FRAMES * frame_len, u64::MAX, frame_len),
            window_min: WINDOW_MIN_FRAMES * frame_len,
            before_collapse: None,
            recovery_until: Psn::FIRST,
            marked: 0,
            marks: MarkedFraction::NONE,
            rtt: ResponseTime::default(),
        }
    }

    /// Returns the congestion window in bytes.
    pub fn window(&self) -> u64 {
        self.window.bytes()
    }

    /// Returns the timeout after which a frame is probed, given the receiver's acknowledgement
    /// delay (RFC 9002, section 6.2.1).
    pub fn probe_timeout_ns(&self, delay_ns: u64) -> u64 {
        match self.rtt.timeout_ns() {
            0 => PROBE_TIMEOUT_INITIAL_NS,
            timeout_ns => timeout_ns + delay_ns,
        }
    }

    pub fn on_rtt(&mut self, rtt_ns: u64) {
        self.rtt.on_sample(rtt_ns);
    }

    /// Handles the acknowledgement of `bytes` bytes while the window was in use.
    pub fn on_acked(&mut self, bytes: u64) {
        self.window.on_acked(bytes);
    }

    /// Handles the acknowledgement of `frames` frames up to `largest`, with the receiver's count of
    /// marked frames. Once per window, reduces the window by half the smoothed fraction of marked
    /// frames (DCTCP, RFC 8257). `next` is the next frame to be sent.
    pub fn on_marked(&mut self, frames: u32, marked: u32, largest: Psn, next: Psn) {
        let more = marked.wrapping_sub(core::mem::replace(&mut self.marked, marked));
        self.marks.add(frames, more);
        if self.marks.end(largest, next).is_some_and(|observation| observation.has_marks) {
            self.reduce_to(self.marks.cut(self.window.bytes()));
        }
    }

    fn reduce_to(&mut self, window: u64) {
        let before = self.window.bytes();
        self.window.reduce_to(window.max(self.window_min));
        debug_assert!(self.window.bytes() <= before, "a reduction does not open the window");
    }

    /// Panics if the window is below its minimum.
    pub fn check_invariants(&self) {
        assert!(self.window.bytes() >= self.window_min, "two frames may always be in flight");
        let has_minimum = |before: CongestionWindow| before.bytes() >= self.window_min;
        assert!(self.before_collapse.is_none_or(has_minimum), "so they could before a collapse");
    }

    /// Handles the loss of frame `psn`.
    pub fn on_loss(&mut self, psn: Psn, next: Psn) {
        if !psn.is_before(self.recovery_until) {
            self.recovery_until = next;
            self.reduce_to(self.window.bytes() * 7 / 10);
        }
    }

    /// Handles persistent loss: reduces the window to its minimum and starts slow start.
    pub fn collapse(&mut self) {
        self.before_collapse = Some(self.window);
        self.window.restart_from(self.window_min);
    }

    /// Undoes the last collapse, because the loss was spurious.
    pub fn undo_collapse(&mut self) {
        if let Some(before) = self.before_collapse.take() {
            self.window.restore(before);
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
        congestion.on_acked(7);
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
            let before = congestion.window;
            congestion.on_marked(
                100,
                50 + 100 * window,
                Psn(100 * window),
                Psn(100 * window + 100),
            );
            congestion.window.restore(before);
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
        assert!((1_005..1_025).contains(&congestion.probe_timeout_ns(5)));
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
