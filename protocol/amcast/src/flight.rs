//! How much a client has on its way, and how long it waits for an answer.
//!
//! What waits in queues between here and the replicas is delivered no sooner for it, falls out of
//! everybody's caches, and is lost by the socketful. So a client sends no more than a limit, less
//! when answers stay out; and it waits longer than answers take, for a leader that is slow under
//! load gets slower by being told everything again.

use onepipe_base::Mono;

/// What is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    octets: u64,
    /// No more than this now, and ever.
    limit: u64,
    most: u64,
    /// How long answers take, and how far that varies, in ns (RFC 6298).
    mean_ns: u64,
    deviation_ns: u64,
    repeat_ns: u64,
    /// When the limit was lowered.
    lowered: Option<Mono>,
}

impl Flight {
    /// It waits for an answer no longer than so many times `repeat_ns`, as with what else is said
    /// again.
    const REPEATS_MAX: u64 = 64;

    pub const fn new(most: u64, repeat_ns: u64) -> Self {
        Self { octets: 0, limit: most, most, mean_ns: 0, deviation_ns: 0, repeat_ns, lowered: None }
    }

    /// Whether a message of so many octets may leave: the first always may.
    pub const fn has_room(&self, octets: u64) -> bool {
        self.octets == 0 || self.octets.saturating_add(octets) <= self.limit
    }

    pub fn on_sent(&mut self, octets: u64) {
        self.octets += octets;
    }

    /// A message is over that took so long, if it was sent once: else nobody knows which of the
    /// times was answered.
    pub fn on_over(&mut self, octets: u64, took_ns: Option<u64>) {
        self.octets = self.octets.saturating_sub(octets);
        // A quarter more each time that as much as may be on its way was.
        self.limit = self.limit.saturating_add(octets / 4).min(self.most);
        let Some(took_ns) = took_ns else { return };
        if self.mean_ns == 0 {
            (self.mean_ns, self.deviation_ns) = (took_ns, took_ns / 2);
        } else {
            let off_ns = self.mean_ns.abs_diff(took_ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + off_ns / 4;
            self.mean_ns = self.mean_ns - self.mean_ns / 8 + took_ns / 8;
        }
    }

    /// An answer stays out. Of all that were sent together, once.
    pub fn on_silence(&mut self, now: Mono) {
        let is_known = self.lowered.is_some_and(|at| now.since_ns(at) < self.pause_ns());
        if !is_known {
            self.lowered = Some(now);
            self.limit = (self.octets / 2).min(self.limit);
        }
    }

    /// What was not answered after so long, in ns, is sent again.
    pub fn pause_ns(&self) -> u64 {
        let usual = self.mean_ns.saturating_add(self.deviation_ns.saturating_mul(4));
        usual.clamp(self.repeat_ns, self.repeat_ns.saturating_mul(Self::REPEATS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_leaves_but_for_the_first() {
        let mut flight = Flight::new(1_000, 50);
        assert!(flight.has_room(5_000));
        flight.on_sent(600);
        assert!(flight.has_room(400) && !flight.has_room(401));
        flight.on_over(600, Some(10));
        assert!(flight.has_room(1_000));
    }

    #[test]
    fn silence_halves_what_is_on_its_way_and_answers_bring_it_back() {
        let mut flight = Flight::new(1_000, 50);
        (0..8).for_each(|_| flight.on_sent(100));
        flight.on_silence(Mono::from_ns(1_000));
        flight.on_silence(Mono::from_ns(1_049));
        assert_eq!(flight.limit, 400, "once of all that were sent together");
        (0..8).for_each(|_| flight.on_over(100, None));
        assert_eq!((flight.octets, flight.limit), (0, 600));
        (0..99).for_each(|_| flight.on_over(100, None));
        assert_eq!(flight.limit, 1_000);
    }

    #[test]
    fn who_answers_late_is_waited_for() {
        let mut flight = Flight::new(1_000, 50);
        assert_eq!(flight.pause_ns(), 50);
        (0..64).for_each(|_| flight.on_over(1, Some(400)));
        assert!((400..500).contains(&flight.pause_ns()), "{flight:?}");
        (0..64).for_each(|_| flight.on_over(1, Some(1 << 40)));
        assert_eq!(flight.pause_ns(), 64 * 50);
    }
}
