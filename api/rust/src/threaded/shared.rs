//! State shared by the caller's thread and the driving thread, besides the rings.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use onepipe_base::{ProcessId, Timestamp};
use onepipe_endpoint::ProcessFailed;
use onepipe_transport_driver::Doorbell;

use super::waiter::Waiter;
use crate::engine::{Engine, Fabric};
use crate::process_set::{ProcessSet, processes};
use crate::{Event, Stats};

/// A callback for events.
pub(crate) type OnEvent = Box<dyn FnMut(Event<&[u8]>) + Send>;
/// A callback for failures.
pub(crate) type OnProcessFailed = Box<dyn FnMut(ProcessFailed) + Send>;

/// Values of [`Shared::sleep_state`]: when the caller must ring the doorbell.
pub(crate) mod sleep_state {
    /// The thread polls: never.
    pub(crate) const AWAKE: u8 = 0;
    /// The thread may block: for a request or a command.
    pub(crate) const ASLEEP: u8 = 1;
    /// The thread may block, and holds events for which it has no batch: also for a recycled batch.
    pub(crate) const ASLEEP_WITHOUT_BATCHES: u8 = 2;
}

pub(crate) struct Shared {
    /// Dropped when the driving thread ends: a doorbell keeps the fabric's memory alive.
    doorbell: Mutex<Option<Doorbell>>,
    /// One of [`sleep_state`]. Written by the driving thread.
    pub(crate) sleep_state: CachePadded<AtomicU8>,
    /// Bytes of requests that the endpoint has accepted so far, charges included. Written by the
    /// driving thread.
    pub(crate) accepted_bytes: CachePadded<AtomicU64>,
    /// Where the caller waits for events.
    pub(crate) event_waiter: CachePadded<Waiter>,
    /// Where the caller waits for capacity of the submission queue.
    pub(crate) capacity_waiter: CachePadded<Waiter>,
    /// One of the next three fields has changed. Set by the caller.
    pub(crate) is_commanded: AtomicBool,
    pub(crate) is_leaving: AtomicBool,
    pub(crate) on_event: Mutex<Option<OnEvent>>,
    pub(crate) on_process_failed: Mutex<Option<OnProcessFailed>>,
    /// This process was declared failed.
    pub(crate) is_excluded: AtomicBool,
    /// The driving thread has ended.
    pub(crate) has_ended: AtomicBool,
    /// Whether all outcomes were known when the driving thread ended.
    pub(crate) is_drained: AtomicBool,
    barrier: AtomicU64,
    peers: Box<[AtomicU64]>,
    stats: Mutex<Stats>,
}

impl Shared {
    pub(crate) fn new<T: Fabric>(engine: &Engine<T>) -> Self {
        let words = engine.peers().words().len();
        Self {
            doorbell: Mutex::new(Some(engine.doorbell())),
            sleep_state: CachePadded::new(AtomicU8::new(sleep_state::AWAKE)),
            accepted_bytes: CachePadded::default(),
            event_waiter: CachePadded::default(),
            capacity_waiter: CachePadded::default(),
            is_commanded: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            on_event: Mutex::new(None),
            on_process_failed: Mutex::new(None),
            is_excluded: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            barrier: AtomicU64::new(0),
            peers: (0..words).map(|_| AtomicU64::new(0)).collect(),
            stats: Mutex::new(engine.stats()),
        }
    }

    /// Wakes the driving thread if it may block; with `for_batch`, only if it lacks batches. Call
    /// it after publishing the work.
    #[inline]
    pub(crate) fn wake_driver(&self, for_batch: bool) {
        fence(Ordering::SeqCst);
        let state = self.sleep_state.load(Ordering::Relaxed);
        let must_ring = match state {
            sleep_state::AWAKE => false,
            sleep_state::ASLEEP => !for_batch,
            _ => true,
        };
        if must_ring
            && self.sleep_state.swap(sleep_state::AWAKE, Ordering::Relaxed) != sleep_state::AWAKE
        {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        if let Some(doorbell) = &*lock(&self.doorbell) {
            doorbell.ring();
        }
    }

    /// Marks the driving thread as ended and wakes the caller.
    pub(crate) fn end(&self) {
        *lock(&self.doorbell) = None;
        self.has_ended.store(true, Ordering::Release);
        self.event_waiter.wake();
        self.capacity_waiter.wake();
    }

    /// Makes the driving thread execute commands.
    pub(crate) fn command(&self) {
        self.is_commanded.store(true, Ordering::Release);
        self.wake_driver(false);
    }

    pub(crate) fn publish_peers(&self, peers: &ProcessSet) {
        for (shared, word) in self.peers.iter().zip(peers.words()) {
            shared.store(*word, Ordering::Relaxed);
        }
    }

    pub(crate) fn publish_stats(&self, stats: Stats) {
        *lock(&self.stats) = stats;
    }

    #[inline]
    pub(crate) fn publish_barrier(&self, barrier: Option<Timestamp>) {
        // 0 stands for `None`: no barrier is at 0.
        self.barrier.store(barrier.map_or(0, |barrier| barrier.as_ns()), Ordering::Relaxed);
    }

    pub(crate) fn barrier(&self) -> Option<Timestamp> {
        let ns = self.barrier.load(Ordering::Relaxed);
        (ns > 0).then(|| Timestamp::from_ns(ns))
    }

    pub(crate) fn peers(&self) -> Vec<ProcessId> {
        processes(self.peers.iter().map(|word| word.load(Ordering::Relaxed))).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        *lock(&self.stats)
    }
}

/// Locks `mutex`, even if a thread panicked while holding it: the values are replaced as a whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("sleep_state", &self.sleep_state)
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}
