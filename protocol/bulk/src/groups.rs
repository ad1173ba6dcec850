//! Several groups of one process over the same links.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_wire::{BulkHeader, SHORT_HEADER_LEN};

use crate::{Event, Group, GroupId, Memory};

/// Groups that share their links and are served in turn, frame by frame.
///
/// Frames of unknown groups are dropped. As senders retransmit, a member may create its group
/// later than others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups<M = Vec<u8>> {
    groups: BTreeMap<GroupId, Group<M>>,
    /// Round-robin order of transmission.
    order: Vec<GroupId>,
    next: usize,
    /// Frames dropped because their group is unknown.
    unknown: u64,
}

impl<M> Default for Groups<M> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), order: Vec::new(), next: 0, unknown: 0 }
    }
}

impl Groups {
    /// Creates an empty set of groups.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<M: Memory> Groups<M> {
    /// Adds a group. Returns the group that it replaces, if any.
    pub fn insert(&mut self, group: Group<M>) -> Option<Group<M>> {
        let id = group.config().group;
        let old = self.groups.insert(id, group);
        if old.is_none() {
            self.order.push(id);
        }
        debug_assert_eq!(self.order.len(), self.groups.len(), "each group has its turn");
        old
    }

    /// Removes a group.
    pub fn remove(&mut self, id: GroupId) -> Option<Group<M>> {
        self.order.retain(|other| *other != id);
        let removed = self.groups.remove(&id);
        debug_assert_eq!(self.order.len(), self.groups.len(), "each group has its turn");
        removed
    }

    /// Returns a group.
    pub fn get(&self, id: GroupId) -> Option<&Group<M>> {
        self.groups.get(&id)
    }

    /// Returns a group for commands.
    pub fn get_mut(&mut self, id: GroupId) -> Option<&mut Group<M>> {
        self.groups.get_mut(&id)
    }

    /// Returns all groups in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Group<M>> {
        self.groups.values()
    }

    /// Checks the invariants of all groups: see [`Group::check_invariants`].
    ///
    /// # Panics
    /// If one is broken: a bug of this crate.
    pub fn check_invariants(&self) {
        assert_eq!(self.order.len(), self.groups.len(), "each group has its turn");
        assert!(self.order.iter().all(|id| self.groups.contains_key(id)), "of this set");
        for (id, group) in &self.groups {
            assert_eq!(group.config().group, *id, "a group is found by its id");
            group.check_invariants();
        }
    }

    /// Returns the number of frames dropped because their group is unknown.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

impl<M: Memory> Machine for Groups<M> {
    type Event = (GroupId, Event<M>);

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let header = frame.get(SHORT_HEADER_LEN..).map(BulkHeader::parse);
        let id = header.and_then(Result::ok).map(|(header, _)| GroupId(header.group));
        match id.and_then(|id| self.groups.get_mut(&id)) {
            Some(group) => group.handle_frame(now, port, frame),
            None => {
                self.unknown += 1;
                Verdict::Dropped
            }
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        for group in self.groups.values_mut() {
            if group.poll_timeout().is_some_and(|at| at <= now.mono) {
                group.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        for _ in 0..self.order.len() {
            let id = self.order[self.next % self.order.len()];
            self.next = (self.next + 1) % self.order.len();
            if let Some(sent) = self.groups.get_mut(&id)?.poll_transmit(now, slot) {
                return Some(sent);
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.groups.iter_mut().find_map(|(id, group)| Some((*id, group.poll_event()?)))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.groups.values().filter_map(Group::poll_timeout).min()
    }
}
