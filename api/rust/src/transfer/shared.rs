//! What an end of scheduled transfer shares with its thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use onepipe_arbiter::{ClientStats, OBJECT_LEN_MIN, TermsMismatch, TransferStats};
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
    /// Objects, the ones that the thread has taken with them, and the bytes that they count as.
    pub count: usize,
    pub bytes: usize,
}

/// What has come and was not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    objects: VecDeque<Object>,
    /// What they count as.
    bytes: u64,
    pub waker: Option<Waker>,
}

impl Inbox {
    pub(super) fn take(&mut self) -> Option<Object> {
        let object = self.objects.pop_front()?;
        self.bytes -= charge(object.bytes.len()) as u64;
        Some(object)
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    process: ProcessId,
    endpoints: u32,
    send_bytes_max: usize,
    receive_bytes_max: u64,
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
    pub terms_mismatch: Option<TermsMismatch>,
}

/// What an object of so many bytes counts as.
pub(super) fn charge(bytes: usize) -> usize {
    bytes.max(OBJECT_LEN_MIN as usize)
}

impl Shared {
    /// `limits`: of what is on its way out, and of what is on its way in, in bytes.
    pub(super) fn new(
        process: ProcessId,
        endpoints: u32,
        limits: (usize, u64),
        doorbell: Doorbell,
    ) -> Self {
        Self {
            process,
            endpoints,
            send_bytes_max: limits.0,
            receive_bytes_max: limits.1,
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
        let (letter, bytes) = (Arc::<Letter>::default(), charge(object.len()));
        let mut waiting = lock(&self.waiting);
        if self.is_closing.load(Ordering::Acquire) {
            return Err(ObjectError::Closed);
        }
        // One object may always wait, however large.
        if waiting.count > 0 && waiting.bytes.saturating_add(bytes) > self.send_bytes_max {
            return Err(ObjectError::Full { waiting: waiting.bytes, object });
        }
        waiting.count += 1;
        waiting.bytes += bytes;
        waiting.parcels.push_back(Parcel { to, object, letter: Arc::clone(&letter) });
        Ok(Sending::new(letter, Arc::clone(&self.recall)))
    }

    /// An object that counts as so many bytes is through, one way or another.
    pub(super) fn on_through(&self, bytes: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.count -= 1;
        waiting.bytes -= bytes;
        drop(waiting);
        self.is_through.notify_all();
    }

    /// Bytes that may still come.
    pub(super) fn receive_room(&self) -> u64 {
        let kept = lock(&self.inbox).bytes;
        self.receive_bytes_max.saturating_sub(kept)
    }

    pub(super) fn on_received(&self, object: Object) {
        let mut inbox = lock(&self.inbox);
        inbox.bytes += charge(object.bytes.len()) as u64;
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
