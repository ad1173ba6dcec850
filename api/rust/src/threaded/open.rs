//! Open reliable scatterings of a pipe: lists and cancels them.

use onepipe_base::ScatteringId;
use onepipe_endpoint::OpenScattering;

use super::Pipe;
#[cfg(doc)]
use crate::Event;

impl Pipe {
    /// The reliable scatterings without an outcome: those that were sent by ascending timestamp,
    /// then those that wait to be sent, each with the receivers that it waits for.
    pub fn open_scatterings(&self) -> Vec<OpenScattering> {
        self.shared.lock().open_scatterings()
    }

    /// Cancels a reliable scattering: it is recalled where it has arrived, so that no receiver
    /// delivers it, and [`Event::SendFailed`] follows for each of its messages, with
    /// [`crate::FailureReason::Cancelled`]. Returns false if its outcome is known, or if it was
    /// recalled before. If all receivers acknowledge it before the recall is sent, it is delivered.
    ///
    /// ```
    /// use onepipe::{Event, FailureReason, Message, Outcome, Pipe, ProcessId};
    ///
    /// let fabric = format!("doc-cancel-{}", std::process::id());
    /// let mut pipe = Pipe::builder().fabric(fabric).process(0).join()?;
    /// // Process 1 has not joined, so this one waits.
    /// let waiting = pipe.scatter_reliably(&[Message { to: ProcessId(1), payload: b"hello" }])?;
    /// let open = pipe.open_scatterings();
    /// assert_eq!((open[0].scattering, &open[0].receivers[..]), (waiting, &[ProcessId(1)][..]));
    /// assert!(pipe.cancel(waiting));
    /// let Event::SendFailed(failed) = pipe.recv()? else { panic!("expected a failure") };
    /// assert_eq!((failed.outcome, failed.reason), (Outcome::Lost, FailureReason::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&mut self, scattering: ScatteringId) -> bool {
        let mut core = self.shared.lock();
        let is_open = core.cancel(scattering);
        self.shared.turn(&mut core);
        is_open
    }
}
