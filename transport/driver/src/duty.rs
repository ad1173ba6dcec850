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
    /// Number of pauses: times that a turn began later than the threshold after it was due, because
    /// the thread was off its core, or a callback took that long.
    pub pause_count: u64,
    /// Longest such pause, in ns.
    pub pause_max_ns: u64,
    started: Option<Mono>,
    /// The pauses since the last warning, and the time of that warning.
    unreported: Pauses,
    warned_at: Option<Mono>,
}

/// Pauses of a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    /// Number of pauses.
    pub(crate) count: u64,
    /// The longest of them, in ns.
    pub(crate) max_ns: u64,
}

/// Shortest time between two warnings, in ns.
const WARNING_INTERVAL_NS: u64 = 1_000_000_000;

impl Duty {
    pub(crate) const fn new() -> Self {
        Self {
            turn_count: 0,
            busy_turn_count: 0,
            long_turn_count: 0,
            turn_max_ns: 0,
            waits: 0,
            clock_held: 0,
            pause_count: 0,
            pause_max_ns: 0,
            started: None,
            unreported: Pauses { count: 0, max_ns: 0 },
            warned_at: None,
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

    //= spec/failure.md#R63
    /// Handles that a turn began `late_ns` after it was due. Returns the pauses that are to be
    /// reported now, at most once a second.
    #[cold]
    pub(crate) fn on_pause(&mut self, now: Mono, late_ns: u64) -> Option<Pauses> {
        self.pause_count += 1;
        self.pause_max_ns = self.pause_max_ns.max(late_ns);
        self.unreported.count += 1;
        self.unreported.max_ns = self.unreported.max_ns.max(late_ns);
        let is_due = self.warned_at.is_none_or(|at| now.since_ns(at) >= WARNING_INTERVAL_NS);
        is_due.then(|| {
            self.warned_at = Some(now);
            std::mem::take(&mut self.unreported)
        })
    }

    /// Excludes the time from now to the next turn: a wait, or time that other threads used.
    #[inline]
    pub(crate) fn on_rest(&mut self) {
        self.started = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= spec/failure.md#R63
    #[test]
    fn pauses_are_reported_once_a_second() {
        let mut duty = Duty::new();
        let mut reported = Vec::new();
        for (at_ms, late_ms) in [(500, 300), (900, 700), (1_400, 400), (1_600, 300), (9_000, 400)] {
            let at = Mono::from_ns(at_ms * 1_000_000);
            if let Some(pauses) = duty.on_pause(at, late_ms) {
                reported.push((at_ms, pauses.count, pauses.max_ns));
            }
        }
        assert_eq!(reported, [(500, 1, 300), (1_600, 3, 700), (9_000, 1, 400)]);
        assert_eq!((duty.pause_count, duty.pause_max_ns), (5, 700));
    }
}
