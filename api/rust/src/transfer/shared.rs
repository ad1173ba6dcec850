//! The state that an endpoint of scheduled transfer shares with its thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;

use onepipe_arbiter::{ClientStats, OBJECT_LEN_MIN, ParamsMismatch, TransferStats};
use onepipe_base::ProcessId;
use onepipe_transport_driver::Doorbell;
use onepipe_transport_udp::JoinFailure;

use super::completion::{CancelSignal, Completion, Sending};
use super::sync::lock;
use super::{Object, ObjectError};

/// An object on its way to the thread.
#[derive(Debug)]
pub(super) struct TransferRequest {
    pub to: ProcessId,
    pub object: Vec<u8>,
    pub completion: Arc<Completion>,
}

/// Objects that were sent and have not completed.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// Objects that the thread has not taken yet.
    pub requests: VecDeque<TransferRequest>,
    /// Number of objects, including those that the thread has taken, and their charges in bytes.
    pub count: usize,
    pub bytes: usize,
}

/// Objects that the user has not received yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    objects: VecDeque<Object>,
    /// The charges of the objects, in bytes.
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
    pub queued: Mutex<SendQueue>,
    pub completed: Condvar,
    pub inbox: Mutex<Inbox>,
    pub arrived: Condvar,
    pub has_ended: AtomicBool,
    pub cancel_signal: Arc<CancelSignal>,
    pub snapshot: Mutex<Snapshot>,
    /// Why the thread has ended, if the switch does not admit the endpoint any more.
    pub refusal: Mutex<Option<JoinFailure>>,
}

/// The latest counters of the endpoint.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub transfer: TransferStats,
    pub endpoint: ClientStats,
    pub params_mismatch: Option<ParamsMismatch>,
}

/// Returns the number of bytes for which an object of the given length counts against the limits.
pub(super) fn charge(bytes: usize) -> usize {
    bytes.max(OBJECT_LEN_MIN as usize)
}

impl Shared {
    /// `limits` are the maximum bytes of outgoing and of incoming objects.
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
            queued: Mutex::default(),
            completed: Condvar::new(),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            has_ended: AtomicBool::new(false),
            cancel_signal: Arc::new(CancelSignal::new(doorbell)),
            snapshot: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    pub(super) fn submit(&self, to: ProcessId, object: Vec<u8>) -> Result<Sending, ObjectError> {
        if to == self.process || to.0 >= self.endpoints {
            return Err(ObjectError::Unknown(to));
        }
        let (completion, bytes) = (Arc::<Completion>::default(), charge(object.len()));
        let mut queued = lock(&self.queued);
        if self.has_ended() {
            return Err(self.end());
        }
        // A single object is always accepted.
        if queued.count > 0 && queued.bytes.saturating_add(bytes) > self.send_bytes_max {
            return Err(ObjectError::Full { queued: queued.bytes, object });
        }
        queued.count += 1;
        queued.bytes += bytes;
        queued.requests.push_back(TransferRequest {
            to,
            object,
            completion: Arc::clone(&completion),
        });
        Ok(Sending::new(completion, Arc::clone(&self.cancel_signal)))
    }

    /// Whether the thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Returns the error of all objects that the end of the thread has prevented.
    pub(super) fn end(&self) -> ObjectError {
        lock(&self.refusal).clone().map_or(ObjectError::Closed, ObjectError::NotAdmitted)
    }

    /// Wakes all that wait for the thread, which has ended.
    pub(super) fn on_ended(&self) {
        // The locks are taken so that a waiter that has read the flag before waits by now.
        let waker = lock(&self.inbox).waker.take();
        self.arrived.notify_all();
        drop(lock(&self.queued));
        self.completed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Accounts for an object that has completed in any way.
    pub(super) fn on_completed(&self, bytes: usize) {
        let mut queued = lock(&self.queued);
        queued.count -= 1;
        queued.bytes -= bytes;
        drop(queued);
        self.completed.notify_all();
    }

    /// Bytes that may still be received.
    pub(super) fn receive_capacity(&self) -> u64 {
        let received = lock(&self.inbox).bytes;
        self.receive_bytes_max.saturating_sub(received)
    }

    pub(super) fn on_received(&self, object: Object) {
        let mut inbox = lock(&self.inbox);
        inbox.bytes += charge(object.bytes.len()) as u64;
        inbox.objects.push_back(object);
        let waker = inbox.waker.take();
        drop(inbox);
        self.arrived.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
