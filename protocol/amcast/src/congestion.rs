//! Congestion control of a client: limits the bytes in flight to a window that grows while replies
//! arrive and shrinks on timeouts, as in TCP Reno (RFC 5681).

use onepipe_base::Mono;
use onepipe_reliability::{CongestionWindow, RttEstimator};

/// The bytes in flight, and their congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CongestionController {
    bytes: u64,
    messages: usize,
    window: CongestionWindow,
    window_min: u64,
    /// When the window was last reduced.
    reduced_at: Option<Mono>,
    /// Round-trip time of the client's messages.
    pub rtt: RttEstimator,
}

impl CongestionController {
    /// Minimum congestion window, in frames.
    const FRAMES_MIN: u64 = 2;

    /// Creates a window of `first` bytes that may grow to `window_max`, for frames of up to
    /// `frame_len` bytes.
    pub fn new(first: u64, window_max: u64, frame_len: u64, rtt: RttEstimator) -> Self {
        Self {
            bytes: 0,
            messages: 0,
            window: CongestionWindow::new(first, window_max, frame_len),
            window_min: (Self::FRAMES_MIN * frame_len).min(window_max),
            reduced_at: None,
            rtt,
        }
    }

    pub const fn messages(&self) -> usize {
        self.messages
    }

    //= spec/amcast.md#R29
    /// Returns whether a message may be sent. One message may always be in flight.
    pub const fn can_send(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.window.bytes()
    }

    pub const fn on_sent(&mut self, bytes: u64) {
        debug_assert!(bytes > 0, "a message has headers");
        self.bytes += bytes;
        self.messages += 1;
    }

    /// Handles the completion of a message. `took_ns` is its round-trip time, or `None` if it was
    /// retransmitted, which makes the time ambiguous.
    pub fn on_completed(&mut self, bytes: u64, took_ns: Option<u64>) {
        debug_assert!(self.messages > 0 && bytes <= self.bytes, "it was in flight");
        // A window that is not used must not grow (RFC 7661).
        if self.bytes >= self.window.bytes() / 2 {
            self.window.on_acked(bytes);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.messages = self.messages.saturating_sub(1);
        if let Some(took_ns) = took_ns {
            self.rtt.on_sample(took_ns);
        }
    }

    /// Panics unless `in_flight` are the lengths of the messages in flight.
    pub fn check_invariants(&self, in_flight: impl Iterator<Item = u64>) {
        let (mut messages, mut bytes) = (0, 0);
        in_flight.for_each(|len| (messages, bytes) = (messages + 1, bytes + len));
        assert_eq!(self.messages, messages, "each message in flight is counted");
        assert_eq!(self.bytes, bytes, "in flight is the sum of the messages");
        assert!(self.window.bytes() >= self.window_min, "two frames may be in flight");
    }

    //= spec/amcast.md#R29
    /// Handles a timeout: halves the window, at most once per round trip.
    pub fn on_timeout(&mut self, now: Mono) {
        let timeout_ns = self.rtt.initial_ns();
        if self.reduced_at.is_none_or(|at| now.since_ns(at) >= timeout_ns) {
            self.reduced_at = Some(now);
            let half = (self.bytes / 2).min(self.window.bytes());
            self.window.reduce_to(half.max(self.window_min));
            debug_assert!(self.window.bytes() >= self.window_min, "two frames may be in flight");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn congestion(window_max: u64) -> CongestionController {
        CongestionController::new(1_000, window_max, 100, RttEstimator::new(50, 3_200))
    }

    //= spec/amcast.md#R29
    #[test]
    fn window_limits_all_but_first_message() {
        let mut congestion = congestion(u64::MAX);
        assert!(congestion.can_send(5_000));
        congestion.on_sent(600);
        assert!(congestion.can_send(400) && !congestion.can_send(401));
        congestion.on_completed(600, Some(10));
        assert_eq!((congestion.messages(), congestion.bytes), (0, 0));
        assert!(congestion.can_send(1_600), "grows by the bytes acknowledged");
    }

    //= spec/amcast.md#R29
    #[test]
    fn slow_start_then_congestion_avoidance() {
        let mut congestion = congestion(u64::MAX);
        let round = |congestion: &mut CongestionController| {
            let mut sent = 0;
            while congestion.can_send(100) {
                congestion.on_sent(100);
                sent += 1;
            }
            (0..sent).for_each(|_| congestion.on_completed(100, None));
            congestion.window.bytes()
        };
        // At least half of the window is in use, so it grows.
        assert_eq!([(); 3].map(|()| round(&mut congestion)), [1_400, 1_900, 2_600]);
        (0..30).for_each(|_| congestion.on_sent(100));
        congestion.on_timeout(Mono::from_ns(1_000));
        congestion.on_timeout(Mono::from_ns(1_049));
        assert_eq!(congestion.window.bytes(), 1_500, "once per round trip");
        (0..30).for_each(|_| congestion.on_completed(100, None));
        let before = congestion.window.bytes();
        let after = round(&mut congestion);
        assert!((30..=100).contains(&(after - before)), "{before} {after}");
        (0..9).for_each(|nth| congestion.on_timeout(Mono::from_ns(2_000 + 100 * nth)));
        assert_eq!(congestion.window.bytes(), 200);
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut congestion = congestion(u64::MAX);
        for _ in 0..99 {
            congestion.on_sent(100);
            congestion.on_completed(100, None);
        }
        assert_eq!(congestion.window.bytes(), 1_000);
    }

    //= spec/amcast.md#R29
    #[test]
    fn window_never_exceeds_maximum() {
        let mut congestion = congestion(1_100);
        for _ in 0..9 {
            (0..10).for_each(|_| congestion.on_sent(100));
            (0..10).for_each(|_| congestion.on_completed(100, None));
        }
        assert_eq!(congestion.window.bytes(), 1_100);
    }
}
