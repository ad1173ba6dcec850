//! The thread that drives an endpoint of scheduled transfer.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onepipe_arbiter::{ObjectId, TransferError, TransferEvent};
use onepipe_base::ProcessId;
use onepipe_transport_driver::{DrivenService, StopFlag};

use super::completion::Completion;
use super::shared::{Shared, Snapshot, TransferRequest, charge};
use super::sync::lock;
use super::{EmbeddedTransfer, Object, ObjectError};

/// The endpoint that a thread drives.
pub(super) struct Thread {
    transfer: EmbeddedTransfer,
    outbox: Outbox,
    /// The limit that the machine has: setting it makes the machine look for something to send, so
    /// only changes are set.
    receive_capacity: Option<u64>,
}

impl Thread {
    pub(super) fn new(transfer: EmbeddedTransfer, shared: Arc<Shared>) -> Self {
        Self { transfer, outbox: Outbox::new(shared), receive_capacity: None }
    }
}

impl DrivenService for Thread {
    /// Breaks once the endpoint is not admitted any more, or is stopped.
    fn step(&mut self, stop: &StopFlag) -> ControlFlow<()> {
        let Self { transfer, outbox, receive_capacity } = self;
        if stop.is_set() {
            return ControlFlow::Break(());
        }
        if outbox.shared.cancel_signal.take() {
            outbox.release_cancelled(transfer);
        }
        while let Some(request) = outbox.next_request() {
            outbox.take(transfer, request);
        }
        if mem::take(&mut outbox.has_capacity) {
            outbox.retry_deferred(transfer);
        }
        let capacity = outbox.shared.receive_capacity();
        if receive_capacity.replace(capacity) != Some(capacity) {
            transfer.set_receive_bytes_max(capacity);
        }
        let progress = transfer.poll(|event| outbox.on_event(event));
        if !progress.is_idle() {
            *lock(&outbox.shared.snapshot) = Snapshot {
                transfer: *transfer.stats(),
                endpoint: *transfer.endpoint_stats(),
                params_mismatch: transfer.params_mismatch(),
            };
        }
        if let Some(failure) = transfer.failure() {
            *lock(&outbox.shared.refusal) = Some(failure);
            return ControlFlow::Break(());
        }
        transfer.rest(progress);
        ControlFlow::Continue(())
    }

    fn on_end(&mut self) {
        self.outbox.on_end();
    }
}

/// Outgoing objects that the machine has not completed.
struct Outbox {
    shared: Arc<Shared>,
    /// Objects that the machine has.
    completions: BTreeMap<ObjectId, Arc<Completion>>,
    /// Objects that do not fit the machine, by receiver: an absent receiver delays no other.
    deferred: BTreeMap<ProcessId, VecDeque<TransferRequest>>,
    /// The machine may have capacity for deferred objects.
    has_capacity: bool,
}

