//! A congestion window, and DCTCP's estimate of how much a path is congested.

use onepipe_base::Psn;

/// The number 1 in fixed point.
const ONE: u64 = 1 << 16;
/// Gain of the moving average, as a shift: g = 1/16 (RFC 8257, section 4.2).
const GAIN_SHIFT: u32 = 4;

/// The bytes that may be in flight. Grows by slow start and congestion avoidance (RFC 5681, section
/// 3.1); when and by how much it is reduced is up to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CongestionWindow {
    bytes: u64,
    bytes_max: u64,
    frame_len: u64,
    slow_start_threshold: u64,
}

impl CongestionWindow {
    /// Creates a window of `bytes` that may grow to `bytes_max`, in slow start, for frames of up to
    /// `frame_len` bytes.
    pub const fn new(bytes: u64, bytes_max: u64, frame_len: u64) -> Self {
        let bytes = if bytes < bytes_max { bytes } else { bytes_max };
        Self { bytes, bytes_max, frame_len, slow_start_threshold: bytes_max }
    }

    /// Returns the bytes that may be in flight.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows by the acknowledged bytes in slow start, and by a frame per window above its
    /// threshold.
    #[inline]
    pub fn on_acked(&mut self, bytes: u64) {
        let growth = match self.bytes < self.slow_start_threshold {
            true => bytes,
            false => self.frame_len.saturating_mul(bytes) / self.bytes.max(1),
        };
        self.bytes = self.bytes.saturating_add(growth).min(self.bytes_max);
    }

    /// Sets the window, and ends slow start.
    pub fn reduce_to(&mut self, bytes: u64) {
        self.bytes = bytes.min(self.bytes_max);
        self.slow_start_threshold = self.bytes;
    }

    /// Sets the window, and begins slow start up to half the previous window.
    pub fn restart_from(&mut self, bytes: u64) {
        self.slow_start_threshold = (self.bytes / 2).max(bytes);
        self.bytes = bytes.min(self.bytes_max);
    }

    /// Undoes a restart, given the window before it.
    pub fn restore(&mut self, before: Self) {
        self.bytes = self.bytes.max(before.bytes);
        self.slow_start_threshold = self.slow_start_threshold.max(before.slow_start_threshold);
    }
}

/// The fraction of packets that were marked as congested, smoothed over observations of about a
/// window of packets each (DCTCP, RFC 8257).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MarkedFraction {
    /// In units of 1/65,536.
    alpha: u64,
    /// The observation ends when this packet is acknowledged.
    until: Psn,
    /// Packets received in the observation, and those of them that were marked.
    received: u32,
    marked: u32,
}

/// An observation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whether any of its packets was marked.
    pub has_marks: bool,
}

impl MarkedFraction {
    /// Nothing observed.
    pub const NONE: Self = Self { alpha: 0, until: Psn::FIRST, received: 0, marked: 0 };

    /// Adds packets that were received, and those of them that were marked.
    #[inline]
    pub fn add(&mut self, received: u32, marked: u32) {
        self.received = self.received.saturating_add(received);
        self.marked = self.marked.saturating_add(marked.min(received));
    }

    /// Returns whether the observation has a marked packet.
    #[inline]
    pub const fn has_marks(&self) -> bool {
        self.marked > 0
    }

    /// Lets the observation last until `next` is acknowledged.
    pub fn extend_to(&mut self, next: Psn) {
        self.until = next;
    }

    /// Ends the observation if `acked`, a packet that was acknowledged, is not before its end. The
    /// one that follows ends with `next`, the next packet to be sent.
    #[inline]
    pub fn end(&mut self, acked: Psn, next: Psn) -> Option<Observation> {
        if acked.is_before(self.until) {
            return None;
        }
        let observation = Observation { has_marks: self.marked > 0 };
        if self.received > 0 {
            let fraction = u64::from(self.marked) * ONE / u64::from(self.received);
            self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (fraction >> GAIN_SHIFT);
            debug_assert!(self.alpha <= ONE, "a mean of fractions is one");
        }
        *self = Self { alpha: self.alpha, until: next, received: 0, marked: 0 };
        Some(observation)
    }

    /// Checks that it is a fraction, of the packets that were received.
    pub fn check_invariants(&self) {
        assert!(self.alpha <= ONE, "a mean of fractions is a fraction");
        assert!(self.marked <= self.received, "marked packets were received");
    }

