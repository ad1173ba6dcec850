//! How long turns take.

use onepipe_base::Mono;

/// Counters of a driver's duty cycle: a turn that takes long is a machine that handles too much at
/// once, an event callback that blocks, or a core that was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// Turns taken.
    pub turns: u64,
    /// Turns that found something to do.
    pub turns_busy: u64,
    /// Turns that took longer than the threshold.
    pub turns_long: u64,
    /// The longest time from the start of a turn to the start of the next, in ns, without waits.
    pub turn_max_ns: u64,
    /// Times that the driver blocked.
    pub waits: u64,
    /// Times that the clock went back and was held.
    pub clock_held: u64,
    started: Option<Mono>,
}

impl Duty {
    pub(crate) const fn new() -> Self {
        Self {
            turns: 0,
            turns_busy: 0,
            turns_long: 0,
            turn_max_ns: 0,
            waits: 0,
            clock_held: 0,
            started: None,
        }
    }

    /// A turn starts, and so ends the one before. No clock is read for this: a turn does that
    /// anyway.
    #[inline]
    pub(crate) fn on_turn(&mut self, now: Mono, threshold_ns: u64) {
        self.turns += 1;
        if let Some(started) = self.started {
            let took_ns = now.since_ns(started);
            self.turn_max_ns = self.turn_max_ns.max(took_ns);
            self.turns_long += u64::from(took_ns > threshold_ns);
        }
        self.started = Some(now);
    }

    /// What follows is a wait or somebody else's time, not this turn's.
    #[inline]
    pub(crate) fn on_rest(&mut self) {
        self.started = None;
    }
}
