//! Submission of scatterings.

use std::sync::MutexGuard;
use std::time::Duration;

use onepipe_base::ScatteringId;
use onepipe_endpoint::{Message, SendError};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_wire::Service;

use super::core::{Core, ThreadState};
use super::shared::Shared;
use super::{COALESCE_NS, Deadline, Pipe};

impl Pipe {
    #[inline]
    pub(super) fn submit(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        let mut core = self.shared.lock();
        let is_thread_driven = self.shared.is_thread_driven();
        let mut submitted = core.scatter(service, messages);
        if let Err(SendError::BufferFull { .. }) = submitted
            && !is_thread_driven
        {
            core.turn_beside_thread();
            submitted = core.scatter(service, messages);
        }
        let id = submitted?;
        Self::dispatch(&self.shared, &mut self.clock, core);
        Ok(id)
    }

    /// Has what was submitted leave: at once, or with what was submitted a moment before.
    #[inline]
    pub(super) fn dispatch(
        shared: &Shared,
        clock: &mut SystemClock,
        mut core: MutexGuard<'_, Core>,
    ) {
        if shared.is_thread_driven() {
            core.wake_thread(ThreadState::Driving);
            return;
        }
        let now = clock.read().mono;
        let is_due = core.last_turn().is_none_or(|last| now.since_ns(last) >= COALESCE_NS);
        match core.thread_state {
            // Its next turn sends the scattering.
            ThreadState::Driving => return,
            _ if is_due => core.turn_beside_thread(),
            ThreadState::Standby => {}
            ThreadState::Waiting(_) => core.wake_thread(ThreadState::Driving),
        }
        if core.thread_state == ThreadState::Standby {
            drop(core);
            shared.on_used(now);
        }
    }

    pub(super) fn submit_wait(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
        timeout: Duration,
    ) -> Result<ScatteringId, SendError> {
        let mut full = match self.submit(service, messages) {
            Err(full @ SendError::BufferFull { .. }) => full,
            submitted => return submitted,
        };
        let deadline = Deadline::after(timeout);
        let submitted =
            Self::drive(&self.shared, &mut self.clock, Some(deadline), |core| {
                match core.scatter(service, messages) {
                    Err(error @ SendError::BufferFull { .. }) => {
                        full = error;
                        None
                    }
                    submitted => {
                        self.shared.turn(core);
                        Some(submitted)
                    }
                }
            });
        submitted.unwrap_or(Err(full))
    }
}
