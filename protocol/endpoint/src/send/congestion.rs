//! DCTCP with one congestion window per destination.

use onepipe_base::Psn;

/// The number 1 in fixed point.
const ONE: u64 = 1 << 16;
/// Gain of the moving average `alpha`, as a shift: g = 1/16 (DCTCP).
const GAIN_SHIFT: u32 = 4;

/// The congestion window of one destination, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CongestionController {
    window: u32,
    window_min: u32,
    window_max: u32,
    frame: u32,
    /// Slow-start threshold, in bytes.
    threshold: u32,
    /// Moving average of the fraction of marked packets, in units of 1/65,536.
    alpha: u64,
    /// The current observation window ends when this packet is acknowledged.
    observed_until: Psn,
    /// Packets received, and those of them that were marked, in the current observation window.
    received: u32,
    marked: u32,
    /// The receiver's counters in the last acknowledgement.
    last_counters: Option<(u32, u32)>,
    cut_in_window: bool,
}

impl CongestionController {
    pub fn new(window: u32, window_min: u32, window_max: u32, frame_bytes: usize) -> Self {
        let window_min = window_min.max(2 * frame_bytes as u32).min(window_max);
        Self {
            window: window.clamp(window_min, window_max),
            window_min,
            window_max,
            frame: frame_bytes as u32,
            threshold: window_max,
            alpha: 0,
            observed_until: Psn::FIRST,
            received: 0,
            marked: 0,
            last_counters: None,
            cut_in_window: false,
        }
    }

    /// Returns the bytes that may be in flight.
    #[inline]
    pub fn window_bytes(&self) -> u32 {
        self.window
    }

    /// Handles an acknowledgement with the receiver's counters and the newly acknowledged bytes.
    /// `acked` is the first unresolved packet, `next` the next packet to be sent.
    pub fn on_ack(&mut self, counters: (u32, u32), bytes: u32, acked: Psn, next: Psn) {
        let (received, marked) = counters;
        let (last_received, last_marked) = self.last_counters.unwrap_or((0, 0));
        let newly_received = received.wrapping_sub(last_received);
        if newly_received > u32::MAX / 2 {
            // A newer acknowledgement has overtaken this one.
            return;
        }
        self.last_counters = Some(counters);
        self.received = self.received.saturating_add(newly_received);
        let newly_marked = marked.wrapping_sub(last_marked).min(newly_received);
        self.marked = self.marked.saturating_add(newly_marked);
        if self.marked == 0 {
            self.grow(bytes);
        }
        if !acked.is_before(self.observed_until) {
            self.end_observation(next);
        }
    }

    /// Resets the counters after a restart of the receiver, which counts from 0 again.
    pub fn reset_counters(&mut self) {
        self.last_counters = None;
    }

    /// Handles a loss: halves the window, at most once per observation window.
    pub fn on_loss(&mut self, next: Psn) {
        if !self.cut_in_window {
            self.cut(u64::from(self.window) / 2);
            self.observed_until = next;
        }
    }

    fn grow(&mut self, bytes: u32) {
        let growth = if self.window < self.threshold {
            u64::from(bytes)
        } else {
            u64::from(self.frame) * u64::from(bytes) / u64::from(self.window.max(1))
        };
        let grown = u64::from(self.window) + growth;
        self.window = grown.min(u64::from(self.window_max)) as u32;
    }

    //= spec/ordering.md#R33
    fn end_observation(&mut self, next: Psn) {
        if self.received > 0 {
            let fraction = u64::from(self.marked) * ONE / u64::from(self.received);
            self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (fraction >> GAIN_SHIFT);
            if self.marked > 0 && !self.cut_in_window {
                self.cut(u64::from(self.window) * self.alpha / (2 * ONE));
            }
        }
        self.received = 0;
        self.marked = 0;
        self.cut_in_window = false;
        self.observed_until = next;
    }

    fn cut(&mut self, by: u64) {
        self.window = (u64::from(self.window) - by).max(u64::from(self.window_min)) as u32;
        self.threshold = self.window;
        self.cut_in_window = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> CongestionController {
        CongestionController::new(100_000, 0, 1_000_000, 1_000)
    }

    /// Acknowledges `rounds` windows of 100 packets, the first `marked` of each marked.
    fn play(congestion: &mut CongestionController, rounds: u32, marked: u32) {
        for round in 1..=rounds {
            let psn = Psn(round * 100);
            let counters = (round * 100, round * marked);
            congestion.on_ack(counters, 100_000, psn, psn.plus(100));
        }
    }

    #[test]
    fn window_grows_to_its_limit_without_marks() {
        let mut congestion = fresh();
        play(&mut congestion, 50, 0);
        assert_eq!(congestion.window_bytes(), 1_000_000);
    }

    //= spec/ordering.md#R33
    #[test]
    fn cut_follows_the_marked_fraction() {
        let (mut few, mut all) = (fresh(), fresh());
        play(&mut few, 100, 5);
        play(&mut all, 100, 100);
        assert!(few.alpha < ONE / 10 && all.alpha > ONE * 9 / 10);
        assert_eq!(all.window_bytes(), 2_000, "all marked: two frames remain");
        assert!(few.window_bytes() > all.window_bytes());
    }

    #[test]
    fn window_respects_its_minimum() {
        let mut congestion = CongestionController::new(100_000, 16_000, 1_000_000, 1_000);
        play(&mut congestion, 100, 100);
        assert_eq!(congestion.window_bytes(), 16_000);
    }

    #[test]
    fn accepts_restarted_counters_after_reset() {
        let mut congestion = fresh();
        play(&mut congestion, 5, 0);
        congestion.reset_counters();
        let before = congestion.window_bytes();
        congestion.on_ack((10, 0), 10_000, Psn(510), Psn(520));
        assert!(congestion.window_bytes() > before);
    }

    #[test]
    fn loss_halves_the_window_once_per_round() {
        let mut congestion = fresh();
        congestion.on_loss(Psn(100));
        congestion.on_loss(Psn(100));
        assert_eq!(congestion.window_bytes(), 50_000);
        congestion.on_ack((90, 0), 1_000, Psn(100), Psn(150));
        congestion.on_loss(Psn(150));
        assert!(congestion.window_bytes() < 30_000);
    }

    #[test]
    fn ignores_reordered_acks() {
        let mut congestion = fresh();
        congestion.on_ack((50, 1), 1_000, Psn(10), Psn(60));
        let before = congestion.clone();
        congestion.on_ack((40, 1), 1_000, Psn(10), Psn(60));
        assert_eq!(congestion, before);
    }
}
