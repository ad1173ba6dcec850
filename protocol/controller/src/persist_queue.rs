//! Records on their way into the store, one after another.

use alloc::collections::VecDeque;

use onepipe_base::{Mono, Now};

use crate::{Record, StoreError};

/// A machine's own number of a record that it wants written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// What the store has answered, without its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PersistError {
    /// The epoch is over.
    Deposed,
    /// The store does not answer, or not yet; whether the record was written is not known.
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

/// The records that wait. The store sees one at a time, so the log is in the order of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PersistQueue {
    last: u64,
    queue: VecDeque<(RecordId, Record)>,
    is_offered: bool,
    has_failed: bool,
    retry_at: Option<Mono>,
}

impl PersistQueue {
    /// Wants `record` written. Answers its number.
    pub(crate) fn push(&mut self, record: Record) -> RecordId {
        self.last += 1;
        let id = RecordId(self.last);
        self.queue.push_back((id, record));
        id
    }

    /// The record to write now, each time once.
    pub(crate) fn poll(&mut self) -> Option<(RecordId, Record)> {
        if self.is_offered || self.retry_at.is_some() {
            return None;
        }
        let (id, record) = self.queue.front()?;
        self.is_offered = true;
        Some((*id, record.clone()))
    }

    /// Whether the store has been given `id` and has not answered.
    pub(crate) fn is_offered(&self, id: RecordId) -> bool {
        self.is_offered && self.queue.front().is_some_and(|(front, _)| *front == id)
    }

    /// The store has written `id`: answers it, or `None` if it was not asked for.
    pub(crate) fn on_written(&mut self, id: RecordId) -> Option<Record> {
        if !self.is_offered(id) {
            return None;
        }
        (self.is_offered, self.has_failed) = (false, false);
        self.queue.pop_front().map(|(_, record)| record)
    }

    /// The store has not written `id`: it is offered again after `retry_after_ns`. Answers whether it was
    /// asked for.
    pub(crate) fn on_refused(&mut self, now: Now, id: RecordId, retry_after_ns: u64) -> bool {
        if !self.is_offered(id) {
            return false;
        }
        (self.is_offered, self.has_failed) = (false, true);
        self.retry_at = Some(now.mono.after_ns(retry_after_ns));
        true
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        self.retry_at
    }

    pub(crate) fn on_timeout(&mut self, now: Mono) {
        self.retry_at.take_if(|at| *at <= now);
    }

    /// Nothing is wanted any more. Numbers are not used again.
    pub(crate) fn clear(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the store has refused the record that it was offered last.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.queue.iter().map(|(_, record)| record)
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
        assert!(!persist_queue.on_refused(now(5), second, 10));
        assert!(persist_queue.on_refused(now(5), first, 10));
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
