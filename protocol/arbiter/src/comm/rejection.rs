//! Resets for endpoints with other parameters, which start no session.

use onepipe_base::{Mono, ProcessId};

/// The endpoint to reject, and when the next rejection is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rejection {
    to: Option<ProcessId>,
    not_before: Mono,
}

impl Rejection {
    pub const NONE: Self = Self { to: None, not_before: Mono::from_ns(0) };

    //= spec/arbiter.md#R22
    /// Rejects an endpoint, unless a rejection is pending or the last one was less than
    /// `interval_ns` before.
    pub fn request(&mut self, now: Mono, to: ProcessId, interval_ns: u64) {
        if self.to.is_none() && now >= self.not_before {
            self.to = Some(to);
            self.not_before = now.after_ns(interval_ns);
        }
    }

    /// Returns the endpoint to reject now.
    pub fn take(&mut self) -> Option<ProcessId> {
        self.to.take()
    }

    pub fn is_pending(&self) -> bool {
        self.to.is_some()
    }

    /// Drops a pending rejection.
    pub fn clear(&mut self) {
        self.to = None;
    }
}
