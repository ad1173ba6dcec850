//! Leaving a fabric gracefully, within bounded time.

use std::time::{Duration, Instant};

use crate::engine::{Engine, Fabric};

/// The state of a leaving process: it waits for the outcomes of its messages, then for its pending
/// acknowledgements to be sent, and then announces that it leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GracefulLeave {
    /// `None`: beyond the range of the clock.
    leave_by: Option<Instant>,
    /// The endpoint delays acknowledgements by `ack_delay_ns`; leaving before they are sent would
    /// make peers probe for messages that were delivered long ago.
    acks_sent_by: Instant,
}

impl GracefulLeave {
    pub(crate) fn begin<T: Fabric>(engine: &Engine<T>, timeout: Duration) -> Self {
        let now = Instant::now();
        let delay = Duration::from_nanos(engine.config().ack_delay_ns);
        Self { leave_by: now.checked_add(timeout), acks_sent_by: now + 2 * delay }
    }

    /// Advances between two turns. Once the process has left, or must leave, returns whether all
    /// outcomes are known.
    pub(crate) fn step<T: Fabric>(&self, engine: &mut Engine<T>) -> Option<bool> {
        let now = Instant::now();
        let is_drained = engine.node().is_drained();
        let endpoint = engine.node_mut().endpoint_mut();
        if endpoint.has_left() {
            return Some(true);
        }
        if !endpoint.is_member() {
            // No process waits for a failed one, and it learns no further outcomes.
            endpoint.leave();
            return Some(is_drained);
        }
        if is_drained && now >= self.acks_sent_by {
            endpoint.leave();
        }
        self.leave_by.is_some_and(|leave_by| now >= leave_by).then_some(false)
    }

    /// Whether only the acknowledgement delay remains: too short a time to block.
    pub(crate) fn is_nearly_done<T: Fabric>(&self, engine: &Engine<T>) -> bool {
        engine.node().is_drained()
    }
}