    /// Returns what remains of a window that is cut by half the fraction.
    pub fn cut(&self, window: u64) -> u64 {
        window - window * self.alpha / (2 * ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_by_slow_start_then_by_a_frame_per_window() {
        let mut window = CongestionWindow::new(10_000, 40_000, 1_000);
        window.on_acked(10_000);
        assert_eq!(window.bytes(), 20_000);
        window.reduce_to(14_000);
        window.on_acked(14_000);
        assert_eq!(window.bytes(), 15_000);
        let before = window;
        window.restart_from(2_000);
        window.on_acked(5_000);
        assert_eq!(window.bytes(), 7_000, "slow start");
        window.on_acked(3_500);
        window.on_acked(10_500);
        assert_eq!(window.bytes(), 11_500, "above half the previous window");
        window.restore(before);
        assert_eq!(window.bytes(), 15_000);
        window.on_acked(u64::MAX);
        assert_eq!(window.bytes(), 40_000, "its maximum");
        assert_eq!(CongestionWindow::new(50_000, 40_000, 1_000).bytes(), 40_000);
    }

    /// Returns the fraction after as many observations of 100 packets.
    fn observe(fraction: &mut MarkedFraction, observations: u32, marked: u32) {
        for at in 0..observations {
            fraction.add(100, marked);
            assert_eq!(fraction.has_marks(), marked > 0);
            let ended = fraction.end(fraction.until, Psn(at));
            assert_eq!(ended, Some(Observation { has_marks: marked > 0 }));
        }
    }

    #[test]
    fn fraction_enters_by_a_sixteenth_and_converges() {
        let mut fraction = MarkedFraction::NONE;
        observe(&mut fraction, 1, 50);
        assert_eq!(fraction.alpha, ONE / 32);
        assert_eq!(fraction.cut(64_000), 63_000);
        observe(&mut fraction, 200, 100);
        assert!((50..52).contains(&(fraction.cut(100))), "all marked: about half remains");
        observe(&mut fraction, 200, 0);
        assert!(fraction.cut(1_000) > 999, "{fraction:?}");
    }

    #[test]
    fn cut_is_half_of_the_mean_fraction() {
        // Each observation enters by a sixteenth: 1/2 once, then 1/4 ten times.
        let mut fraction = MarkedFraction::NONE;
        let mut cuts = alloc::vec::Vec::new();
        for marked in [50, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25] {
            observe(&mut fraction, 1, marked);
            cuts.push(64_000 - fraction.cut(64_000));
        }
        let expected =
            [1_000, 1_437, 1_847, 2_232, 2_593, 2_931, 3_248, 3_545, 3_824, 4_085, 4_330];
        assert_eq!(cuts, expected);
        assert_eq!((fraction.cut(0), fraction.cut(1), fraction.cut(2)), (0, 1, 2));
    }

    #[test]
    fn observation_without_packets_leaves_the_fraction() {
        let mut fraction = MarkedFraction::NONE;
        observe(&mut fraction, 1, 100);
        let before = fraction.alpha;
        assert_eq!(fraction.end(Psn(1), Psn(2)), Some(Observation { has_marks: false }));
        assert_eq!(fraction.alpha, before);
        observe(&mut fraction, 1, 0);
        assert_eq!(fraction.alpha, before - before / 16);
    }

    #[test]
    fn slow_start_ends_at_the_threshold() {
        let mut window = CongestionWindow::new(8_000, 100_000, 1_000);
        window.reduce_to(8_000);
        for expected in [9_000, 9_888, 10_697] {
            window.on_acked(8_000);
            assert_eq!(window.bytes(), expected, "a frame per window");
        }
        window.restart_from(2_000);
        window.on_acked(3_000);
        assert_eq!(window.bytes(), 5_000, "slow start up to half of 10,697");
        window.on_acked(1_000);
        assert_eq!(window.bytes(), 6_000);
        window.on_acked(6_000);
        assert_eq!(window.bytes(), 7_000, "beyond it a frame per window");
        window.restart_from(6_500);
        assert_eq!(window.bytes(), 6_500);
        window.on_acked(6_500);
        assert_eq!(window.bytes(), 7_500, "a threshold is not below the window");
        window.reduce_to(200_000);
        assert_eq!(window.bytes(), 100_000, "its maximum");
        window.restart_from(200_000);
        assert_eq!(window.bytes(), 100_000, "its maximum");
    }

    #[test]
    fn restart_is_undone_up_to_the_state_before() {
        let mut window = CongestionWindow::new(40_000, 100_000, 1_000);
        window.reduce_to(30_000);
        let before = window;
        window.restart_from(1_000);
        window.restore(before);
        assert_eq!(window, before);
        window.restart_from(1_000);
        (0..6).for_each(|_| window.on_acked(10_000));
        assert!(window.bytes() < before.bytes());
        let grown = CongestionWindow::new(90_000, 100_000, 1_000);
        let mut larger = grown;
        larger.restore(before);
        assert_eq!(larger, grown, "a window that has grown since stays");
    }

    #[test]
    fn observation_lasts_until_its_end_is_acknowledged() {
        let mut fraction = MarkedFraction::NONE;
        assert!(fraction.end(Psn(0), Psn(10)).is_some());
        fraction.add(5, 9);
        assert_eq!(fraction.end(Psn(9), Psn(20)), None);
        fraction.extend_to(Psn(30));
        assert_eq!(fraction.end(Psn(10), Psn(40)), None);
        let ended = fraction.end(Psn(30), Psn(40)).expect("its end is acknowledged");
        assert!(ended.has_marks && !fraction.has_marks());
        assert_eq!(fraction.alpha, ONE / 16, "no more packets are marked than received");
    }
}
