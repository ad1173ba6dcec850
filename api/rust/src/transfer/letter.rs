//! What becomes of one object.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::ObjectError;
use super::shared::{lock, wait};

/// An object under way: a future of its outcome.
#[derive(Debug)]
pub struct Sending {
    pub(super) letter: Arc<Letter>,
}

/// What the sender and the thread share of an object.
#[derive(Debug, Default)]
pub(super) struct Letter {
    state: Mutex<State>,
    is_done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<(), ObjectError>>,
    waker: Option<Waker>,
}

impl Letter {
    /// It is known now. What was known before stands.
    pub(super) fn settle(&self, outcome: Result<(), ObjectError>) {
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
}

impl Sending {
    /// What has become of it: `None` while it is under way.
    pub fn outcome(&self) -> Option<Result<(), ObjectError>> {
        lock(&self.letter.state).outcome.clone()
    }

    /// Waits for its outcome, for `timeout` at most: `None` while it is under way.
    pub fn wait(&self, timeout: Duration) -> Option<Result<(), ObjectError>> {
        let until = Instant::now() + timeout;
        let mut state = lock(&self.letter.state);
        loop {
            if state.outcome.is_some() {
                return state.outcome.clone();
            }
            let left = until.checked_duration_since(Instant::now())?;
            state = wait(&self.letter.is_done, state, left);
        }
    }
}

impl Future for Sending {
    type Output = Result<(), ObjectError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.letter.state);
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
