//! Which replica answers a read, and when.

use std::collections::BTreeSet;

use onepipe_base::mistake::{Mistake, makes};

/// Lets a read begin on a replica that has applied every write that was acknowledged before.
///
/// Then no read goes back in time: a write that a read has returned counts as acknowledged for the
/// reads after it ([`ReadGate::handle_read`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadGate {
    /// All writes up to this position were acknowledged, or returned by a read.
    seen: u64,
    /// Position that each replica has applied; `None` for one that answers no reads.
    applied: Vec<Option<u64>>,
    /// The replica that is asked first by the next read.
    next: usize,
    /// Reads that wait for a position.
    waiting: BTreeSet<(u64, u64)>,
    /// Number of the last read.
    reads: u64,
}

/// Where a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// The read begins on this replica.
    Now(usize),
    /// The read waits, under this number, for [`ReadGate::poll_ready`].
    Waits(u64),
}

impl ReadGate {
    /// Creates the gate of a number of replicas, none of which answers reads yet.
    pub fn new(replicas: usize) -> ReadGate {
        let applied = vec![None; replicas];
        ReadGate { seen: 0, applied, next: 0, waiting: BTreeSet::new(), reads: 0 }
    }

    /// Returns the position up to which all writes were acknowledged, or returned by a read.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Notes that the write at a position was acknowledged.
    pub fn handle_acknowledged(&mut self, position: u64) {
        self.seen = self.seen.max(position);
    }

    /// Notes that a read has returned the change at a position.
    pub fn handle_read(&mut self, position: u64) {
        self.seen = self.seen.max(position);
    }

    /// Notes what a replica has applied, or that it answers no reads.
    pub fn handle_applied(&mut self, replica: usize, position: Option<u64>) {
        self.applied[replica] = position;
    }

    /// Returns whether a replica has applied every write that was acknowledged so far.
    pub fn is_current(&self, replica: usize) -> bool {
        self.applied[replica].is_some_and(|applied| applied >= self.seen)
    }

    /// Begins a read.
    pub fn begin(&mut self) -> ReadStart {
        match self.choose(self.seen) {
            Some(replica) => ReadStart::Now(replica),
            None => {
                self.reads += 1;
                self.waiting.insert((self.seen, self.reads));
                ReadStart::Waits(self.reads)
            }
        }
    }

    /// Returns a read that no longer waits, and its replica.
    pub fn poll_ready(&mut self) -> Option<(u64, usize)> {
        let (position, read) = *self.waiting.first()?;
        let replica = self.choose(position)?;
        self.waiting.remove(&(position, read));
        Some((read, replica))
    }

    /// Returns the next replica in turn that has applied a position.
    fn choose(&mut self, position: u64) -> Option<usize> {
        let count = self.applied.len();
        let has_applied = |at: &usize| {
            let applied = self.applied[*at];
            applied.is_some_and(|applied| applied >= position || makes(Mistake::LaggingRead))
        };
        let found = (self.next..self.next + count).map(|at| at % count).find(has_applied)?;
        self.next = (found + 1) % count;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_waits_for_a_replica_with_all_acknowledged_writes() {
        let mut gate = ReadGate::new(2);
        assert_eq!(gate.begin(), ReadStart::Waits(1));
        assert_eq!(gate.poll_ready(), None);
        gate.handle_applied(1, Some(0));
        assert_eq!(gate.poll_ready(), Some((1, 1)));
        gate.handle_acknowledged(3);
        assert_eq!(gate.begin(), ReadStart::Waits(2));
        gate.handle_applied(0, Some(2));
        assert_eq!(gate.poll_ready(), None);
        gate.handle_applied(0, Some(3));
        assert_eq!(gate.poll_ready(), Some((2, 0)));
        assert_eq!(gate.poll_ready(), None);
    }

    #[test]
    fn replicas_take_turns() {
        let mut gate = ReadGate::new(3);
        (0..3).for_each(|replica| gate.handle_applied(replica, Some(1)));
        let starts: Vec<_> = (0..4).map(|_| gate.begin()).collect();
        assert_eq!(starts, [0, 1, 2, 0].map(ReadStart::Now));
        gate.handle_applied(1, None);
        assert_eq!([0, 1, 2].map(|at| gate.is_current(at)), [true, false, true]);
        assert_eq!(gate.begin(), ReadStart::Now(2));
        gate.handle_read(2);
        assert_eq!(gate.begin(), ReadStart::Waits(1));
    }
}
