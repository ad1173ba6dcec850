//! The membership: when each process ended, and when it was admitted with the state of its shard.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};

/// When one process last ended, and when it was last admitted with the state of its shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    ended: Option<Timestamp>,
    admitted: Option<Timestamp>,
}

/// The last changes of the membership, with their timestamps in the total order. A process is *up*
/// until it ends, and again from its admission on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members {
    changed: BTreeMap<ProcessId, Member>,
}

impl Members {
    /// Returns whether a process is up, by the changes known so far.
    pub fn is_up(&self, process: ProcessId) -> bool {
        let member = self.changed.get(&process);
        member.is_none_or(|member| member.ended.is_none() || member.admitted > member.ended)
    }

    /// Notes that a process ended at a timestamp, or has no state as of then. Returns whether it
    /// was up.
    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) -> bool {
        let was_up = self.is_up(process);
        let member = self.changed.entry(process).or_default();
        member.ended = member.ended.max(Some(at));
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

    /// Returns the timestamp of the last admission: the *view*. A write with an older one may lack
    /// a receiver.
    pub fn view(&self) -> Option<Timestamp> {
        self.changed.values().filter_map(|member| member.admitted).max()
    }

    /// Adds the changes that another process knows.
    pub fn merge(&mut self, other: &Self) {
        self.merge_until(other, Timestamp::from_ns(u64::MAX));
    }

    /// Adds the changes that another process knows, except for admissions after `until`.
    pub(crate) fn merge_until(&mut self, other: &Self, until: Timestamp) {
        for (process, theirs) in &other.changed {
            let member = self.changed.entry(*process).or_default();
            member.ended = member.ended.max(theirs.ended);
            let admitted = theirs.admitted.filter(|admitted| *admitted <= until);
            member.admitted = member.admitted.max(admitted);
        }
    }

    /// Appends the encoded changes.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u32(self.changed.len() as u32);
        for (process, member) in &self.changed {
            writer.u32(process.0);
            writer.timestamp(member.ended);
            writer.timestamp(member.admitted);
        }
    }

    /// Parses encoded changes. Returns `None` if they are malformed.
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let count = reader.u32()?;
        let mut changed = BTreeMap::new();
        for _ in 0..count {
            let process = ProcessId(reader.u32()?);
            let (ended, admitted) = (reader.timestamp()?, reader.timestamp()?);
            changed.insert(process, Member { ended, admitted });
        }
        Some(Self { changed })
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
