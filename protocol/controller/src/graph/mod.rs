//! The graph of instances and their links, assembled from announcements.

mod adjacency;
mod announce;
mod limits;
mod node;
mod partition;
mod reach;
#[cfg(test)]
pub(crate) mod reference;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Address, Controllers, Incarnation, Instance, Mono, ProcessId, Timestamp};
use onepipe_wire::Side;

pub(crate) use adjacency::{Adjacency, Arc, View};
pub(crate) use announce::Announced;
pub(crate) use limits::Limits;
pub(crate) use node::{FrozenEdge, Node};

use node::Edge;

use crate::record::{Member, MemberLink};

/// All instances that exist, or existed and are not resolved (`docs/design/failure.md`, "Who has
/// failed, and when?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Graph {
    own: Instance,
    controllers: Controllers,
    limits: Limits,
    /// By adjacency index; empty at indices of instances that only others mention.
    nodes: Vec<Node>,
    newest: BTreeMap<Address, Incarnation>,
    /// Instances that list this controller as a link that is up.
    attachments: BTreeSet<Instance>,
    /// Owners of frozen links, with their indices.
    owners: BTreeMap<Instance, usize>,
    /// Owners of resolved links that were not yet notified of it, with their indices.
    resumable: BTreeMap<Instance, usize>,
    /// Nodes that list an instance as up whose failure is resolved, with their indices.
    stale_owners: BTreeMap<Instance, usize>,
    adjacency: Adjacency,
    /// Number of announcements received.
    announcements: u64,
}

impl Graph {
    pub(crate) fn new(own: Instance, controllers: Controllers, limits: Limits) -> Self {
        Self {
            own,
            controllers,
            limits,
            nodes: Vec::new(),
            newest: BTreeMap::new(),
            attachments: BTreeSet::new(),
            owners: BTreeMap::new(),
            resumable: BTreeMap::new(),
            stale_owners: BTreeMap::new(),
            adjacency: Adjacency::default(),
            announcements: 0,
        }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        self.adjacency.check_invariants();
        let missed =
            self.nodes.iter().flat_map(|node| &node.frozen).map(|entry| entry.missed_until);
        assert!(missed.max() <= Some(self.announcements), "frozen by a later announcement");
        for (instance, node) in self.iter() {
            let sets = [
                (&self.owners, !node.frozen.is_empty()),
                (&self.resumable, node.has_resumable()),
                (&self.stale_owners, !node.stale_peers.is_empty()),
            ];
            for (set, belongs) in sets {
                let index = self.adjacency.index(instance).filter(|_| belongs);
                assert_eq!(set.get(&instance).copied(), index, "{instance:?}");
            }
            let newest = self.newest.get(&instance.address);
            let is_known = newest.is_some_and(|newest| *newest >= instance.incarnation);
            assert!(node.generation.is_none() || is_known, "{instance:?} is no incarnation");
            let edges = node.edges.iter().map(|edge| (edge.instance, edge.side));
            assert!(edges.is_sorted_by(|one, other| one < other), "edges of {instance:?}");
        }
        let are_present = |set: &BTreeMap<Instance, usize>| {
            set.keys().all(|instance| self.adjacency.index(*instance).is_some())
        };
        assert!([&self.owners, &self.resumable, &self.stale_owners].into_iter().all(are_present));
        let mut attachments = self.attachments.iter();
        assert!(attachments.all(|instance| self.adjacency.is_attached(*instance)));
    }

    /// Returns the index of `instance`, which is added to the graph if needed.
    fn index_or_insert(&mut self, instance: Instance) -> usize {
        let index =
            self.adjacency.index(instance).unwrap_or_else(|| self.adjacency.insert(instance));
        if self.nodes.len() <= index {
            self.nodes.resize(index + 1, Node::default());
        }
        debug_assert_eq!(self.adjacency.instance(index), instance, "an index of another one");
        index
    }

    /// Updates the sets of owners after a change to `owner`, which has index `index`.
    fn reindex(&mut self, owner: Instance, index: usize) {
        let node = &self.nodes[index];
        for (set, belongs) in [
            (&mut self.owners, !node.frozen.is_empty()),
            (&mut self.resumable, node.has_resumable()),
            (&mut self.stale_owners, !node.stale_peers.is_empty()),
        ] {
            if belongs {
                set.insert(owner, index);
            } else {
                set.remove(&owner);
            }
        }
    }

    /// Applies `change` to the frozen links of `owner`.
    pub(crate) fn update_frozen(&mut self, owner: Instance, change: impl FnMut(&mut FrozenEdge)) {
        let Some(index) = self.adjacency.index(owner) else { return };
        self.nodes[index].frozen.iter_mut().for_each(change);
        self.reindex(owner, index);
    }

