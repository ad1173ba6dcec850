//! The timestamps of one process: strictly increasing, above everything it has delivered.

use onepipe_base::{Now, Slew, Timestamp};

/// Gives out timestamps and promises; nothing that it gives out later lies below a promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    slew: Slew,
    /// The least timestamp that may still be given out. `None` before the first reading.
    floor: Option<Timestamp>,
}

impl Stamp {
    pub fn new() -> Self {
        Self { slew: Slew::new(), floor: None }
    }

    /// Takes a reading: promises follow the clock.
    #[inline]
    pub fn read(&mut self, now: Now) -> Timestamp {
        let clock = self.slew.read(now);
        self.floor = Some(self.floor.map_or(clock, |floor| floor.max(clock)));
        clock
    }

    /// What is promised: everything given out from now on is at or above it.
    #[inline]
    pub fn promise(&self) -> Option<Timestamp> {
        self.floor
    }

    /// `ts = max(last + 1, now)` (ordering.md section 2), `now` being the last reading.
    #[inline]
    pub fn next(&mut self) -> Timestamp {
        let ts = self.floor.expect("a burst is stamped after the clock was read");
        self.floor = Some(ts.wrapping_add_ns(1));
        ts
    }

    /// Everything given out from now on lies at or above `bound`: causality, and the way in which
    /// a newcomer or a slow clock catches up with the others.
    #[inline]
    pub fn lift(&mut self, bound: Timestamp) {
        if let Some(floor) = self.floor {
            self.floor = Some(floor.max(bound));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Mono;

    fn at(mono: u64, sync: u64) -> Now {
        Now { mono: Mono::from_ns(mono), sync: Timestamp::from_ns(sync) }
    }

    #[test]
    fn stamps_increase_while_the_clock_stands_or_steps_back() {
        let mut stamp = Stamp::new();
        stamp.read(at(0, 1_000));
        assert_eq!(stamp.next().as_ns(), 1_000);
        assert_eq!(stamp.next().as_ns(), 1_001);
        stamp.read(at(1, 10));
        assert_eq!(stamp.next().as_ns(), 1_002);
    }

    #[test]
    fn a_delivered_timestamp_lifts_the_next_one_above_it() {
        let mut stamp = Stamp::new();
        stamp.read(at(0, 1_000));
        stamp.lift(Timestamp::from_ns(9_001));
        assert_eq!(stamp.promise(), Some(Timestamp::from_ns(9_001)));
        assert_eq!(stamp.next().as_ns(), 9_001);
    }
}
