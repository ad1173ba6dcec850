//! The queue of records on their way into the store.

use alloc::collections::VecDeque;

use onepipe_base::{Mono, Now};

use crate::{Record, StoreError};

/// A controller's own number of a record to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// Why the store has not written a record, without the store's own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PersistError {
    /// The epoch is over.
    Deposed,
    /// The store has failed or does not answer; whether the record was written is unknown.
    Failed,
}

impl<E> From<StoreError<E>> for PersistError {
    fn from(error: StoreError<E>) -> Self {
        match error {
            StoreError::Deposed => Self::Deposed,
            StoreError::Failed(_) => Self::Failed,
        }
    }
}

/// Records to be written. They are offered to the store one at a time, so that the log is in the
/// order of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PersistQueue {
    last: u64,
    queue: VecDeque<(RecordId, Record)>,
    attempt: Attempt,
    has_failed: bool,
}

/// What happens to the first record of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Attempt {
    /// The record is to be offered to the store, if there is one.
    #[default]
    Due,
    /// The store has yet to return a result.
    Offered,
    /// The store has failed, and is not asked before `until`.
    Resting { until: Mono },
}

impl PersistQueue {
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        let first = self.last + 1 - self.queue.len() as u64;
        let numbers = self.queue.iter().map(|(id, _)| id.0);
        assert!(numbers.eq(first..=self.last), "records have consecutive numbers");
        let is_resting = matches!(self.attempt, Attempt::Resting { .. });
        let is_pending = self.attempt != Attempt::Due || self.has_failed;
        assert!(!is_pending || !self.queue.is_empty(), "there is no record to write");
        assert!(!is_resting || self.has_failed, "an attempt is repeated that has not failed");
    }

    /// Queues `record`. Returns its number.
    pub(crate) fn push(&mut self, record: Record) -> RecordId {
        self.last += 1;
        let id = RecordId(self.last);
        self.queue.push_back((id, record));
        id
    }

    /// Returns the record to write now; once per attempt.
    pub(crate) fn poll(&mut self) -> Option<(RecordId, Record)> {
        if self.attempt != Attempt::Due {
            return None;
        }
        let (id, record) = self.queue.front()?;
        assert!(id.0 <= self.last, "a number that was not given");
        self.attempt = Attempt::Offered;
        Some((*id, record.clone()))
    }

    /// Whether `id` was offered to the store and its result is outstanding.
    pub(crate) fn is_offered(&self, id: RecordId) -> bool {
        self.attempt == Attempt::Offered
            && self.queue.front().is_some_and(|(front, _)| *front == id)
    }

    /// Handles the successful write of `id`. Returns the record, or `None` if `id` was not
    /// outstanding.
    pub(crate) fn on_written(&mut self, id: RecordId) -> Option<Record> {
        if !self.is_offered(id) {
            return None;
        }
        (self.attempt, self.has_failed) = (Attempt::Due, false);
        self.queue.pop_front().map(|(_, record)| record)
    }

    /// Handles the failed write of `id`, which is offered again after `retry_after_ns`. Returns
    /// whether `id` was outstanding.
    pub(crate) fn on_failed(&mut self, now: Now, id: RecordId, retry_after_ns: u64) -> bool {
        if !self.is_offered(id) {
            return false;
        }
        let until = now.mono.after_ns(retry_after_ns);
        (self.attempt, self.has_failed) = (Attempt::Resting { until }, true);
        true
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        match self.attempt {
            Attempt::Resting { until } => Some(until),
            Attempt::Due | Attempt::Offered => None,
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Mono) {
        if self.due().is_some_and(|until| until <= now) {
            self.attempt = Attempt::Due;
        }
    }

    /// Drops all records. Their numbers are not reused.
    pub(crate) fn clear(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the last attempt failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(RecordId, Record)> {
        self.queue.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use onepipe_base::Timestamp;

    fn now(ns: u64) -> Now {
        Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) }
    }

    #[test]
    fn retries_records_in_order_after_a_store_failure() {
        let mut persist_queue = PersistQueue::default();
        let record = |instances| Record::Resumed { instances, links: Vec::new() };
        let first = persist_queue.push(record(Vec::new()));
        let second = persist_queue.push(Record::Members(Vec::new()));
        assert_eq!(persist_queue.poll(), Some((first, record(Vec::new()))));
        assert_eq!(persist_queue.poll(), None, "one at a time");
        assert!(!persist_queue.on_failed(now(5), second, 10));
        assert!(persist_queue.on_failed(now(5), first, 10));
        assert_eq!((persist_queue.poll(), persist_queue.due()), (None, Some(Mono::from_ns(15))));
        persist_queue.on_timeout(Mono::from_ns(15));
        assert!(persist_queue.has_failed() && persist_queue.poll().is_some());
        assert_eq!(persist_queue.on_written(second), None);
        assert_eq!(persist_queue.on_written(first), Some(record(Vec::new())));
        assert_eq!(persist_queue.on_written(first), None, "once");
        assert_eq!(persist_queue.poll().map(|(id, _)| id), Some(second));
        persist_queue.clear();
        assert_eq!((persist_queue.on_written(second), persist_queue.len()), (None, 0));
        assert!(persist_queue.push(Record::Members(Vec::new())) > second);
    }
}