    /// Adds a node that the store knows. Its links count as up until a node announces otherwise,
    /// even links that were severed when they died: they may have come back since, and no instance
    /// may fail for want of reports.
    pub(crate) fn load(&mut self, member: &Member) {
        let newest =
            self.newest.entry(member.instance.address).or_insert(member.instance.incarnation);
        *newest = member.instance.incarnation.max(*newest);
        for link in &member.links {
            let index = self.index_or_insert(link.instance);
            self.nodes[index].has_joined = true;
        }
        let index = self.index_or_insert(member.instance);
        let node = &mut self.nodes[index];
        node.has_joined = true;
        let (is_unannounced, before) = (node.generation.is_none(), node.edges.clone());
        for link in &member.links {
            node.link(link.instance, link.side, is_unannounced);
        }
        node.is_recorded = true;
        let after = node.edges.clone();
        self.update_views(index, &before, &after);
    }

    /// Returns what the store should record of `instance`.
    pub(crate) fn member(&self, instance: Instance) -> Option<Member> {
        let node = self.get(instance)?;
        let link = |edge: &Edge| MemberLink { side: edge.side, instance: edge.instance };
        let links = node.edges.iter().map(link).collect();
        Some(Member { instance, links })
    }

    pub(crate) fn get(&self, instance: Instance) -> Option<&Node> {
        self.adjacency.index(instance).map(|index| &self.nodes[index])
    }

    pub(crate) fn get_mut(&mut self, instance: Instance) -> Option<&mut Node> {
        self.adjacency.index(instance).map(|index| &mut self.nodes[index])
    }

