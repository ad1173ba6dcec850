//! The incarnation of each member that counts.

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::{Amcast, GroupId};

use crate::config::Groups;

/// The first incarnation received of each member of all groups. A later one has lost what the first
/// one had promised and accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Incarnations {
    /// Ordered by process.
    first: Vec<(ProcessId, Option<Incarnation>)>,
}

impl Incarnations {
    pub fn new(groups: &Groups) -> Self {
        let members = groups.groups.iter().flat_map(|group| &group.members);
        let mut first: Vec<_> = members.map(|member| (*member, None)).collect();
        first.sort_unstable();
        first.dedup();
        debug_assert!(first.is_sorted(), "a member is found by binary search");
        Self { first }
    }

    //= spec/amcast.md#R35
    /// Returns whether packets of `process` count in this incarnation: it is the first one received
    /// of that member, or `process` is no member.
    pub fn admits(&mut self, process: ProcessId, incarnation: Incarnation) -> bool {
        let at = self.first.binary_search_by_key(&process, |(member, _)| *member);
        let Ok(at) = at else { return true };
        let first = *self.first[at].1.get_or_insert(incarnation);
        first == incarnation || makes(Mistake::VotesWithoutMemory)
    }
}

/// Returns the packet that refuses an incarnation of a member.
pub(crate) fn refusal(group: GroupId, incarnation: Incarnation) -> Amcast {
    let flags = Amcast::JOIN | Amcast::BEHIND;
    Amcast { flags, count: incarnation.0.into(), ..Amcast::new(group, 0) }
}
