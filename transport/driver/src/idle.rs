//! Idle strategies: spin, yield or block.

/// How a driver idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idle {
    /// Spins: the lowest latency, for a dedicated core.
    Spin,
    /// Yields the core after every idle turn.
    Yield,
    /// Spins for some turns, yields for some, then blocks until a frame arrives, the doorbell is
    /// rung or the machine's deadline expires. Where spinning has not paid off lately, blocks at
    /// once. For shared machines.
    Backoff {
        /// Idle turns that spin.
        spins: u32,
        /// Idle turns after those that yield.
        yields: u32,
    },
}

impl Idle {
    /// Backs off after about 3 us of polling: less than the cost of a wake-up.
    pub const ADAPTIVE: Self = Self::Backoff { spins: 50, yields: 5 };

    /// Returns the strategy for a thread that drives this number of machines, one turn of each
    /// after the other: its rounds take as many times as long as a turn.
    #[must_use]
    pub fn among(self, machines: usize) -> Self {
        let machines = u32::try_from(machines).unwrap_or(u32::MAX).max(1);
        match self {
            Self::Backoff { spins, yields } => {
                Self::Backoff { spins: spins.div_ceil(machines), yields: yields.div_ceil(machines) }
            }
            other => other,
        }
    }

    /// Returns the strategy for a transport whose polls are system calls, if `by_system_call`: a
    /// poll takes six times as long there, and processes that yield to each other in turn keep the
    /// one from its core that could do something.
    pub(crate) fn over(self, by_system_call: bool) -> Self {
        match self {
            Self::Backoff { spins, .. } if by_system_call => {
                Self::Backoff { spins: spins.div_ceil(POLLS_PER_SYSTEM_CALL), yields: 0 }
            }
            other => other,
        }
    }
}

/// Number of polls of shared memory that take as long as a system call that finds no frame.
const POLLS_PER_SYSTEM_CALL: u32 = 6;

/// Number of frames received between two waits from which on they are a stream.
const STREAM_FRAMES: usize = 4;

/// How an idle turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleAction {
    /// The next turn follows at once.
    Spin,
    /// The core is yielded first.
    Yield,
    /// The thread blocks until woken.
    Block,
}

/// What a turn means for idling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idleness {
    /// The turn did some work.
    Busy,
    /// The turn did none, and what the machine waits for does not wake it.
    Polls,
    /// The turn did none. Input wakes the machine.
    Waits,
}

/// One idle period in this number spins in full, even if spinning has not paid off lately.
const TRIAL_PERIODS: u32 = 32;
/// Credit of spinning: what one success adds, and the most that there is. A failure takes one. Full
/// at the start.
const SUCCESS_CREDIT: u32 = 4;
const CREDIT_MAX: u32 = 16;

/// Counts consecutive idle turns, and whether spinning through them has paid off: whether work came
/// before the driver would have blocked. Where it has not, a driver that may block does so at once.
/// So a driver under a steady load spins between two frames, and one with a message every now and
/// then does not.
#[derive(Clone, Debug)]
pub struct Idler {
    idle: Idle,
    idle_turn_count: u32,
    credit: u32,
    periods: u32,
    /// Whether this idle period spins.
    is_spinning: bool,
    /// Number of frames received since the last wait.
    frames: usize,
}

impl Idler {
    /// Starts with no idle turn.
    pub fn new(idle: Idle) -> Self {
        let (credit, is_spinning) = (CREDIT_MAX, true);
        Self { idle, idle_turn_count: 0, credit, periods: 0, is_spinning, frames: 0 }
    }

    /// Returns the next step after a turn.
    pub fn next(&mut self, idleness: Idleness) -> IdleAction {
        match idleness {
            Idleness::Busy => {
                self.on_busy();
                IdleAction::Spin
            }
            Idleness::Polls => self.on_idle(false),
            Idleness::Waits => self.on_idle(true),
        }
    }

    /// Notes that frames were received.
    #[inline]
    pub fn on_frames(&mut self, count: usize) {
        self.frames = self.frames.saturating_add(count);
    }

    /// Returns after a wait whether the driver should yield its core once before it receives: since
    /// the wait before, frames came as a stream, so the one that has ended this wait is the first
    /// of several. With more processes than cores each of them would otherwise wake for every
    /// frame, at the price of system calls and of a change of context. At a light load a wake-up
    /// brings one frame or two, and to yield would be to wait for whatever else wants the core.
    pub fn is_woken_by_stream(&mut self) -> bool {
        core::mem::take(&mut self.frames) >= STREAM_FRAMES
    }

