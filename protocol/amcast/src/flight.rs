//! Congestion control of a client: limits the bytes in flight to a window that grows while replies
//! arrive and shrinks on timeouts, as in TCP Reno (RFC 5681).

use onepipe_base::Mono;

use crate::patience::Patience;

/// Congestion window and the bytes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    bytes: u64,
    messages: usize,
    /// Congestion window in bytes, and its maximum.
    limit: u64,
    most: u64,
    /// Slow-start threshold in bytes: below it the window grows by the bytes acknowledged (slow
    /// start), above it by one frame per window (congestion avoidance).
    threshold: u64,
    frame_len: u64,
    /// When the window was last reduced.
    lowered: Option<Mono>,
    /// Round-trip time of the client's messages.
    pub patience: Patience,
}

impl Flight {
    /// Minimum congestion window, in frames.
    const FRAMES_MIN: u64 = 2;

    /// Creates a window of `first` bytes that may grow to `most`, for frames of up to `frame_bytes`.
    pub fn new((first, most): (u64, u64), frame_len: u64, patience: Patience) -> Self {
        Self {
            bytes: 0,
            messages: 0,
            limit: first.min(most),
            most,
            threshold: most,
            frame_len,
            lowered: None,
            patience,
        }
    }

    pub const fn messages(&self) -> usize {
        self.messages
    }

    /// Returns whether a message may be sent. One message may always be in flight.
    pub const fn has_room(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.limit
    }

    pub const fn on_sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.messages += 1;
    }

    /// Handles the completion of a message. `took_ns` is its round-trip time, or `None` if it was
    /// retransmitted, which makes the time ambiguous.
    pub fn on_over(&mut self, bytes: u64, took_ns: Option<u64>) {
        // A window that is not used must not grow (RFC 7661).
        if self.bytes >= self.limit / 2 {
            let growth = match self.limit < self.threshold {
                true => bytes,
                false => self.frame_len.saturating_mul(bytes) / self.limit.max(1),
            };
            self.limit = self.limit.saturating_add(growth).min(self.most);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.messages = self.messages.saturating_sub(1);
        if let Some(took_ns) = took_ns {
            self.patience.hear(took_ns);
        }
    }

    /// Handles a timeout: halves the window, at most once per round trip.
    pub fn on_silence(&mut self, now: Mono) {
        let pause_ns = self.patience.first_ns();
        if self.lowered.is_none_or(|at| now.since_ns(at) >= pause_ns) {
            self.lowered = Some(now);
            let least = (Self::FRAMES_MIN * self.frame_len).min(self.most);
            self.limit = (self.bytes / 2).min(self.limit).max(least);
            self.threshold = self.limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(most: u64) -> Flight {
        Flight::new((1_000, most), 100, Patience::new(50))
    }

    #[test]
    fn no_more_than_the_limit_leaves_but_for_the_first() {
        let mut flight = flight(u64::MAX);
        assert!(flight.has_room(5_000));
        flight.on_sent(600);
        assert!(flight.has_room(400) && !flight.has_room(401));
        flight.on_over(600, Some(10));
        assert_eq!((flight.messages(), flight.bytes), (0, 0));
        assert!(flight.has_room(1_600), "as much more as was answered");
    }

    #[test]
    fn it_grows_fast_until_answers_stay_out_and_then_by_a_frame() {
        let mut flight = flight(u64::MAX);
        let round = |flight: &mut Flight| {
            let mut sent = 0;
            while flight.has_room(100) {
                flight.on_sent(100);
                sent += 1;
            }
            (0..sent).for_each(|_| flight.on_over(100, None));
            flight.limit
        };
        // At least half of the window is in use, so it grows.
        assert_eq!([(); 3].map(|()| round(&mut flight)), [1_400, 1_900, 2_600]);
        (0..30).for_each(|_| flight.on_sent(100));
        flight.on_silence(Mono::from_ns(1_000));
        flight.on_silence(Mono::from_ns(1_049));
        assert_eq!(flight.limit, 1_500, "once of all that were sent together");
        (0..30).for_each(|_| flight.on_over(100, None));
        let before = flight.limit;
        let after = round(&mut flight);
        assert!((30..=100).contains(&(after - before)), "{before} {after}");
        (0..9).for_each(|nth| flight.on_silence(Mono::from_ns(2_000 + 100 * nth)));
        assert_eq!(flight.limit, 200);
    }

    #[test]
    fn who_sends_little_gets_no_more_room() {
        let mut flight = flight(u64::MAX);
        for _ in 0..99 {
            flight.on_sent(100);
            flight.on_over(100, None);
        }
        assert_eq!(flight.limit, 1_000);
    }

    #[test]
    fn it_never_exceeds_what_it_was_given() {
        let mut flight = flight(1_100);
        for _ in 0..9 {
            (0..10).for_each(|_| flight.on_sent(100));
            (0..10).for_each(|_| flight.on_over(100, None));
        }
        assert_eq!(flight.limit, 1_100);
    }
}
