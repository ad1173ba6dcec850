//! What becomes of one object.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onepipe_transport_driver::Doorbell;

use super::ObjectError;
use super::shared::{lock, wait};
use crate::deadline::Deadline;

/// An object under way: a future of its outcome.
///
/// Who drops it gives the object up, as [`Sending::cancel`] does: wait for it with a timeout and
/// drop it, and that was its deadline. [`Sending::detach`] lets it go on unwatched.
#[derive(Debug)]
#[must_use = "who drops it gives the object up: wait for it, keep it or detach it"]
pub struct Sending {
    completion: Arc<Completion>,
    cancel_signal: Arc<CancelSignal>,
    is_detached: bool,
}

/// What the sender and the thread share of an object.
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

/// How the thread learns that objects were given up.
#[derive(Debug)]
pub(super) struct CancelSignal {
    is_any: AtomicBool,
    doorbell: Doorbell,
}

impl CancelSignal {
    pub(super) fn new(doorbell: Doorbell) -> Self {
        Self { is_any: AtomicBool::new(false), doorbell }
    }

    fn ring(&self) {
        if !self.is_any.swap(true, Ordering::AcqRel) {
            self.doorbell.ring();
        }
    }

    /// Whether objects were given up since this was asked last.
    pub(super) fn take(&self) -> bool {
        self.is_any.load(Ordering::Relaxed) && self.is_any.swap(false, Ordering::AcqRel)
    }
}

impl Completion {
    /// It is known now. What was known before stands.
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

    /// Whether nobody wants its object to be sent any more.
    pub(super) fn is_cancelled(&self) -> bool {
        lock(&self.state).is_cancelled
    }
}

impl Sending {
    pub(super) fn new(completion: Arc<Completion>, cancel_signal: Arc<CancelSignal>) -> Self {
        Self { completion, cancel_signal, is_detached: false }
    }

    /// What has become of it: `None` while it is under way.
    pub fn outcome(&self) -> Option<Result<(), ObjectError>> {
        lock(&self.completion.state).outcome.clone()
    }

    /// Waits for its outcome, for `timeout` at most: `None` while it is under way.
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

    /// Gives the object up, if it is under way yet: its memory is free soon, and there is room for
    /// others. What has left has left, so it may yet come whole. If it does not, what has come of
    /// it takes room of the receiver's for ten seconds more.
    pub fn cancel(self) {}

    /// Lets the object go on, whatever becomes of it.
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
