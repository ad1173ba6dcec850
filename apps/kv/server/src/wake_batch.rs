//! Wake-ups that wait for the end of a batch of replies.
//!
//! A thread that is woken by the first of several replies would begin at once, find one reply, and
//! sleep again: on a core that it shares with the thread that replies, after each of them.

use std::cell::RefCell;
use std::task::Waker;

thread_local! {
    /// The tasks to be woken at the end of this thread's batch, if it is in one.
    static BATCH: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Runs `replies`. What is to be woken by it is woken at its end.
pub(crate) fn batch<T>(replies: impl FnOnce() -> T) -> T {
    BATCH.set(Some(Vec::new()));
    let result = replies();
    let wakers = BATCH.with_borrow_mut(Option::take);
    wakers.into_iter().flatten().for_each(Waker::wake);
    result
}

/// Wakes a task: at the end of the batch, or at once if the thread is in none.
pub(crate) fn wake(waker: Waker) {
    let at_once = BATCH.with_borrow_mut(|batch| match batch {
        Some(batch) => {
            batch.push(waker);
            None
        }
        None => Some(waker),
    });
    if let Some(waker) = at_once {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_at_the_end_of_a_batch() {
        let count = Arc::new(Count::default());
        let woken = || count.0.load(Ordering::Relaxed);
        let waker = || Waker::from(Arc::clone(&count));
        wake(waker());
        assert_eq!(woken(), 1, "there is no batch");
        batch(|| {
            wake(waker());
            assert_eq!(woken(), 1, "the batch has not ended");
        });
        assert_eq!(woken(), 2);
        wake(waker());
        assert_eq!(woken(), 3, "the batch has ended");
    }
}
