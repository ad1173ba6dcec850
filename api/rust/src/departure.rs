//! Leaving in good order, within bounded time.

use std::time::{Duration, Instant};

use crate::engine::{Engine, Fabric};

/// A process on its way out: first the fate of all its messages, then, in one last turn, the
/// acknowledgements that it owes others and the goodbye.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    leave_by: Instant,
}

impl Departure {
    pub(crate) fn begin(timeout: Duration) -> Self {
        Self { leave_by: Instant::now() + timeout }
    }

    /// Goes as far as it can between two turns; `has_more`: something is still to be submitted.
    /// Once it has left, or must leave, answers whether the fate of everything is known.
    pub(crate) fn step<T: Fabric>(&self, engine: &mut Engine<T>, has_more: bool) -> Option<bool> {
        let now = Instant::now();
        let endpoint = engine.node_mut().endpoint_mut();
        if endpoint.has_left() {
            return Some(true);
        }
        if !has_more && endpoint.is_settled() {
            endpoint.leave();
        }
        (now >= self.leave_by).then_some(false)
    }

    /// Whether the time to the next step is too short to block.
    pub(crate) fn is_near<T: Fabric>(&self, engine: &Engine<T>) -> bool {
        engine.node().endpoint().is_settled()
    }
}
