//! Large objects, sent in the timeslots that an arbiter gives out.

mod builder;
mod completion;
mod embedded;
mod shared;
mod thread;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use onepipe_arbiter::{ClientStats, TermsMismatch, TransferStats};
use onepipe_base::ProcessId;
use onepipe_transport_driver::Doorbell;

use crate::deadline::Deadline;

pub use builder::{OpenError, TransferBuilder};
pub use completion::Sending;
pub use embedded::EmbeddedTransfer;
use shared::{Shared, lock};

/// An object that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Who has sent it.
    pub from: ProcessId,
    /// Its number among the objects of this sender for this process, from 0.
    pub number: u32,
    /// Itself.
    pub bytes: Vec<u8>,
}

/// Why an object was not taken, or not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Objects that count as so many bytes wait already; it is handed back. Wait for one to be
    /// through.
    #[error("{queued} bytes of objects wait already: one of {} more must wait", object.len())]
    Full {
        /// Bytes that wait.
        queued: usize,
        /// The object.
        object: Vec<u8>,
    },
    /// There is no such endpoint, or it is this one.
    #[error("process {} is no other endpoint", .0.0)]
    Unknown(ProcessId),
    /// It has more pieces than can be numbered.
    #[error("the object is too large")]
    TooLarge,
    /// Its receiver has no room for it.
    #[error("process {} has no room for the object", .0.0)]
    Refused(ProcessId),
    /// The transfer was closed before all of the object had come to its receiver.
    #[error("closed before the object was through")]
    Closed,
}

/// One end of scheduled transfer: reliable objects of any size to other processes, each packet in a
/// timeslot of its own, so that no queue in the network fills. A thread of its own drives it; see
/// [`EmbeddedTransfer`] for an end without one.
///
/// It needs a switch (`onepipe switch`) and an arbiter behind it (`onepipe arbiter`). Objects
/// between two processes may overtake each other. What is lost is sent again; a receiver that is
/// not there is waited for, and holds up what is for others only by the bytes that wait.
///
/// [`Transfer::send`] answers a [`Sending`], a future that is also asked ([`Sending::outcome`]) or
/// waited for ([`Sending::wait`]). To drop it is to give the object up. Objects are received by a
/// future ([`Transfer::receive`]), by asking ([`Transfer::try_recv`]) or waiting
/// ([`Transfer::recv_timeout`]). Futures need no particular executor.
#[derive(Debug)]
pub struct Transfer {
    shared: Arc<Shared>,
    doorbell: Doorbell,
    thread: Option<JoinHandle<()>>,
}

impl Transfer {
    /// Says who it is, where its switch and its arbiters are.
    pub fn builder() -> TransferBuilder {
        TransferBuilder::new()
    }

    /// Takes an object for `to`. Never blocks. It is sent as long as the answer is kept.
    ///
    /// # Errors
    /// [`ObjectError::Full`], [`ObjectError::Unknown`]; [`ObjectError::Closed`] if its thread has
    /// died. Nothing was taken then.
    pub fn send(&self, to: ProcessId, object: Vec<u8>) -> Result<Sending, ObjectError> {
        let sending = self.shared.submit(to, object)?;
        self.doorbell.ring();
        Ok(sending)
    }

    /// The next object, once it has come.
    pub fn receive(&self) -> impl Future<Output = Object> + '_ {
        std::future::poll_fn(|context| self.poll_receive(context))
    }

    /// As [`Transfer::receive`], for futures of one's own. One task at a time is woken.
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Object> {
        let mut inbox = lock(&self.shared.inbox);
        match inbox.take() {
            Some(object) => Poll::Ready(object),
            None => {
                inbox.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// An object that has come, if there is one.
    pub fn try_recv(&self) -> Option<Object> {
        lock(&self.shared.inbox).take()
    }

    /// The next object, if one comes within `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Object> {
        let until = Deadline::after(timeout);
        let mut inbox = lock(&self.shared.inbox);
        loop {
            if let Some(object) = inbox.take() {
                return Some(object);
            }
            inbox = shared::wait(&self.shared.arrived, inbox, until.remaining()?);
        }
    }

    /// Waits until everything sent is through, for `timeout` at most, and ends. Answers whether it
    /// was; what was not is [`ObjectError::Closed`]. Dropping it waits for nothing.
    pub fn close(mut self, timeout: Duration) -> bool {
        let until = Deadline::after(timeout);
        let mut queued = lock(&self.shared.queued);
        while queued.count > 0 {
            let Some(left) = until.remaining() else { break };
            queued = shared::wait(&self.shared.completed, queued, left);
        }
        let completed = queued.count == 0;
        drop(queued);
        self.stop_thread();
        completed
    }

    /// What it has done, as of a moment ago: pieces and objects.
    pub fn stats(&self) -> TransferStats {
        lock(&self.shared.snapshot).transfer
    }

    /// What it has done, as of a moment ago: timeslots and control packets. If none is granted, a
    /// look at these tells why: nothing received from an arbiter (`control_received`), one that is
    /// set up with something else (`terms_mismatch`: see [`Transfer::terms_mismatch`]), or whose clock shows
    /// another time (`clock_skewed`, `late`, `ahead`).
    pub fn endpoint_stats(&self) -> ClientStats {
        lock(&self.shared.snapshot).endpoint
    }

    /// What an arbiter is set up with, and this end, if their timeslots or endpoints differ: such
    /// an arbiter grants nothing. As of a moment ago; `None` once one has answered that suits.
    pub fn terms_mismatch(&self) -> Option<TermsMismatch> {
        lock(&self.shared.snapshot).terms_mismatch
    }

    fn stop_thread(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.doorbell.ring();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; if it panicked, that was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stop_thread();
    }
}
