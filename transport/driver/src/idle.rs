//! Idle strategies: spin, yield or block.

/// How a driver idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idle {
    /// Spins: the lowest latency, for a dedicated core.
    Spin,
    /// Yields the core after every idle turn.
    Yield,
    /// Spins for some turns, yields for some, then blocks until a frame arrives, the doorbell is
    /// rung or the machine's deadline expires. For shared machines.
    Backoff {
        /// Idle turns that spin.
        spins: u32,
        /// Idle turns after those that yield.
        yields: u32,
    },
}

impl Idle {
    /// Backs off after about 3 us of spinning over shared memory, 30 us where polling for frames is
    /// a system call: about the cost of a wake-up.
    pub const ADAPTIVE: Self = Self::Backoff { spins: 50, yields: 5 };
}

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

/// Counts consecutive idle turns.
#[derive(Clone, Debug)]
pub struct Idler {
    idle: Idle,
    idle_turn_count: u32,
}

impl Idler {
    /// Starts with no idle turn.
    pub fn new(idle: Idle) -> Self {
        Self { idle, idle_turn_count: 0 }
    }

    /// Notes a turn that did some work.
    pub fn on_busy(&mut self) {
        self.idle_turn_count = 0;
    }

    /// Returns the next step of backing off; `may_block` is false while the driver waits for
    /// something that does not wake it.
    pub fn on_idle(&mut self, may_block: bool) -> IdleAction {
        let idle_turn_count = self.idle_turn_count;
        self.idle_turn_count = idle_turn_count.saturating_add(1);
        match self.idle {
            Idle::Spin => IdleAction::Spin,
            Idle::Yield => IdleAction::Yield,
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
