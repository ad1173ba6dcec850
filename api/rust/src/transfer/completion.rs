//! The outcome of one object.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onepipe_transport_driver::Doorbell;

use super::ObjectError;
use super::sync::{lock, wait};
use crate::deadline::Deadline;

/// An object in transit: a future of its outcome.
///
/// Dropping it cancels the object, as [`Sending::cancel`] does: a wait with a timeout followed by a
/// drop gives the object a deadline. [`Sending::detach`] lets it complete unobserved.
#[derive(Debug)]
#[must_use = "dropping this cancels the object: wait for it, keep it or detach it"]
pub struct Sending {
    completion: Arc<Completion>,
    cancel_signal: Arc<CancelSignal>,
    is_detached: bool,
}

/// The outcome of an object, shared by its sender and the thread.
#[derive(Debug, Default)]
pub(super) struct Completion {
    state: Mutex<State>,
    is_done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<(), ObjectError>>,
    waker: Option<Waker>,
    is_cancelled: bool,
}

/// Signals to the thread that objects were cancelled.
#[derive(Debug)]
pub(super) struct CancelSignal {
    is_set: AtomicBool,
    doorbell: Doorbell,
}

impl CancelSignal {
    pub(super) fn new(doorbell: Doorbell) -> Self {
        Self { is_set: AtomicBool::new(false), doorbell }
    }

    fn ring(&self) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            self.doorbell.ring();
        }
    }

    /// Whether objects were cancelled since the last call.
    pub(super) fn take(&self) -> bool {
        self.is_set.load(Ordering::Relaxed) && self.is_set.swap(false, Ordering::AcqRel)
    }
}

impl Completion {
    /// Sets the outcome, unless it is known already.
    pub(super) fn complete(&self, outcome: Result<(), ObjectError>) {
        let mut state = lock(&self.state);
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.is_done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the object was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled
    }
}

impl Sending {
    pub(super) fn new(completion: Arc<Completion>, cancel_signal: Arc<CancelSignal>) -> Self {
        Self { completion, cancel_signal, is_detached: false }
    }

    /// The outcome; `None` while the object is in transit.
    pub fn outcome(&self) -> Option<Result<(), ObjectError>> {
        lock(&self.completion.state).outcome.clone()
    }

    /// Waits for the outcome for at most `timeout`; `None` while the object is in transit.
    pub fn wait(&self, timeout: Duration) -> Option<Result<(), ObjectError>> {
        let until = Deadline::after(timeout);
        let mut state = lock(&self.completion.state);
        loop {
            if state.outcome.is_some() {
                return state.outcome.clone();
            }
            state = wait(&self.completion.is_done, state, until.remaining()?);
        }
    }

    /// Cancels the object if it is in transit: its memory is soon released, and capacity is free
    /// for others. If all pieces have been sent, it may still be delivered; otherwise its received
    /// pieces take memory at the receiver for ten more seconds.
    pub fn cancel(self) {}

    /// Lets the object complete unobserved.
    pub fn detach(mut self) {
        self.is_detached = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_detached {
            return;
        }
        let mut state = lock(&self.completion.state);
        if state.outcome.is_none() {
            state.is_cancelled = true;
            drop(state);
            self.cancel_signal.ring();
        }
    }
}

impl Future for Sending {
    type Output = Result<(), ObjectError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.completion.state);
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
