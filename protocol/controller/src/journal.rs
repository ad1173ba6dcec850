//! Records on their way into the store, one after another.

use alloc::collections::VecDeque;

use onepipe_base::{Mono, Now};

use crate::{Record, StoreError};

/// A machine's own number of a record that it wants written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// What the store has answered, without its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The epoch is over.
    Deposed,
    /// The store does not answer, or not yet; whether the record was written is not known.
    Failed,
}

impl<E> From<StoreError<E>> for Refused {
    fn from(error: StoreError<E>) -> Self {
        match error {
            StoreError::Deposed => Self::Deposed,
            StoreError::Failed(_) => Self::Failed,
        }
    }
}

/// The records that wait. The store sees one at a time, so the log is in the order of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Journal {
    last: u64,
    queue: VecDeque<(RecordId, Record)>,
    is_offered: bool,
    has_failed: bool,
    retry_at: Option<Mono>,
}

impl Journal {
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
    pub(crate) fn written(&mut self, id: RecordId) -> Option<Record> {
        if !self.is_offered(id) {
            return None;
        }
        (self.is_offered, self.has_failed) = (false, false);
        self.queue.pop_front().map(|(_, record)| record)
    }

    /// The store has not written `id`: it is offered again after `pause_ns`. Answers whether it was
    /// asked for.
    pub(crate) fn refused(&mut self, now: Now, id: RecordId, pause_ns: u64) -> bool {
        if !self.is_offered(id) {
            return false;
        }
        (self.is_offered, self.has_failed) = (false, true);
        self.retry_at = Some(now.mono.after_ns(pause_ns));
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
    fn records_are_written_in_order_and_again_when_the_store_fails() {
        let mut journal = Journal::default();
        let record = |instances| Record::Resumed { instances, links: Vec::new() };
        let first = journal.push(record(Vec::new()));
        let second = journal.push(Record::Members(Vec::new()));
        assert_eq!(journal.poll(), Some((first, record(Vec::new()))));
        assert_eq!(journal.poll(), None, "one at a time");
        assert!(!journal.refused(now(5), second, 10));
        assert!(journal.refused(now(5), first, 10));
        assert_eq!((journal.poll(), journal.due()), (None, Some(Mono::from_ns(15))));
        journal.on_timeout(Mono::from_ns(15));
        assert!(journal.has_failed() && journal.poll().is_some());
        assert_eq!(journal.written(second), None);
        assert_eq!(journal.written(first), Some(record(Vec::new())));
        assert_eq!(journal.written(first), None, "once");
        assert_eq!(journal.poll().map(|(id, _)| id), Some(second));
        journal.clear();
        assert_eq!((journal.written(second), journal.len()), (None, 0));
        assert!(journal.push(Record::Members(Vec::new())) > second);
    }
}
