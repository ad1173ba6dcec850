//! A pool of worker threads, each pinned to a core.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use onepipe_arbiter::{ArbiterConfig, ArbiterError};
use onepipe_transport_clock::{pin_to_core, reduce_wakeup_latency};
use onepipe_transport_driver::{Doorbell, Idle, IdleAction, Idler};

use crate::ring::{RingWorker, WorkerRings, connect_workers};

/// Maximum sleep of an idle worker: it sees the stop flag within this time.
const REST_MAX: Duration = Duration::from_millis(100);

/// Threads that allocate timeslots until the pool is dropped.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    /// Handle of each thread, set when it runs.
    threads: Vec<OnceLock<Thread>>,
}

impl Shared {
    /// Wakes worker `at`. A thread that does not run yet needs no wake-up: it begins by checking
    /// its queues.
    fn wake(&self, at: usize) {
        if let Some(thread) = self.threads[at].get() {
            thread.unpark();
        }
    }
}

/// Why a pool cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerPoolError {
    #[error(transparent)]
    Machine(#[from] ArbiterError),
    #[error(transparent)]
    Thread(#[from] io::Error),
}

impl WorkerPool {
    /// Starts a worker on each of `cores`. Unless threads spin, workers ring the doorbell of the
    /// control plane when a batch is ready.
    pub(crate) fn start(
        config: &ArbiterConfig,
        cores: &[usize],
        idle: Idle,
        control_doorbell: &Doorbell,
    ) -> Result<(Self, WorkerRings), WorkerPoolError> {
        let (ring_workers, rings) = connect_workers(config, cores.len())?;
        let threads = cores.iter().map(|_| OnceLock::new()).collect();
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), threads });
        let mut pool = Self { shared, threads: Vec::with_capacity(cores.len()) };
        for (at, (ring_worker, &core)) in ring_workers.into_iter().zip(cores).enumerate() {
            let shared = Arc::clone(&pool.shared);
            let doorbell = (idle != Idle::Spin).then(|| control_doorbell.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{at}"));
            pool.threads.push(thread.spawn(move || {
                // Pinning was tried before; without it the thread runs on any core.
                let _ = pin_to_core(core);
                reduce_wakeup_latency();
                let _ = shared.threads[at].set(std::thread::current());
                work(ring_worker, at, &shared, idle, doorbell.as_ref());
            })?);
        }
        Ok((pool, rings))
    }

    /// Wakes worker `at`.
    pub(crate) fn wake(&self, at: usize) {
        self.shared.wake(at);
    }

    /// # Panics
    /// When a worker has panicked: nothing would be granted any more, and no other arbiter would
    /// take over.
    pub(crate) fn assert_alive(&self) {
        assert!(!self.threads.iter().any(JoinHandle::is_finished), "a worker has ended");
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for (at, thread) in self.threads.drain(..).enumerate() {
            self.shared.wake(at);
            // The thread has reported its panic.
            let _ = thread.join();
        }
    }
}

fn work(
    mut ring_worker: RingWorker,
    at: usize,
    shared: &Shared,
    idle: Idle,
    control_doorbell: Option<&Doorbell>,
) {
    let next = (at + 1) % shared.threads.len();
    let mut idler = Idler::new(idle);
    while !shared.stop.load(Ordering::Acquire) {
        let done = ring_worker.turn();
        if done.has_forwarded && next != at {
            shared.wake(next);
        }
        if let (true, Some(control_doorbell)) = (done.has_written, control_doorbell) {
            control_doorbell.ring();
        }
        if done.is_busy {
            idler.on_busy();
            continue;
        }
        match idler.on_idle(true) {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => std::thread::yield_now(),
            IdleAction::Block => std::thread::park_timeout(REST_MAX),
        }
    }
}