    /// Returns all nodes in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instance, &Node)> {
        self.adjacency.indices().map(|(instance, index)| (instance, &self.nodes[index]))
    }

    /// Returns the links between the nodes.
    pub(crate) fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    /// Counts visits of nodes and links outside the adjacency.
    pub(crate) fn note_visits(&mut self, visits: usize) {
        self.adjacency.visits += visits as u64;
    }

    /// Whether `instance` had a path to the controller at the last evaluation.
    pub(crate) fn is_correct(&self, instance: Instance) -> bool {
        self.adjacency.index(instance).is_some_and(|index| self.adjacency.is_correct(index))
    }

    /// Marks the instances of `address` as dirty: whether they count as dead is determined again.
    pub(crate) fn mark_dirty(&mut self, address: Address) {
        self.adjacency.mark_dirty(address);
    }

    /// Forgets the announced links around `address`: its instances may have been removed or
    /// resolved, so the next announcement of a neighbour has to be applied as a whole.
    pub(crate) fn invalidate_links(&mut self, address: Address) {
        for (index, neighbour) in self.adjacency.with_neighbours(address) {
            for index in [index, neighbour] {
                if let Some(node) = self.nodes.get_mut(index) {
                    node.links.clear();
                }
            }
        }
    }

    /// Forgets the announced links of all nodes: the next announcement of each node is applied as
    /// a whole.
    pub(crate) fn invalidate_all_links(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.links.clear());
    }

    /// Marks all instances as dirty.
    pub(crate) fn mark_all_dirty(&mut self) {
        self.adjacency.mark_all_dirty();
    }

    /// Updates reachability. `is_dead` returns which instances count as dead; it is called for
    /// dirty ones only. Returns the instances whose state may have changed, in ascending order.
    pub(crate) fn update_reachability(
        &mut self,
        is_dead: impl Fn(&Self, Instance) -> bool,
    ) -> BTreeSet<Instance> {
        let dirty = self.adjacency.take_dirty();
        let mut changed_instances = BTreeSet::new();
        for index in dirty {
            let instance = self.adjacency.instance(index);
            changed_instances.insert(instance);
            if self.adjacency.is_present(index) {
                let is_dead = is_dead(self, instance);
                self.adjacency.set_dead(index, is_dead);
            }
        }
        let changed = self.adjacency.update_reachability();
        changed_instances.extend(changed.into_iter().map(|index| self.adjacency.instance(index)));
        self.adjacency.recycle_indices();
        changed_instances
    }

    /// Returns the nodes with frozen links, in ascending order.
    pub(crate) fn owners(&self) -> impl ExactSizeIterator<Item = (Instance, &Node)> {
        self.owners.iter().map(|(owner, index)| (*owner, &self.nodes[*index]))
    }

    /// Returns the correct nodes with frozen links.
    pub(crate) fn correct_owners(&self) -> impl Iterator<Item = (Instance, &Node)> {
        self.correct(&self.owners)
    }

    /// Returns instances that a correct node lists as up although their failure is resolved.
    pub(crate) fn stale_peers(&self) -> impl Iterator<Item = Instance> {
        self.correct(&self.stale_owners).flat_map(|(_, node)| node.stale_peers.iter().copied())
    }

    /// Returns frozen links of correct nodes that are resolved and whose owners were not notified.
    pub(crate) fn resumable(&self) -> impl Iterator<Item = (Instance, &FrozenEdge)> {
        self.correct(&self.resumable).flat_map(|(owner, node)| {
            let resumable =
                node.frozen.iter().filter(|entry| entry.is_resolved && !entry.is_notified);
            resumable.map(move |entry| (owner, entry))
        })
    }

    fn correct<'a>(
        &'a self,
        of: &'a BTreeMap<Instance, usize>,
    ) -> impl Iterator<Item = (Instance, &'a Node)> {
        let correct = of.iter().filter(|(_, index)| self.adjacency.is_correct(**index));
        correct.map(|(instance, index)| (*instance, &self.nodes[*index]))
    }

    /// Returns the nodes that this controller is attached to.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = Instance> {
        self.attachments.iter().copied()
    }

    /// Returns the number of announcements received.
    pub(crate) fn announcements(&self) -> u64 {
        self.announcements
    }

    /// Returns the current incarnation of `address`, as announced or recorded.
    pub(crate) fn newest(&self, address: Address) -> Option<Instance> {
        let incarnation = *self.newest.get(&address)?;
        Some(Instance { address, incarnation })
    }

    /// Whether any node mentions a later incarnation of the same address.
    pub(crate) fn has_successor(&self, instance: Instance) -> bool {
        self.adjacency.has_successor(instance) || self.is_superseded(instance)
    }

    /// Whether a later incarnation of the same address has announced itself.
    pub(crate) fn is_superseded(&self, instance: Instance) -> bool {
        self.newest.get(&instance.address).is_some_and(|newest| *newest > instance.incarnation)
    }

    /// Notes that a frame of `instance` was received.
    pub(crate) fn mark_seen(&mut self, now: Mono, instance: Instance) {
        if let Some(node) = self.get_mut(instance) {
            node.last_seen = Some(now);
        }
    }

    /// Notes that reliable messages were decided up to `at` as far as `instance` knows.
    pub(crate) fn record_decided(&mut self, instance: Instance, at: Timestamp) {
        if let Some(node) = self.get_mut(instance) {
            node.decided = node.decided.max(Some(at));
        }
    }

    /// Returns the lowest timestamp up to which a correct process knows reliable messages to be
    /// decided. Timestamps at or below `unset` do not count: their processes neither commit nor
    /// deliver. `Err` while a correct process has not announced its timestamp.
    pub(crate) fn decided(&self, unset: Timestamp) -> Result<Option<Timestamp>, ()> {
        let correct = self.iter().filter(|(instance, _)| process_of(*instance).is_some());
        let mut lowest: Option<Timestamp> = None;
        for (_, node) in correct.filter(|(instance, _)| self.is_correct(*instance)) {
            let at = node.decided.ok_or(())?;
            if at > unset {
                lowest = Some(lowest.map_or(at, |lowest| lowest.min(at)));
            }
        }
        Ok(lowest)
    }

    /// Forgets when the last frame of `instance` was received.
    pub(crate) fn clear_last_seen(&mut self, instance: Instance) {
        if let Some(node) = self.get_mut(instance) {
            node.last_seen = None;
        }
    }

    /// Removes `instance` from the graph.
    pub(crate) fn remove(&mut self, instance: Instance) {
        self.invalidate_links(instance.address);
        self.attachments.remove(&instance);
        if let Some(index) = self.adjacency.index(instance) {
            self.nodes[index] = Node::default();
            self.reindex(instance, index);
        }
        self.adjacency.remove(instance);
        assert!(self.get(instance).is_none(), "{instance:?} is removed");
    }

    fn is_controller(&self, instance: Instance) -> bool {
        matches!(instance.address, Address::Process(process) if self.controllers.contains(process))
    }
}

/// Returns the process of an instance, if it is one of a process.
pub(crate) fn process_of(instance: Instance) -> Option<ProcessId> {
    match instance.address {
        Address::Process(process) => Some(process),
        Address::Switch(_) => None,
    }
}

/// Returns the side of the same link as seen from the other end.
pub(crate) fn opposite(side: Side) -> Side {
    match side {
        Side::Lower => Side::Upper,
        Side::Upper => Side::Lower,
        Side::Direct => Side::Direct,
    }
}
