//! Leaving a fabric gracefully, within bounded time.

use std::time::{Duration, Instant};

use crate::LeaveError;
use crate::engine::{Engine, Fabric};

/// The state of a leaving process: everything sent and received is resolved, and the switch
/// acknowledges that the process leaves. What is not resolved in time is handed back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GracefulLeave {
    /// `None`: beyond the range of the clock.
    leave_by: Option<Instant>,
}

impl GracefulLeave {
    pub(crate) fn begin(timeout: Duration) -> Self {
        Self { leave_by: Instant::now().checked_add(timeout) }
    }

    /// Advances between two turns. Returns how the process has left, once it has.
    pub(crate) fn step<T: Fabric>(&self, engine: &mut Engine<T>) -> Option<Result<(), LeaveError>> {
        if let Some(lost) = engine.loss() {
            return Some(Err(LeaveError::SegmentLost(lost)));
        }
        let process = engine.process();
        let node = engine.node_mut();
        let is_drained = node.is_drained();
        if node.endpoint().has_left() {
            let messages = node.undelivered();
            return Some(match (messages, is_drained) {
                (1.., _) => Err(LeaveError::Undelivered { process, messages }),
                (0, false) => Err(LeaveError::Unresolved(process)),
                (0, true) if node.endpoint().is_leave_unacknowledged() => {
                    Err(LeaveError::Unacknowledged(process))
                }
                (0, true) => Ok(()),
            });
        }
        node.leave();
        if !node.endpoint().is_member() {
            // No process waits for a failed one, and it learns no further outcomes.
            return Some(if is_drained { Ok(()) } else { Err(LeaveError::Unresolved(process)) });
        }
        if self.leave_by.is_some_and(|leave_by| Instant::now() >= leave_by) {
            if node.endpoint().is_resolved() {
                return Some(Err(LeaveError::Unacknowledged(process)));
            }
            node.hand_back();
        }
        None
    }
}
