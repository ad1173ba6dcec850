//! What to do with the processor when there is nothing to do.

/// How a driver idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Idle {
    /// Burns its core: the lowest latency, for a dedicated one.
    Spin,
    /// Offers the core to others after every idle turn.
    Yield,
    /// Spins for some turns, yields for some, then blocks until a frame, the doorbell or the
    /// machine's deadline. Civil on a shared machine.
    Backoff {
        /// Idle turns that spin.
        spins: u32,
        /// Idle turns after those that yield.
        yields: u32,
    },
}

impl Idle {
    /// Backing off after some 3 us of spinning on shared memory, 30 us where looking for frames is
    /// a system call: about what it costs to be woken.
    pub const ADAPTIVE: Self = Self::Backoff { spins: 50, yields: 5 };
}

/// What an idle turn shall end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleAction {
    /// The next turn follows at once.
    Spin,
    /// The core is offered to others first.
    Yield,
    /// It waits until it is woken.
    Block,
}

/// Counts idle turns in a row.
#[derive(Clone, Debug)]
pub struct Idler {
    idle: Idle,
    turns: u32,
}

impl Idler {
    /// With no idle turn yet.
    pub fn new(idle: Idle) -> Self {
        Self { idle, turns: 0 }
    }

    /// A turn did something.
    pub fn on_busy(&mut self) {
        self.turns = 0;
    }

    /// The next step down; `may_block` is false while something is due that nobody will wake us
    /// for.
    pub fn on_idle(&mut self, may_block: bool) -> IdleAction {
        let turns = self.turns;
        self.turns = turns.saturating_add(1);
        match self.idle {
            Idle::Spin => IdleAction::Spin,
            Idle::Yield => IdleAction::Yield,
            Idle::Backoff { spins, .. } if turns < spins => IdleAction::Spin,
            Idle::Backoff { spins, yields }
                if turns < spins.saturating_add(yields) || !may_block =>
            {
                IdleAction::Yield
            }
            Idle::Backoff { .. } => IdleAction::Block,
        }
    }
}
