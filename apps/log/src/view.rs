//! The members of a log, in one of its views.

use alloc::collections::BTreeSet;

use onepipe_base::ProcessId;
use onepipe_transaction::{Reader, Writer};

/// Maximum number of replicas of a log.
pub const REPLICAS_MAX: usize = 64;

/// The replicas that hold a log, from one cut to the next. An entry is committed when all members
/// of one view have replied with equal checksums.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Number of the view, from 0.
    pub number: u64,
    /// The members, at most [`REPLICAS_MAX`].
    pub members: BTreeSet<ProcessId>,
}

impl View {
    /// Creates the first view, in which all replicas are members with empty logs.
    ///
    /// # Panics
    /// If there are no replicas or more than [`REPLICAS_MAX`].
    pub fn first(replicas: impl IntoIterator<Item = ProcessId>) -> Self {
        let members: BTreeSet<_> = replicas.into_iter().collect();
        assert!((1..=REPLICAS_MAX).contains(&members.len()), "number of replicas");
        Self { number: 0, members }
    }

    /// Returns whether this view replaces another one. A process that was declared failed, and does
    /// not know so yet, may have computed a view of the same number, which is void. That view lacks
    /// the failure, so it has more members.
    pub fn supersedes(&self, other: &Self) -> bool {
        if self.number != other.number {
            return self.number > other.number;
        }
        self.members != other.members && self.members.is_subset(&other.members)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u64(self.number);
        write_processes(&self.members, writer);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let number = reader.u64()?;
        let members = parse_processes(reader)?;
        (!members.is_empty()).then_some(Self { number, members })
    }
}

pub(crate) fn write_processes(processes: &BTreeSet<ProcessId>, writer: &mut Writer<'_>) {
    writer.u16(processes.len() as u16);
    processes.iter().for_each(|process| writer.u32(process.0));
}

/// Parses at most [`REPLICAS_MAX`] processes in ascending order.
pub(crate) fn parse_processes(reader: &mut Reader<'_>) -> Option<BTreeSet<ProcessId>> {
    let count = usize::from(reader.u16()?);
    let mut processes = BTreeSet::new();
    for _ in 0..count {
        let process = ProcessId(reader.u32()?);
        if processes.last().is_some_and(|last| *last >= process) {
            return None;
        }
        processes.insert(process);
    }
    (count <= REPLICAS_MAX).then_some(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(number: u64, members: &[u32]) -> View {
        View { number, members: members.iter().copied().map(ProcessId).collect() }
    }

    #[test]
    fn later_or_smaller_view_supersedes() {
        assert!(view(2, &[1, 2, 3]).supersedes(&view(1, &[1])));
        assert!(view(1, &[1, 2]).supersedes(&view(1, &[1, 2, 3])));
        assert!(!view(1, &[1, 2, 3]).supersedes(&view(1, &[1, 2])));
        assert!(!view(1, &[1, 2]).supersedes(&view(1, &[1, 2])));
        assert!(!view(0, &[1]).supersedes(&view(1, &[1, 2])));
    }
}
