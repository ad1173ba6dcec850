//! The membership: when each process ended, and when it was admitted with the state of its shard.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};

/// Limit on the ends of one process that are known: the first one in the run, and the last ones. A
/// log that is older than those is not used.
const ENDS_MAX: usize = 16;

/// When one process ended, and when it was last admitted with the state of its shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    admitted: Option<Timestamp>,
    /// In ascending order. A process may start, and end, several times until it is admitted.
    ends: Vec<Timestamp>,
}

impl Member {
    /// Adds an end.
    fn end(&mut self, at: Timestamp) {
        let Err(index) = self.ends.binary_search(&at) else { return };
        self.ends.insert(index, at);
        if self.ends.len() > ENDS_MAX {
            self.ends.remove(1);
        }
    }

    /// Returns the first end since the admission. Changes may be learnt of in another order than
    /// they took place.
    fn void_from(&self) -> Option<Timestamp> {
        self.ends.iter().copied().find(|end| Some(*end) >= self.admitted)
    }
}

/// The changes of the membership in one run of a store, with their timestamps in the total order. A
/// process is *up* until it ends, and again from its admission on.
///
/// A *run* begins when all replicas start. Its number, the time of that in ns, is above those of
/// all runs before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    run: u64,
    /// Some replicas have logs: they need all parts of a write, to complete each other's.
    is_durable: bool,
    /// When a founder has opened the store.
    opened: Option<Timestamp>,
    changed: BTreeMap<ProcessId, Member>,
}

impl Members {
    /// Returns the members of a run in which all processes are up except for `absent`, which have
    /// to catch up.
    pub fn of_run(run: u64, is_durable: bool, absent: impl Iterator<Item = ProcessId>) -> Self {
        let mut members = Self { run, is_durable, ..Self::default() };
        for process in absent {
            members.on_ended(process, Timestamp::from_ns(0));
        }
        members
    }

    /// Returns the number of the run.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Returns whether some replicas have logs.
    pub fn is_durable(&self) -> bool {
        self.is_durable
    }

    /// Notes that the store was opened at a timestamp.
    pub fn on_opened(&mut self, at: Timestamp) {
        self.opened = self.opened.max(Some(at));
    }

    /// Returns whether a process is up, by the changes known so far.
    pub fn is_up(&self, process: ProcessId) -> bool {
        self.void_from(process).is_none()
    }

    /// Returns when a process ended, if it was not admitted since: what it has executed from then
    /// on is void.
    pub fn void_from(&self, process: ProcessId) -> Option<Timestamp> {
        self.changed.get(&process)?.void_from()
    }

    /// Returns from when on the log of a process is void that knows of its ends up to `known`: the
    /// first one after them. An incarnation does not learn of its own end, and what it takes from
    /// another replica knows of all ends before.
    pub(crate) fn log_void_from(
        &self,
        process: ProcessId,
        known: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let ends = &self.changed.get(&process)?.ends;
        let index = ends.partition_point(|end| Some(*end) <= known);
        // Ends after the first one may have been dropped.
        let has_gap = index == 1 && ends.len() == ENDS_MAX;
        if has_gap { known } else { ends.get(index).copied() }
    }

    /// Returns the last end of a process.
    pub(crate) fn last_end(&self, process: ProcessId) -> Option<Timestamp> {
        self.changed.get(&process)?.ends.last().copied()
    }

    /// Notes that a process ended at a timestamp, or has no state as of then. Returns whether it
    /// was up.
    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) -> bool {
        let was_up = self.is_up(process);
        self.changed.entry(process).or_default().end(at);
        was_up && !self.is_up(process)
    }

    /// Notes that a process was admitted at a timestamp. Returns whether it was not up.
    pub fn on_admitted(&mut self, process: ProcessId, at: Timestamp) -> bool {
        let was_up = self.is_up(process);
        let member = self.changed.entry(process).or_default();
        member.admitted = member.admitted.max(Some(at));
        !was_up && self.is_up(process)
    }

    /// Returns when the process was last admitted.
    pub fn admitted(&self, process: ProcessId) -> Option<Timestamp> {
        self.changed.get(&process)?.admitted
    }

    /// Returns the timestamp of the last admission, or of the opening: the *view*. A write with an
    /// older one may lack a receiver.
    pub fn view(&self) -> Option<Timestamp> {
        self.changed.values().filter_map(|member| member.admitted).max().max(self.opened)
    }

    /// Adds the changes that another process knows. Those of an earlier run are dropped, except for
    /// ends since the later one was opened: this process may be the first to know of them.
    pub fn merge(&mut self, other: &Self) {
        self.merge_until(other, Timestamp::from_ns(u64::MAX));
    }

    /// Adds the changes that another process knows, except for admissions after `until`.
    pub(crate) fn merge_until(&mut self, other: &Self, until: Timestamp) {
        if other.run < self.run {
            return;
        }
        if other.run > self.run {
            let earlier = core::mem::take(&mut self.changed);
            let Self { run, is_durable, opened, .. } = *other;
            (self.run, self.is_durable, self.opened) = (run, is_durable, opened);
            for (process, member) in earlier {
                let ends = member.ends.into_iter().filter(|end| Some(*end) >= other.opened);
                ends.for_each(|end| {
                    self.on_ended(process, end);
                });
            }
        }
        self.opened = self.opened.max(other.opened);
        for (process, theirs) in &other.changed {
            let member = self.changed.entry(*process).or_default();
            let admitted = theirs.admitted.filter(|admitted| *admitted <= until);
            member.admitted = member.admitted.max(admitted);
            theirs.ends.iter().for_each(|end| member.end(*end));
        }
    }

    /// Appends the encoded changes.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.run);
        writer.bool(self.is_durable);
        writer.timestamp(self.opened);
        writer.u32(self.changed.len() as u32);
        for (process, member) in &self.changed {
            writer.u32(process.0);
            writer.timestamp(member.admitted);
            writer.u32(member.ends.len() as u32);
            member.ends.iter().for_each(|end| writer.u64(end.as_ns()));
        }
    }

    /// Parses encoded changes. Returns `None` if they are malformed.
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (run, is_durable) = (reader.u64()?, reader.bool()?);
        let opened = reader.timestamp()?;
        let mut changed = BTreeMap::new();
        for _ in 0..reader.u32()? {
            let process = ProcessId(reader.u32()?);
            if changed.last_key_value().is_some_and(|(last, _)| *last >= process) {
                return None;
            }
            let admitted = reader.timestamp()?;
            let mut ends = Vec::new();
            for _ in 0..reader.u32()? {
                let end = Timestamp::from_ns(reader.u64()?);
                if ends.len() == ENDS_MAX || ends.last().is_some_and(|last| *last >= end) {
                    return None;
                }
                ends.push(end);
            }
            changed.insert(process, Member { admitted, ends });
        }
        Some(Self { run, is_durable, opened, changed })
    }

    /// Returns the encoded changes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut Writer(&mut bytes));
        bytes
    }

    /// Parses encoded changes. Returns `None` if they are malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Self::parse(&mut reader).filter(|_| reader.is_at_end())
    }
}
