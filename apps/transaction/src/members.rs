//! The membership: when each process ended, and when it was admitted with the state of its shard.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};

/// When one process ended, and when it was last admitted with the state of its shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    admitted: Option<Timestamp>,
    /// The last end.
    ended: Option<Timestamp>,
    /// The first end since the admission. A process may start, and end, several times until it is
    /// admitted; what it had executed before is valid up to here.
    void_from: Option<Timestamp>,
}

impl Member {
    /// Adds an end.
    fn end(&mut self, at: Timestamp) {
        self.ended = self.ended.max(Some(at));
        if Some(at) >= self.admitted {
            self.void_from = Some(self.void_from.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// Adds an admission. Changes may be learnt of in another order than they took place.
    fn admit(&mut self, at: Timestamp) {
        self.admitted = self.admitted.max(Some(at));
        if self.void_from < self.admitted {
            self.void_from = self.ended.filter(|ended| Some(*ended) >= self.admitted);
        }
    }
}

/// The changes of the membership in one run of a store, with their timestamps in the total order. A
/// process is *up* until it ends, and again from its admission on.
///
/// A *run* begins when all replicas start. Its number is above those of all runs before.
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
        self.changed.get(&process)?.void_from
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
        self.changed.entry(process).or_default().admit(at);
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
            let ends = earlier.into_iter().filter_map(|(process, one)| Some((process, one.ended?)));
            for (process, ended) in ends.filter(|(_, ended)| Some(*ended) >= other.opened) {
                self.on_ended(process, ended);
            }
        }
        self.opened = self.opened.max(other.opened);
        for (process, theirs) in &other.changed {
            let member = self.changed.entry(*process).or_default();
            if let Some(admitted) = theirs.admitted.filter(|admitted| *admitted <= until) {
                member.admit(admitted);
            }
            for ended in [theirs.void_from, theirs.ended].into_iter().flatten() {
                member.end(ended);
            }
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
            writer.timestamp(member.ended);
            writer.timestamp(member.void_from);
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
            let (admitted, ended) = (reader.timestamp()?, reader.timestamp()?);
            let void_from = reader.timestamp()?;
            changed.insert(process, Member { admitted, ended, void_from });
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
