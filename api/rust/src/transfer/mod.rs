//! Scheduled transfer: large objects, sent in timeslots granted by an arbiter.

mod builder;
mod completion;
mod embedded;
mod shared;
mod sync;
mod thread;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use onepipe_arbiter::{ClientStats, ParamsMismatch, TransferStats};
use onepipe_base::ProcessId;
use onepipe_transport_driver::DriverThread;
use onepipe_transport_udp::JoinFailure;

use crate::deadline::Deadline;

pub use builder::{OpenError, TransferBuilder};
pub use completion::Sending;
pub use embedded::EmbeddedTransfer;
use shared::Shared;
use sync::{lock, wait};

/// A received object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The sender.
    pub from: ProcessId,
    /// Its number among the objects from this sender to this process, from 0.
    pub number: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Why an object was not accepted, or not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The send queue is full; the object is returned. Wait until another one has completed.
    #[error("{queued} bytes of objects are queued: the queue has no capacity for {} more", object.len())]
    Full {
        /// Bytes in the send queue.
        queued: usize,
        /// The object.
        object: Vec<u8>,
    },
    /// There is no such endpoint, or it is this one.
    #[error("process {} is not another endpoint", .0.0)]
    Unknown(ProcessId),
    /// The object has more pieces than can be numbered.
    #[error("the object is too large")]
    TooLarge,
    /// The receiver has no memory for the object.
    #[error("process {} has no memory for the object", .0.0)]
    Refused(ProcessId),
    /// The transfer was closed before the object was delivered.
    #[error("the transfer was closed before the object was delivered")]
    Closed,
    /// The switch does not admit the endpoint any more, and it has ended: see
    /// [`Transfer::refusal`]. Whether the object was delivered is unknown.
    #[error(transparent)]
    NotAdmitted(JoinFailure),
}

/// An endpoint of scheduled transfer: reliable objects of any size to other processes, each packet
/// in a timeslot of its own, so that no queue in the network fills. Driven by a thread of its own;
/// see [`EmbeddedTransfer`] for an endpoint without one.
///
/// It needs a switch (`onepipe switch`) and an arbiter behind it (`onepipe arbiter`). Objects
/// between two processes may overtake each other. Lost pieces are retransmitted; an absent receiver
/// is waited for, and delays objects for others only through the capacity of the send queue.
///
/// [`Transfer::send`] returns a [`Sending`], a future that can also be polled
/// ([`Sending::outcome`]) or waited for ([`Sending::wait`]). Dropping it cancels the object.
/// Objects are received by a future ([`Transfer::receive`]), by polling ([`Transfer::try_recv`]) or
/// waiting ([`Transfer::recv_timeout`]). The futures need no particular executor.
#[derive(Debug)]
pub struct Transfer {
    shared: Arc<Shared>,
    /// Ends the endpoint when it is dropped.
    thread: DriverThread,
}

impl Transfer {
    /// Returns the settings of an endpoint.
    pub fn builder() -> TransferBuilder {
        TransferBuilder::new()
    }

    /// Submits an object for `to`. Never blocks. The object is sent as long as the returned value
    /// is kept.
    ///
    /// # Errors
    /// [`ObjectError::Full`], [`ObjectError::Unknown`]; [`ObjectError::NotAdmitted`] or
    /// [`ObjectError::Closed`] if the endpoint has ended. Then nothing was accepted.
    pub fn send(&self, to: ProcessId, object: Vec<u8>) -> Result<Sending, ObjectError> {
        let sending = self.shared.submit(to, object)?;
        self.thread.wake();
        Ok(sending)
    }

    /// Returns a future of the next object.
    ///
    /// # Errors
    /// No further object is received: [`ObjectError::NotAdmitted`], or [`ObjectError::Closed`] if
    /// the thread has died.
    pub fn receive(&self) -> impl Future<Output = Result<Object, ObjectError>> + '_ {
        std::future::poll_fn(|context| self.poll_receive(context))
    }

    /// Polls for the next object, for hand-written futures. Wakes one task at a time.
    ///
    /// # Errors
    /// As [`Transfer::receive`].
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Result<Object, ObjectError>> {
        let mut inbox = lock(&self.shared.inbox);
        match inbox.take() {
            Some(object) => Poll::Ready(Ok(object)),
            None if self.shared.has_ended() => Poll::Ready(Err(self.shared.end())),
            None => {
                inbox.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns the next object, if there is one.
    pub fn try_recv(&self) -> Option<Object> {
        lock(&self.shared.inbox).take()
    }

    /// Waits for the next object for at most `timeout`. Returns `None` at once if there is none and
    /// the endpoint has ended.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Object> {
        let until = Deadline::after(timeout);
        let mut inbox = lock(&self.shared.inbox);
        loop {
            if let Some(object) = inbox.take() {
                return Some(object);
            }
            if self.shared.has_ended() {
                return None;
            }
            inbox = wait(&self.shared.arrived, inbox, until.remaining()?);
        }
    }

    /// Waits until all sent objects have completed, for at most `timeout`, and ends the endpoint.
    /// Returns whether they had; the others end with [`ObjectError::Closed`]. Dropping the endpoint
    /// does not wait.
    pub fn close(mut self, timeout: Duration) -> bool {
        let until = Deadline::after(timeout);
        let mut queued = lock(&self.shared.queued);
        while queued.count > 0 && !self.shared.has_ended() {
            let Some(left) = until.remaining() else { break };
            queued = wait(&self.shared.completed, queued, left);
        }
        let completed = queued.count == 0;
        drop(queued);
        // A panic was printed by the thread; it has ended all objects.
        let _ = self.thread.stop();
        completed
    }

    /// Why the switch does not admit this endpoint any more: it was restarted with other settings.
    /// The endpoint has ended then. Its objects fail with [`ObjectError::NotAdmitted`], and none
    /// is received.
    pub fn refusal(&self) -> Option<OpenError> {
        lock(&self.shared.refusal).clone().map(OpenError::from)
    }

    /// Counters of pieces and objects, as of a moment ago.
    pub fn stats(&self) -> TransferStats {
        lock(&self.shared.snapshot).transfer
    }

    /// Counters of timeslots and control packets, as of a moment ago. They show why no timeslot is
    /// granted: nothing was received from an arbiter (`control_received`), its settings differ
    /// (`params_mismatch`: see [`Transfer::params_mismatch`]), or its clock does (`clock_apart`,
    /// `late`, `ahead`).
    pub fn endpoint_stats(&self) -> ClientStats {
        lock(&self.shared.snapshot).endpoint
    }

    /// The settings of an arbiter and of this endpoint, if their timeslots or endpoints differ:
    /// such an arbiter grants nothing. As of a moment ago; `None` once a matching arbiter has
    /// responded.
    pub fn params_mismatch(&self) -> Option<ParamsMismatch> {
        lock(&self.shared.snapshot).params_mismatch
    }
}
