//! A thread that drives a service until the service ends or is stopped.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use onepipe_transport_clock::reduce_wakeup_latency;

use crate::Doorbell;

/// A service that a [`DriverThread`] drives.
pub trait DrivenService: Send + 'static {
    /// Takes a turn, and idles after it. Breaks once the service has ended, as it must soon after
    /// `stop` is set. A step that blocks looks at `stop` after the doorbell's wait is announced, or
    /// waits for a doorbell that ends the next wait as well.
    fn step(&mut self, stop: &StopFlag) -> ControlFlow<()>;

    /// Publishes the end to waiting callers. Called once, after the last step, which may have
    /// panicked.
    fn on_end(&mut self);
}

/// Says whether a service must end.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Whether the service must end.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The service has panicked. The thread has printed the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

/// A thread that drives a service. Dropping the value stops the service, and waits for its end.
#[derive(Debug)]
pub struct DriverThread {
    stop: StopFlag,
    doorbell: Doorbell,
    /// `None` once the end of the thread has been waited for.
    thread: Option<JoinHandle<()>>,
}

impl DriverThread {
    /// Starts a thread that drives `service`. `doorbell` ends the waits of the service.
    ///
    /// # Errors
    /// If the system refuses a thread; then the service is dropped.
    pub fn start(
        name: String,
        service: impl DrivenService,
        doorbell: Doorbell,
    ) -> io::Result<Self> {
        let stop = StopFlag::default();
        let thread_stop = stop.clone();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || run(service, &thread_stop))?;
        Ok(Self { stop, doorbell, thread: Some(thread) })
    }

    /// Wakes the service from its wait.
    #[inline]
    pub fn wake(&self) {
        self.doorbell.ring();
    }

    /// Whether the end of the service has been waited for.
    pub fn is_joined(&self) -> bool {
        self.thread.is_none()
    }

    /// Waits until the service has ended by itself.
    ///
    /// # Errors
    /// [`Panicked`], in the first call after it.
    pub fn join(&mut self) -> Result<(), Panicked> {
        self.thread.take().map_or(Ok(()), |thread| thread.join().map_err(|_| Panicked))
    }

    /// Stops the service, and waits for its end.
    ///
    /// # Errors
    /// [`Panicked`], in the first call after it.
    pub fn stop(&mut self) -> Result<(), Panicked> {
        if self.is_joined() {
            return Ok(());
        }
        // In this order: the service looks at the flag whenever the doorbell has ended its wait.
        self.stop.0.store(true, Ordering::SeqCst);
        self.doorbell.ring();
        self.join()
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        // Callers that need the result call `stop`.
        let _ = self.stop();
    }
}

/// Ends the service when the thread ends, even by a panic.
struct EndGuard<S: DrivenService>(S);

impl<S: DrivenService> Drop for EndGuard<S> {
    fn drop(&mut self) {
        self.0.on_end();
    }
}

fn run(service: impl DrivenService, stop: &StopFlag) {
    reduce_wakeup_latency();
    let mut service = EndGuard(service);
    while service.0.step(stop).is_continue() {}
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
    use std::time::Duration;

    use super::*;
    use crate::Waker;

    /// Longer than any test takes: a service that waits so long was not woken.
    const WAIT_MAX: Duration = Duration::from_secs(60);

    #[derive(Debug, PartialEq, Eq)]
    enum Call {
        Step,
        End,
        WaitExpired,
        Dropped,
    }

    /// Rings by a message, so that the next wait ends as well.
    struct Bell(Sender<()>);

    impl Waker for Bell {
        fn ring(&self) {
            // Without a receiver the service has ended.
            let _ = self.0.send(());
        }
    }

    /// Reports its calls, and waits for the doorbell in each step.
    struct TestService {
        calls: Sender<Call>,
        rings: Receiver<()>,
        /// Number of steps after which the service ends by itself, or panics.
        steps: u32,
        panics: bool,
    }

    impl DrivenService for TestService {
        fn step(&mut self, stop: &StopFlag) -> ControlFlow<()> {
            if stop.is_set() {
                return ControlFlow::Break(());
            }
            let _ = self.calls.send(Call::Step);
            self.steps -= 1;
            if self.steps == 0 {
                assert!(!self.panics, "injected by the test");
                return ControlFlow::Break(());
            }
            if self.rings.recv_timeout(WAIT_MAX).is_err() {
                let _ = self.calls.send(Call::WaitExpired);
            }
            ControlFlow::Continue(())
        }

        fn on_end(&mut self) {
            let _ = self.calls.send(Call::End);
        }
    }

    impl Drop for TestService {
        fn drop(&mut self) {
            let _ = self.calls.send(Call::Dropped);
        }
    }

    fn start(steps: u32, panics: bool) -> (DriverThread, Receiver<Call>) {
        let (calls, received) = channel();
        let (bell, rings) = channel();
        let service = TestService { calls, rings, steps, panics };
        let doorbell = Doorbell::new(Arc::new(Bell(bell)));
        let thread = DriverThread::start("test".to_owned(), service, doorbell);
        (thread.expect("the system has a thread"), received)
    }

    #[test]
    fn stop_ends_a_waiting_service() {
        let (mut thread, calls) = start(u32::MAX, false);
        assert_eq!(calls.recv(), Ok(Call::Step));
        assert!(!thread.is_joined());
        assert_eq!(thread.stop(), Ok(()));
        assert!(thread.is_joined());
        assert_eq!(Vec::from_iter(calls), [Call::End, Call::Dropped]);
        assert_eq!(thread.stop(), Ok(()), "a second stop has nothing to do");
    }

    #[test]
    fn wake_up_is_not_lost_beside_a_wait() {
        // The stop comes before, while and after the service begins to wait.
        for spins in 0..200 {
            let (mut thread, calls) = start(u32::MAX, false);
            (0..spins * 50).for_each(|_| std::hint::spin_loop());
            assert_eq!(thread.stop(), Ok(()));
            assert!(calls.into_iter().all(|call| call != Call::WaitExpired));
        }
    }

    #[test]
    fn wake_leads_to_one_more_step() {
        let (mut thread, calls) = start(3, false);
        for _ in 0..2 {
            assert_eq!(calls.recv(), Ok(Call::Step));
            assert_eq!(calls.try_recv(), Err(TryRecvError::Empty), "the service waits");
            thread.wake();
        }
        assert_eq!(thread.join(), Ok(()), "the service ends by itself");
        assert_eq!(Vec::from_iter(calls), [Call::Step, Call::End, Call::Dropped]);
    }

    #[test]
    fn panic_is_reported_after_the_end() {
        let (mut thread, calls) = start(1, true);
        assert_eq!(Vec::from_iter(calls), [Call::Step, Call::End, Call::Dropped]);
        assert_eq!(thread.stop(), Err(Panicked));
        assert_eq!(thread.stop(), Ok(()), "reported once");
    }

    #[test]
    fn drop_stops_and_joins() {
        let (thread, calls) = start(u32::MAX, false);
        assert_eq!(calls.recv(), Ok(Call::Step));
        drop(thread);
        // No further call can come: the thread has ended.
        let calls: Vec<Call> = calls.try_iter().collect();
        assert_eq!(calls, [Call::End, Call::Dropped]);
    }
}
