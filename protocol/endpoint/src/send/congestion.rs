//! DCTCP with one congestion window per destination.

use onepipe_base::Psn;
use onepipe_reliability::{CongestionWindow, MarkedFraction};

use crate::Config;

/// The packets that a receiver has counted; both counters wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PacketCounters {
    pub received: u32,
    /// Packets with the congestion mark among them.
    pub marked: u32,
}

/// The congestion window of one destination, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CongestionController {
    window: CongestionWindow,
    window_min: u32,
    /// Number of connections above which all share the windows of this number; 0: they do not.
    full_windows: u32,
    frame: u32,
    marks: MarkedFraction,
    /// The receiver's counters in the last acknowledgement.
    last_counters: Option<PacketCounters>,
    /// The window was cut during the present observation of marks.
    was_cut: bool,
}

impl CongestionController {
    /// Creates the controller of the newest of `connections`.
    pub fn new(config: &Config, connections: usize) -> Self {
        let (frame, window_max) = (config.frame_len_max as u32, config.window_bytes_max);
        let mut controller = Self {
            window: CongestionWindow::new(0, window_max.into(), frame.into()),
            window_min: config.congestion_window_min_bytes.max(2 * frame).min(window_max),
            full_windows: config.congestion_full_windows,
            frame,
            marks: MarkedFraction::NONE,
            last_counters: None,
            was_cut: false,
        };
        let window_min = controller.share(controller.window_min, connections);
        let window = controller.share(config.congestion_window_bytes, connections);
        let window = u64::from(window.max(window_min));
        controller.window = CongestionWindow::new(window, window_max.into(), frame.into());
        controller
    }

    //= spec/ordering.md#R33
    /// Returns the share of one of `connections` in the windows of as many bytes that
    /// `full_windows` of them may have: together, those of all would fill the buffers on their
    /// common path. At least two frames.
    fn share(&self, bytes: u32, connections: usize) -> u32 {
        let connections = u32::try_from(connections).unwrap_or(u32::MAX);
        if self.full_windows == 0 || connections <= self.full_windows {
            return bytes;
        }
        let share = u64::from(bytes) * u64::from(self.full_windows) / u64::from(connections);
        (share as u32).max((2 * self.frame).min(bytes))
    }

    /// Returns the bytes that may be in flight.
    #[inline]
    pub fn window_bytes(&self) -> u32 {
        self.window.bytes() as u32
    }

    //= spec/ordering.md#R33
    /// Handles an acknowledgement with the receiver's counters and the newly acknowledged bytes.
    /// `base` is the first unresolved packet, `next` the next packet to be sent, `connections` the
    /// number of connections of this process.
    pub fn on_ack(
        &mut self,
        counters: PacketCounters,
        bytes: u32,
        base: Psn,
        next: Psn,
        connections: usize,
    ) {
        let last = self.last_counters.unwrap_or_default();
        let newly_received = counters.received.wrapping_sub(last.received);
        if newly_received > u32::MAX / 2 {
            // A newer acknowledgement has overtaken this one.
            return;
        }
        self.last_counters = Some(counters);
        self.marks.add(newly_received, counters.marked.wrapping_sub(last.marked));
        if !self.marks.has_marks() {
            self.window.on_acked(bytes.into());
        }
        if let Some(observation) = self.marks.end(base, next) {
            let was_cut = core::mem::take(&mut self.was_cut);
            if observation.has_marks && !was_cut {
                self.cut_to(self.marks.cut(self.window.bytes()), connections);
            }
        }
    }

    /// Returns the receiver's counters in the latest acknowledgement.
    #[inline]
    pub fn last_counters(&self) -> PacketCounters {
        self.last_counters.unwrap_or_default()
    }

    /// Resets the counters after a restart of the receiver, which counts from 0 again.
    pub fn reset_counters(&mut self) {
        self.last_counters = None;
    }

    /// Handles a loss: halves the window, at most once per observation.
    pub fn on_loss(&mut self, next: Psn, connections: usize) {
        if !self.was_cut {
            self.was_cut = true;
            self.cut_to(self.window.bytes().div_ceil(2), connections);
            self.marks.extend_to(next);
        }
    }

