//! Leaving in good order, within bounded time.

use std::time::{Duration, Instant};

use crate::engine::{Engine, Fabric};

/// A process on its way out: first the fate of all its messages, then the acknowledgements that it
/// owes others, then the goodbye.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GracefulLeave {
    leave_by: Instant,
    /// Acknowledgements are put off by the endpoint's `ack_delay_ns`; whoever leaves before they
    /// are sent makes others ask after messages that have long been delivered.
    acks_sent_by: Instant,
}

impl GracefulLeave {
    pub(crate) fn begin<T: Fabric>(engine: &Engine<T>, timeout: Duration) -> Self {
        let now = Instant::now();
        let delay = Duration::from_nanos(engine.config().ack_delay_ns);
        Self { leave_by: now + timeout, acks_sent_by: now + 2 * delay }
    }

    /// Goes as far as it can between two turns; `has_more`: something is still to be submitted.
    /// Once it has left, or must leave, answers whether the fate of everything is known.
    pub(crate) fn step<T: Fabric>(&self, engine: &mut Engine<T>, has_more: bool) -> Option<bool> {
        let now = Instant::now();
        let is_drained = engine.node().is_drained();
        let endpoint = engine.node_mut().endpoint_mut();
        if endpoint.has_left() {
            return Some(true);
        }
        if !endpoint.is_member() {
            // Nobody waits for one who has failed, and it will learn no more.
            endpoint.leave();
            return Some(is_drained);
        }
        if !has_more && is_drained && now >= self.acks_sent_by {
            endpoint.leave();
        }
        (now >= self.leave_by).then_some(false)
    }

    /// Whether the time to the next step is too short to block.
    pub(crate) fn is_near<T: Fabric>(&self, engine: &Engine<T>) -> bool {
        engine.node().is_drained()
    }
}
