//! What an end of scheduled transfer shares with its thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use onepipe_arbiter::{ClientStats, OBJECT_OCTETS_MIN, TransferStats, Unlike};
use onepipe_base::ProcessId;
use onepipe_transport_driver::Doorbell;

use super::letter::{Letter, Recall, Sending};
use super::{Object, ObjectError};

/// An object on its way to the thread.
#[derive(Debug)]
pub(super) struct Parcel {
    pub to: ProcessId,
    pub object: Vec<u8>,
    pub letter: Arc<Letter>,
}

/// What was sent and is not through.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// What the thread has not taken yet.
    pub parcels: VecDeque<Parcel>,
    /// Objects, the ones that the thread has taken with them, and the octets that they count as.
    pub count: usize,
    pub octets: usize,
}

/// What has come and was not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    objects: VecDeque<Object>,
    /// What they count as.
    octets: u64,
    pub waker: Option<Waker>,
}

impl Inbox {
    pub(super) fn take(&mut self) -> Option<Object> {
        let object = self.objects.pop_front()?;
        self.octets -= charge(object.octets.len()) as u64;
        Some(object)
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    process: ProcessId,
    endpoints: u32,
    send_octets_max: usize,
    receive_octets_max: u64,
    pub waiting: Mutex<Waiting>,
    pub is_through: Condvar,
    pub inbox: Mutex<Inbox>,
    pub has_come: Condvar,
    pub is_closing: AtomicBool,
    pub recall: Arc<Recall>,
    pub seen: Mutex<Seen>,
}

/// What is known of the end of late.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub transfer: TransferStats,
    pub endpoint: ClientStats,
    pub unlike: Option<Unlike>,
}

/// What an object of so many octets counts as.
pub(super) fn charge(octets: usize) -> usize {
    octets.max(OBJECT_OCTETS_MIN as usize)
}

impl Shared {
    /// `limits`: of what is on its way out, and of what is on its way in, in octets.
    pub(super) fn new(
        process: ProcessId,
        endpoints: u32,
        limits: (usize, u64),
        doorbell: Doorbell,
    ) -> Self {
        Self {
            process,
            endpoints,
            send_octets_max: limits.0,
            receive_octets_max: limits.1,
            waiting: Mutex::default(),
            is_through: Condvar::new(),
            inbox: Mutex::default(),
            has_come: Condvar::new(),
            is_closing: AtomicBool::new(false),
            recall: Arc::new(Recall::new(doorbell)),
            seen: Mutex::default(),
        }
    }

    pub(super) fn submit(&self, to: ProcessId, object: Vec<u8>) -> Result<Sending, ObjectError> {
        if to == self.process || to.0 >= self.endpoints {
            return Err(ObjectError::Unknown(to));
        }
        let (letter, octets) = (Arc::<Letter>::default(), charge(object.len()));
        let mut waiting = lock(&self.waiting);
        if self.is_closing.load(Ordering::Acquire) {
            return Err(ObjectError::Closed);
        }
        // One object may always wait, however large.
        if waiting.count > 0 && waiting.octets.saturating_add(octets) > self.send_octets_max {
            return Err(ObjectError::Full { waiting: waiting.octets, object });
        }
        waiting.count += 1;
        waiting.octets += octets;
        waiting.parcels.push_back(Parcel { to, object, letter: Arc::clone(&letter) });
        Ok(Sending::new(letter, Arc::clone(&self.recall)))
    }

    /// An object that counts as so many octets is through, one way or another.
    pub(super) fn on_through(&self, octets: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.count -= 1;
        waiting.octets -= octets;
        drop(waiting);
        self.is_through.notify_all();
    }

    /// Octets that may still come.
    pub(super) fn receive_room(&self) -> u64 {
        let kept = lock(&self.inbox).octets;
        self.receive_octets_max.saturating_sub(kept)
    }

    pub(super) fn on_received(&self, object: Object) {
        let mut inbox = lock(&self.inbox);
        inbox.octets += charge(object.octets.len()) as u64;
        inbox.objects.push_back(object);
        let waker = inbox.waker.take();
        drop(inbox);
        self.has_come.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The lock. Who panicked with it had changed one thing at a time, so what it guards is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits to be notified, for `timeout` at most.
pub(super) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    let waited = condition.wait_timeout(guard, timeout);
    waited.unwrap_or_else(PoisonError::into_inner).0
}