impl Outbox {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            completions: BTreeMap::new(),
            deferred: BTreeMap::new(),
            has_capacity: false,
        }
    }

    fn next_request(&self) -> Option<TransferRequest> {
        lock(&self.shared.queued).requests.pop_front()
    }

    /// Submits a request, or defers it behind others for the same receiver.
    fn take(&mut self, transfer: &mut EmbeddedTransfer, request: TransferRequest) {
        if request.completion.is_cancelled() {
            return self.shared.on_completed(charge(request.object.len()));
        }
        if let Some(deferred) = self.deferred.get_mut(&request.to) {
            return deferred.push_back(request);
        }
        if let Some(request) = self.submit(transfer, request) {
            self.deferred.insert(request.to, VecDeque::from([request]));
        }
    }

    fn retry_deferred(&mut self, transfer: &mut EmbeddedTransfer) {
        let mut deferred = mem::take(&mut self.deferred);
        deferred.retain(|_, requests| {
            while let Some(request) = requests.pop_front() {
                if let Some(request) = self.submit(transfer, request) {
                    requests.push_front(request);
                    break;
                }
            }
            !requests.is_empty()
        });
        self.deferred = deferred;
    }

    /// Passes a request to the machine; returns it if there is no capacity now.
    fn submit(
        &mut self,
        transfer: &mut EmbeddedTransfer,
        request: TransferRequest,
    ) -> Option<TransferRequest> {
        let TransferRequest { to, object, completion } = request;
        let bytes = object.len();
        let error = match transfer.send(to, object) {
            Ok(id) => {
                self.completions.insert(id, completion);
                return None;
            }
            Err(TransferError::Full(object)) => {
                return Some(TransferRequest { to, object, completion });
            }
            Err(TransferError::TooLarge) => ObjectError::TooLarge,
            // Further errors of the non-exhaustive type concern the receiver, too.
            Err(_) => ObjectError::Unknown(to),
        };
        self.shared.on_completed(charge(bytes));
        completion.complete(Err(error));
        None
    }

    fn on_event(&mut self, event: TransferEvent) {
        let (id, object, outcome) = match event {
            TransferEvent::Received(from, number, bytes) => {
                return self.shared.on_received(Object { from, number, bytes });
            }
            TransferEvent::Sent(id, object) => (id, object, Ok(())),
            TransferEvent::Refused(id, object) => (id, object, Err(ObjectError::Refused(id.dst))),
            _ => return,
        };
        self.has_capacity = !self.deferred.is_empty();
        // Release the capacity before the sender is notified: it may send the next object.
        self.shared.on_completed(charge(object.len()));
        // None if the object was cancelled after all of it was delivered.
        if let Some(completion) = self.completions.remove(&id) {
            completion.complete(outcome);
        }
    }

    /// Drops cancelled objects.
    fn release_cancelled(&mut self, transfer: &mut EmbeddedTransfer) {
        self.completions.retain(|id, completion| {
            let is_cancelled = completion.is_cancelled();
            if is_cancelled && let Some(object) = transfer.cancel(*id) {
                self.shared.on_completed(charge(object.len()));
            }
            !is_cancelled
        });
        self.has_capacity = !self.deferred.is_empty();
        for requests in self.deferred.values_mut() {
            requests.retain(|request| {
                let is_cancelled = request.completion.is_cancelled();
                if is_cancelled {
                    self.shared.on_completed(charge(request.object.len()));
                }
                !is_cancelled
            });
        }
        self.deferred.retain(|_, requests| !requests.is_empty());
    }

    /// Completes all objects when the endpoint has ended.
    fn on_end(&mut self) {
        self.shared.has_ended.store(true, Ordering::Release);
        // `submit` checks this flag with the lock held: later objects are refused.
        let unsent = mem::take(&mut lock(&self.shared.queued).requests);
        let unsent =
            unsent.into_iter().chain(mem::take(&mut self.deferred).into_values().flatten());
        let completions = mem::take(&mut self.completions).into_values();
        let completions = unsent.map(|request| request.completion).chain(completions);
        let end = self.shared.end();
        completions.for_each(|completion| completion.complete(Err(end.clone())));
        self.shared.on_ended();
    }
}

#[cfg(test)]
mod tests {
    use onepipe_transport_driver::{Doorbell, DriverThread, Panicked, Waker};

    use super::*;

    struct NoopWaker;

    impl Waker for NoopWaker {
        fn ring(&self) {}
    }

    /// Panics with one object taken and another one queued.
    struct PanickingService(Outbox);

    impl DrivenService for PanickingService {
        fn step(&mut self, _: &StopFlag) -> ControlFlow<()> {
            let request = self.0.next_request().expect("two requests are queued");
            let id = ObjectId { dst: request.to, number: 0 };
            self.0.completions.insert(id, request.completion);
            panic!("injected by the test");
        }

        fn on_end(&mut self) {
            self.0.on_end();
        }
    }

    #[test]
    fn sends_fail_when_the_thread_has_died() {
        let doorbell = Doorbell::new(Arc::new(NoopWaker));
        let shared = Shared::new(ProcessId(0), 4, (1 << 20, 1 << 20), doorbell.clone());
        let shared = Arc::new(shared);
        let sending =
            [1, 2].map(|to| shared.submit(ProcessId(to), vec![0; 9]).expect("there is capacity"));
        let service = PanickingService(Outbox::new(Arc::clone(&shared)));
        let thread = DriverThread::start("transfer-0".to_owned(), service, doorbell);
        let mut thread = thread.expect("the system has a thread");
        assert_eq!(thread.join(), Err(Panicked));
        for sending in sending {
            assert_eq!(sending.outcome(), Some(Err(ObjectError::Closed)));
        }
        let late = shared.submit(ProcessId(1), vec![]);
        assert!(matches!(late, Err(ObjectError::Closed)), "{late:?}");
    }
}