    /// Notes a turn that did some work.
    pub fn on_busy(&mut self) {
        if self.idle_turn_count > 0 {
            self.on_period_end();
        }
    }

    /// Ends an idle period: judges whether spinning has paid off, and decides about the next one.
    fn on_period_end(&mut self) {
        let Idle::Backoff { spins, yields } = self.idle else {
            self.idle_turn_count = 0;
            return;
        };
        if self.is_spinning {
            let has_paid_off = self.idle_turn_count <= spins.saturating_add(yields);
            self.credit = match has_paid_off {
                true => (self.credit + SUCCESS_CREDIT).min(CREDIT_MAX),
                false => self.credit.saturating_sub(1),
            };
        }
        self.idle_turn_count = 0;
        self.periods = self.periods.wrapping_add(1);
        self.is_spinning = self.credit > 0 || self.periods.is_multiple_of(TRIAL_PERIODS);
    }

    /// Returns the next step of backing off; `may_block` is false while the driver waits for
    /// something that does not wake it.
    pub fn on_idle(&mut self, may_block: bool) -> IdleAction {
        let idle_turn_count = self.idle_turn_count;
        self.idle_turn_count = idle_turn_count.saturating_add(1);
        match self.idle {
            Idle::Spin => IdleAction::Spin,
            Idle::Yield => IdleAction::Yield,
            Idle::Backoff { .. } if may_block && !self.is_spinning => IdleAction::Block,
            Idle::Backoff { spins, .. } if idle_turn_count < spins => IdleAction::Spin,
            Idle::Backoff { spins, yields }
                if idle_turn_count < spins.saturating_add(yields) || !may_block =>
            {
                IdleAction::Yield
            }
            Idle::Backoff { .. } => IdleAction::Block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Idles for `turns` turns, or until the driver blocks. Returns the number of turns that spin.
    fn spins(idler: &mut Idler, turns: u32) -> u32 {
        (0..turns).take_while(|_| idler.on_idle(true) != IdleAction::Block).count() as u32
    }

    #[test]
    fn blocks_at_once_where_spinning_has_not_paid_off() {
        let mut idler = Idler::new(Idle::Backoff { spins: 8, yields: 2 });
        for _ in 0..CREDIT_MAX {
            assert_eq!(spins(&mut idler, 100), 10, "spins while it has credit");
            idler.on_busy();
        }
        let periods = (0..2 * TRIAL_PERIODS).map(|_| {
            let count = spins(&mut idler, 100);
            idler.on_busy();
            count
        });
        let periods: Vec<u32> = periods.collect();
        assert_eq!(periods.iter().filter(|count| **count == 10).count(), 2, "two trials");
        assert!(periods.iter().all(|count| [0, 10].contains(count)), "{periods:?}");
    }

    #[test]
    fn stream_is_what_came_between_two_waits() {
        let mut idler = Idler::new(Idle::ADAPTIVE);
        idler.on_frames(STREAM_FRAMES - 1);
        assert!(!idler.is_woken_by_stream());
        idler.on_frames(1);
        assert!(!idler.is_woken_by_stream(), "frames before the last wait do not count");
        idler.on_frames(1);
        idler.on_frames(STREAM_FRAMES - 1);
        assert!(idler.is_woken_by_stream());
        assert!(!idler.is_woken_by_stream());
    }

    #[test]
    fn spins_again_when_it_pays_off() {
        let mut idler = Idler::new(Idle::Backoff { spins: 8, yields: 0 });
        for _ in 0..2 * CREDIT_MAX {
            spins(&mut idler, 100);
            idler.on_busy();
        }
        // Frames arrive after three turns again: the next trial finds that out.
        let mut spinning = 0;
        for _ in 0..4 * TRIAL_PERIODS {
            spinning += u32::from(spins(&mut idler, 3) == 3);
            idler.on_busy();
        }
        assert!(spinning > 2 * TRIAL_PERIODS, "{spinning}");
    }

    #[test]
    fn never_blocks_where_it_must_not() {
        let mut idler = Idler::new(Idle::Backoff { spins: 1, yields: 1 });
        assert!((0..100).all(|_| idler.on_idle(false) != IdleAction::Block));
    }

    #[test]
    fn rounds_of_several_machines_spin_as_long_as_turns_of_one() {
        let spinning = |machines| {
            let mut idler = Idler::new(Idle::Backoff { spins: 48, yields: 4 }.among(machines));
            (spins(&mut idler, 100) as usize) * machines
        };
        assert_eq!([1, 2, 4].map(spinning), [52; 3]);
        // A round is the least.
        assert_eq!(spinning(100), 200, "one spins, and one yields");
    }
}