    /// Checks that the window lies between its limits.
    pub fn check_invariants(&self, config: &Config) {
        assert!(self.window.bytes() > 0, "a window admits something");
        assert!(self.window_bytes() <= config.window_bytes_max, "the window has a maximum");
        assert!(self.window_min <= config.window_bytes_max, "the minimum is below the maximum");
        assert_eq!(self.frame as usize, config.frame_len_max, "frames do not change");
        self.marks.check_invariants();
    }

    /// Cuts the window, but not below its share of the minimum.
    fn cut_to(&mut self, bytes: u64, connections: usize) {
        let window_min = self.share(self.window_min, connections);
        self.window.reduce_to(bytes.max(window_min.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Incarnation, ProcessId};

    fn fresh() -> CongestionController {
        CongestionController::new(&config(0), 1)
    }

    fn config(congestion_window_min_bytes: u32) -> Config {
        Config {
            congestion_window_bytes: 100_000,
            congestion_window_min_bytes,
            congestion_full_windows: 4,
            window_bytes_max: 1_000_000,
            frame_len_max: 1_000,
            ..Config::new(ProcessId(0), Incarnation(1))
        }
    }

    fn counters(received: u32, marked: u32) -> PacketCounters {
        PacketCounters { received, marked }
    }

    /// Acknowledges `rounds` windows of 100 packets, the first `marked` of each marked.
    fn play(congestion: &mut CongestionController, rounds: u32, marked: u32) {
        for round in 1..=rounds {
            let psn = Psn(round * 100);
            let counters = counters(round * 100, round * marked);
            congestion.on_ack(counters, 100_000, psn, psn.plus(100), 4);
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
        assert!(few.marks.cut(100) > 95 && all.marks.cut(100) < 55);
        assert_eq!(all.window_bytes(), 2_000, "all marked: two frames remain");
        assert!(few.window_bytes() > all.window_bytes());
    }

    #[test]
    fn window_respects_its_minimum() {
        let mut congestion = CongestionController::new(&config(16_000), 1);
        play(&mut congestion, 100, 100);
        assert_eq!(congestion.window_bytes(), 16_000);
        congestion.on_loss(Psn(10_000), 16);
        assert_eq!(congestion.window_bytes(), 8_000, "half, and above a quarter of the minimum");
        congestion.on_ack(counters(10_000, 10_000), 0, Psn(10_000), Psn(10_100), 16);
        congestion.on_loss(Psn(10_100), 16);
        assert_eq!(congestion.window_bytes(), 4_000, "a quarter of the minimum");
        congestion.on_ack(counters(10_100, 10_100), 0, Psn(10_100), Psn(10_200), 1_000);
        congestion.on_loss(Psn(10_200), 1_000);
        assert_eq!(congestion.window_bytes(), 2_000, "two frames");
    }

    #[test]
    fn many_connections_share_windows() {
        let window =
            |connections| CongestionController::new(&config(16_000), connections).window_bytes();
        assert_eq!([1, 4, 5, 8, 1_000].map(window), [100_000, 100_000, 80_000, 50_000, 2_000]);
        let unlimited = Config { congestion_full_windows: 0, ..config(16_000) };
        assert_eq!(CongestionController::new(&unlimited, 1_000).window_bytes(), 100_000);
    }

    #[test]
    fn accepts_restarted_counters_after_reset() {
        let mut congestion = fresh();
        play(&mut congestion, 5, 0);
        congestion.reset_counters();
        let before = congestion.window_bytes();
        congestion.on_ack(counters(10, 0), 10_000, Psn(510), Psn(520), 4);
        assert!(congestion.window_bytes() > before);
    }

    #[test]
    fn loss_halves_the_window_once_per_round() {
        let mut congestion = fresh();
        congestion.on_loss(Psn(100), 4);
        congestion.on_loss(Psn(100), 4);
        assert_eq!(congestion.window_bytes(), 50_000);
        congestion.on_ack(counters(90, 0), 1_000, Psn(100), Psn(150), 4);
        congestion.on_loss(Psn(150), 4);
        assert!(congestion.window_bytes() < 30_000);
    }

    #[test]
    fn ignores_reordered_acks() {
        let mut congestion = fresh();
        congestion.on_ack(counters(50, 1), 1_000, Psn(10), Psn(60), 4);
        let before = congestion.clone();
        congestion.on_ack(counters(40, 1), 1_000, Psn(10), Psn(60), 4);
        assert_eq!(congestion, before);
    }
}
