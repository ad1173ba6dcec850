//! How much a client has on its way.
//!
//! What fills the way carries no more for being sent sooner, and is lost by the socketful. So a
//! client sends no more than a window, which grows while answers come and shrinks when they stay
//! out, as that of TCP Reno does (RFC 5681): it finds out how much there can be.

use onepipe_base::Mono;

use crate::patience::Patience;

/// What is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    octets: u64,
    messages: usize,
    /// No more than this now, and ever.
    limit: u64,
    most: u64,
    /// Below it the limit rises by what was answered, from there on by a frame each time that as
    /// much as may be on its way was.
    threshold: u64,
    frame_octets: u64,
    /// When the limit was lowered.
    lowered: Option<Mono>,
    /// How long answers take.
    pub patience: Patience,
}

impl Flight {
    /// Frames that may be on their way after answers have stayed out.
    const FRAMES_MIN: u64 = 2;

    /// Frames have `frame_octets` at most; `first` octets may be on their way at first, and `most`
    /// ever.
    pub fn new((first, most): (u64, u64), frame_octets: u64, patience: Patience) -> Self {
        Self {
            octets: 0,
            messages: 0,
            limit: first.min(most),
            most,
            threshold: most,
            frame_octets,
            lowered: None,
            patience,
        }
    }

    pub const fn messages(&self) -> usize {
        self.messages
    }

    /// Whether a message of so many octets may leave: the first always may.
    pub const fn has_room(&self, octets: u64) -> bool {
        self.octets == 0 || self.octets.saturating_add(octets) <= self.limit
    }

    pub const fn on_sent(&mut self, octets: u64) {
        self.octets += octets;
        self.messages += 1;
    }

    /// A message is over that took so long, if it was sent once: else nobody knows which of the
    /// times was answered.
    pub fn on_over(&mut self, octets: u64, took_ns: Option<u64>) {
        // Who sends less than it may learns nothing of what it may.
        if self.octets >= self.limit / 2 {
            let growth = match self.limit < self.threshold {
                true => octets,
                false => self.frame_octets.saturating_mul(octets) / self.limit.max(1),
            };
            self.limit = self.limit.saturating_add(growth).min(self.most);
        }
        self.octets = self.octets.saturating_sub(octets);
        self.messages = self.messages.saturating_sub(1);
        if let Some(took_ns) = took_ns {
            self.patience.hear(took_ns);
        }
    }

    /// An answer stays out. Of all that were sent together, once.
    pub fn on_silence(&mut self, now: Mono) {
        let pause_ns = self.patience.first_ns();
        if self.lowered.is_none_or(|at| now.since_ns(at) >= pause_ns) {
            self.lowered = Some(now);
            let least = (Self::FRAMES_MIN * self.frame_octets).min(self.most);
            self.limit = (self.octets / 2).min(self.limit).max(least);
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
        assert_eq!((flight.messages(), flight.octets), (0, 0));
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
        // While at least half of it is in use.
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
