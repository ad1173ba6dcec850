//! Counters of the duration of turns.

use onepipe_base::Mono;

/// Counters of a driver's duty cycle. A long turn means that the machine handled too much at once,
/// an event callback blocked, or the core was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// Turns taken.
    pub turn_count: u64,
    /// Turns that did some work.
    pub busy_turn_count: u64,
    /// Turns longer than the threshold.
    pub long_turn_count: u64,
    /// Longest time from the start of one turn to the start of the next, in ns, excluding waits.
    pub turn_max_ns: u64,
    /// Number of times that the driver blocked.
    pub waits: u64,
    /// Number of times that the clock went back and was held.
    pub clock_held: u64,
    started: Option<Mono>,
}

impl Duty {
    pub(crate) const fn new() -> Self {
        Self {
            turn_count: 0,
            busy_turn_count: 0,
            long_turn_count: 0,
            turn_max_ns: 0,
            waits: 0,
            clock_held: 0,
            started: None,
        }
    }

    /// Starts a turn and so ends the previous one. Uses the turn's own clock reading.
    #[inline]
    pub(crate) fn on_turn(&mut self, now: Mono, threshold_ns: u64) {
        self.turn_count += 1;
        if let Some(started) = self.started {
            let took_ns = now.since_ns(started);
            self.turn_max_ns = self.turn_max_ns.max(took_ns);
            self.long_turn_count += u64::from(took_ns > threshold_ns);
        }
        self.started = Some(now);
    }

    /// Excludes the time from now to the next turn: a wait, or time that other threads used.
    #[inline]
    pub(crate) fn on_rest(&mut self) {
        self.started = None;
    }
}
