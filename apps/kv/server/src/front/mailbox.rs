//! Replies on their path from the threads of the backend to a thread of the front.

use std::future::poll_fn;
use std::mem::swap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use tokio::sync::oneshot;

use crate::backend::Replies;
use crate::wake_batch;

/// Replies with the session that waits for them.
pub(super) type Completion = (oneshot::Sender<Replies>, Replies);

/// The replies to the transactions of all connections of a thread.
///
/// To wake a task from another thread costs a system call each time, whether the thread that has
/// the task sleeps or not. So replies are only put down here, and the thread looks for them before
/// it sleeps. It is woken if it sleeps already.
#[derive(Default)]
pub(super) struct Mailbox {
    arrived: Mutex<Arrived>,
    is_asleep: AtomicBool,
}

#[derive(Default)]
struct Arrived {
    completions: Vec<Completion>,
    /// Wakes the task that passes the replies on.
    waker: Option<Waker>,
}

impl Mailbox {
    /// Adds replies, from any thread.
    pub fn put(&self, completion: Completion) {
        self.lock().completions.push(completion);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Notes that the thread is about to sleep, unless there are replies. Called by that thread.
    pub fn before_sleep(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        // Replies that are added after this look find the thread asleep.
        if !self.lock().completions.is_empty() {
            self.after_sleep();
            self.wake();
        }
    }

    /// Notes that the thread is awake.
    pub fn after_sleep(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Passes replies on to their sessions, in the thread of these.
    pub async fn pass_on(&self) {
        let mut completions = Vec::new();
        poll_fn(|cx| -> Poll<()> {
            let mut arrived = self.lock();
            arrived.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
            swap(&mut arrived.completions, &mut completions);
            drop(arrived);
            for (session, replies) in completions.drain(..) {
                // There is no receiver if the client has left.
                let _ = session.send(replies);
            }
            Poll::Pending
        })
        .await;
    }

    fn wake(&self) {
        let waker = self.lock().waker.clone();
        if let Some(waker) = waker {
            wake_batch::wake(waker);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().expect("no thread panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_a_sleeping_thread_once() {
        let mailbox = Mailbox::default();
        let count = Arc::new(Count::default());
        let woken = || count.0.load(Ordering::Relaxed);
        let waker = Arc::clone(&count).into();
        let mut cx = Context::from_waker(&waker);
        let mut pass_on = std::pin::pin!(mailbox.pass_on());
        assert!(pass_on.as_mut().poll(&mut cx).is_pending());
        let put = || {
            let (sender, receiver) = oneshot::channel();
            mailbox.put((sender, Ok(Vec::new())));
            receiver
        };

        let mut first = put();
        assert_eq!(woken(), 0, "the thread is awake");
        assert!(first.try_recv().is_err(), "the thread has not looked");
        mailbox.before_sleep();
        assert_eq!(woken(), 1, "the thread must not sleep");
        assert!(pass_on.as_mut().poll(&mut cx).is_pending());
        assert_eq!(first.try_recv(), Ok(Ok(Vec::new())));

        mailbox.before_sleep();
        assert_eq!(woken(), 1, "the thread sleeps");
        let (mut second, mut third) = (put(), put());
        assert_eq!(woken(), 2, "one wake-up for both");
        mailbox.after_sleep();
        assert!(pass_on.as_mut().poll(&mut cx).is_pending());
        assert!(second.try_recv().is_ok() && third.try_recv().is_ok());
    }
}
