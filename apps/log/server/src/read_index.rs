//! Reads of the own state that see what was committed before them, as Raft's ReadIndex does.
//!
//! A member of the view has stored every committed entry, before its client knew. So a member that
//! has applied its own log as of the beginning of a read lacks nothing, unless the others have gone
//! on without it and it does not know yet. Then its commit barrier does not rise any more. So a
//! read waits until the commit barrier has passed both the time and the commit barrier of its
//! beginning, and then for what the log has at that moment. The time alone is not enough: the clock
//! of the process may be behind those of the others, so that its barrier is ahead of its time.

use std::collections::VecDeque;
use std::sync::Arc;

use onepipe::Timestamp;

use crate::handle::OnReadIndex;

/// What the replica of the node has. `None` if it is no member with the whole log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of entries of the log.
    pub len: u64,
    /// Number of those that are known to be committed.
    pub committed_len: u64,
}

/// The times of a turn of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The time of the fabric.
    pub now: Timestamp,
    /// The commit barrier, after all frames that have arrived.
    pub received: Option<Timestamp>,
    /// The commit barrier below which all messages were handled.
    pub handled: Option<Timestamp>,
}

/// Reads that have begun, in order.
#[derive(Default)]
pub struct ReadIndexes {
    /// Reads that have begun in this turn.
    new: Vec<OnReadIndex>,
    /// Reads that wait for the commit barrier to pass this timestamp.
    at_barrier: VecDeque<(Timestamp, OnReadIndex)>,
    /// Reads that wait until this number of entries is known to be committed.
    at_len: VecDeque<(u64, OnReadIndex)>,
}

impl ReadIndexes {
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.at_barrier.is_empty() && self.at_len.is_empty()
    }

    /// Returns the timestamp that the commit barrier has to pass, if a read waits for that.
    pub fn awaited(&self) -> Option<Timestamp> {
        self.at_barrier.back().map(|read| read.0)
    }

    /// Begins a read, before the pipe is driven in this turn.
    pub fn begin(&mut self, done: OnReadIndex) {
        self.new.push(done);
    }

    /// Finishes the reads that may be finished, after the pipe was driven. Returns whether there
    /// was one.
    pub fn advance(&mut self, times: Times, extent: Option<Extent>) -> bool {
        let Times { now, received, handled: barrier } = times;
        let begun_at = received.map_or(now, |received| now.max(received));
        self.at_barrier.extend(self.new.drain(..).map(|done| (begun_at, done)));
        let Some(Extent { len, committed_len }) = extent else {
            // What the log has now says nothing of what it has when the replica is a member again.
            let reads = std::mem::take(&mut self.at_len);
            self.at_barrier.extend(reads.into_iter().map(|(_, done)| (begun_at, done)));
            return false;
        };
        let has_passed =
            |read: &mut (Timestamp, _)| barrier.is_some_and(|barrier| read.0 < barrier);
        while let Some((_, done)) = self.at_barrier.pop_front_if(has_passed) {
            self.at_len.push_back((len, done));
        }
        // A change of the view removes entries that were not committed.
        let is_committed = |read: &mut (u64, _)| committed_len >= read.0.min(len);
        let mut has_finished = false;
        while let Some((_, done)) = self.at_len.pop_front_if(is_committed) {
            done(Ok(committed_len));
            has_finished = true;
        }
        has_finished
    }

    /// Fails all reads.
    pub fn fail(&mut self, reason: &Arc<str>) {
        let reads = std::mem::take(&mut self.at_barrier).into_iter().map(|read| read.1);
        let reads = reads.chain(self.new.drain(..));
        let reads = reads.chain(std::mem::take(&mut self.at_len).into_iter().map(|read| read.1));
        reads.for_each(|done| done(Err(Arc::clone(reason))));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_ns(ns)
    }

    fn extent(len: u64, committed_len: u64) -> Option<Extent> {
        Some(Extent { len, committed_len })
    }

    /// The times of a turn in which all messages below `handled` were handled.
    fn times(now: u64, handled: u64) -> Times {
        Times { now: at(now), received: Some(at(handled)), handled: Some(at(handled)) }
    }

    /// Begins a read at time 10.
    fn begin() -> (ReadIndexes, Receiver<Result<u64, Arc<str>>>) {
        let (sender, index) = channel();
        let mut reads = ReadIndexes::default();
        reads.begin(Box::new(move |result| sender.send(result).expect("it is awaited")));
        let no_barrier = Times { now: at(10), received: None, handled: None };
        assert!(!reads.advance(no_barrier, extent(3, 3)));
        (reads, index)
    }

    #[test]
    fn waits_for_barrier_then_for_what_the_log_has() {
        let (mut reads, index) = begin();
        assert!(!reads.advance(times(11, 10), extent(3, 3)), "it may have been excluded");
        // The log has five entries now, and later ones do not concern the read.
        assert!(!reads.advance(times(12, 11), extent(5, 3)));
        assert!(!reads.advance(times(13, 12), extent(7, 4)));
        assert!(reads.advance(times(14, 13), extent(7, 6)));
        assert_eq!(index.try_recv(), Ok(Ok(6)));
        assert!(reads.is_empty());
    }

    #[test]
    fn clock_that_is_behind_does_not_end_a_read() {
        let (sender, index) = channel();
        let mut reads = ReadIndexes::default();
        reads.begin(Box::new(move |result| sender.send(result).expect("it is awaited")));
        // The process is cut off: the barrier has arrived before, and rises no more.
        let times = Times { now: at(10), received: Some(at(50)), handled: Some(at(40)) };
        assert!(!reads.advance(times, extent(3, 3)));
        let times = Times { now: at(20), handled: Some(at(50)), ..times };
        assert!(!reads.advance(times, extent(3, 3)), "others may have gone on");
        assert!(reads.advance(self::times(21, 51), extent(3, 3)), "it was not cut off");
        assert_eq!(index.try_recv(), Ok(Ok(3)));
    }

    #[test]
    fn removed_entries_are_not_awaited() {
        let (mut reads, index) = begin();
        assert!(!reads.advance(times(12, 11), extent(5, 3)));
        assert!(reads.advance(times(13, 12), extent(4, 4)), "a new view has begun");
        assert_eq!(index.try_recv(), Ok(Ok(4)));
    }

    #[test]
    fn begins_again_when_the_replica_is_no_member() {
        let (mut reads, index) = begin();
        assert!(!reads.advance(times(12, 11), extent(5, 3)));
        assert!(!reads.advance(times(21, 20), None));
        assert!(!reads.advance(times(22, 21), extent(5, 5)), "as of the time 21");
        assert!(reads.advance(times(23, 22), extent(8, 8)));
        assert_eq!(index.try_recv(), Ok(Ok(8)));
        let (mut reads, index) = begin();
        reads.fail(&"it was stopped".into());
        assert_eq!(index.try_recv(), Ok(Err("it was stopped".into())));
    }
}
