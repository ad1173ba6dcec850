//! Recording of a history by the threads of a load generator.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::event::{Event, EventKind, Operation};
use crate::history::{History, HistoryError};

/// Records events of several threads in one order. Clones share the history.
///
/// Call [`Recorder::invoke`] before a transaction is sent and complete the returned handle after
/// its outcome has arrived: then every transaction lies between its two events, and the order of
/// events is evidence of real time.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    /// Wall time of `started`, in ns since 1970.
    origin_ns: u64,
    events: Mutex<Vec<Event>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Creates a recorder without events.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin_ns = since_epoch.as_nanos() as u64;
        let events = Mutex::new(Vec::new());
        Self { shared: Arc::new(Shared { started: Instant::now(), origin_ns, events }) }
    }

    /// Records that `process` requests a transaction. A process has one transaction at a time.
    pub fn invoke(&self, process: u32, operations: Vec<Operation>) -> InFlight {
        self.record(EventKind::Invoke, process, operations.clone());
        InFlight { recorder: self.clone(), process, operations }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events().len()
    }

    /// Returns whether no event has been recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the history up to now. A transaction in flight has an unknown outcome.
    pub fn history(&self) -> Result<History, HistoryError> {
        History::new(self.events().clone())
    }

    fn record(&self, kind: EventKind, process: u32, operations: Vec<Operation>) {
        // The time is read under the lock, so that times ascend in the history.
        let mut events = self.events();
        let elapsed_ns = self.shared.started.elapsed().as_nanos() as u64;
        let time_ns = self.shared.origin_ns.saturating_add(elapsed_ns);
        events.push(Event { kind, process, time_ns, operations });
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        // A push is complete or has not happened, even if a thread panicked.
        self.shared.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction in flight. If it is dropped, its outcome stays unknown and its process must not
/// begin another transaction.
#[derive(Debug)]
#[must_use = "the outcome of a transaction that is dropped stays unknown"]
pub struct InFlight {
    recorder: Recorder,
    process: u32,
    operations: Vec<Operation>,
}

impl InFlight {
    /// Records the commit. `results` are the operations of the invocation with what the reads
    /// returned.
    pub fn ok(self, results: Vec<Operation>) {
        self.recorder.record(EventKind::Ok, self.process, results);
    }

    /// Records that the transaction has certainly not been executed and never will be.
    pub fn fail(self) {
        self.recorder.record(EventKind::Fail, self.process, self.operations);
    }

    /// Records that the outcome is unknown.
    pub fn info(self) {
        self.recorder.record(EventKind::Info, self.process, self.operations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Outcome;

    #[test]
    fn threads_record_into_one_history() {
        let recorder = Recorder::new();
        std::thread::scope(|scope| {
            for process in 0..4 {
                let recorder = recorder.clone();
                scope.spawn(move || {
                    for number in 0..100 {
                        let operations = vec![Operation::append(i64::from(process), number)];
                        let in_flight = recorder.invoke(process, operations.clone());
                        match number % 3 {
                            0 => in_flight.ok(operations),
                            1 => in_flight.fail(),
                            _ => in_flight.info(),
                        }
                    }
                });
            }
        });
        assert_eq!(recorder.len(), 800);
        let history = recorder.history().expect("well-formed");
        assert!(history.events().is_sorted_by_key(|event| event.time_ns));
        let ok = history.transactions().iter().filter(|one| one.outcome == Outcome::Ok);
        assert_eq!(ok.count(), 4 * 34);
    }

    #[test]
    fn a_dropped_transaction_has_an_unknown_outcome() {
        let recorder = Recorder::default();
        assert!(recorder.is_empty());
        drop(recorder.invoke(1, vec![Operation::read("x")]));
        let history = recorder.history().expect("well-formed");
        assert_eq!(history.transactions()[0].outcome, Outcome::Info);
    }
}
