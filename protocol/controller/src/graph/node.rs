//! One instance and the links that it has announced.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{Cause, Instance, Mono, Timestamp};
use onepipe_wire::{Announce, Link, Side};

/// One instance of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Generation of its last complete announcement; `None` if only others, or the store, know it.
    pub generation: Option<u32>,
    /// When its last frame was received.
    pub last_seen: Option<Mono>,
    /// For a switch: when its last idle time ended ([`crate::Config::switch_idle_ns`]).
    pub returned_at: Option<Mono>,
    /// Since when it has had a path to the controller.
    pub connected_since: Option<Mono>,
    /// For a process: timestamp up to which it knows reliable messages to be decided, as of
    /// its last announcement.
    pub decided: Option<Timestamp>,
    /// Whether it has been connected once.
    pub has_joined: bool,
    /// Whether the store knows it and all of its edges.
    pub is_recorded: bool,
    /// Its links as last announced; empty when the next announcement has to be applied as a whole.
    pub links: Vec<Link>,
    /// Its links to all peers that the graph still contains, up or down; in ascending order of
    /// instance and side.
    pub edges: Vec<Edge>,
    /// Its frozen links, as announced.
    pub frozen: Vec<FrozenEdge>,
    /// Peers that it lists as up although their failure is resolved.
    pub stale_peers: Vec<Instance>,
    parts: Option<Parts>,
}

/// What a node announces about its links to one peer on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Edge {
    /// The peer.
    pub instance: Instance,
    /// Side of the node on which these links are.
    pub side: Side,
    /// Whether at least one of these links is up.
    pub is_up: bool,
}

/// A frozen link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrozenEdge {
    /// Number that its owner gave to the link's death.
    pub number: u32,
    /// Side of the owner.
    pub side: Side,
    /// The instance at its other end, if known.
    pub instance: Option<Instance>,
    /// The last commit promised on it.
    pub commit: Timestamp,
    /// Why it died.
    pub cause: Cause,
    /// Sequence number, among all announcements, of the one that announced it first, or later that
    /// the link is up again. What was flooded before may have missed the nodes behind it.
    pub missed_until: u64,
    /// When it was announced first.
    pub first_seen: Mono,
    /// Whether the link need not hold commits any more: this is decided and, where the store has to
    /// know it, recorded.
    pub is_resolved: bool,
    /// Whether its owner was notified of that, and has not announced itself since.
    pub is_notified: bool,
}

/// Parts of an incomplete announcement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Parts {
    generation: u32,
    total: u16,
    links: BTreeMap<u16, Link>,
}

impl Node {
    /// Adds one part. Returns all links once the generation is complete.
    pub fn assemble(
        &mut self,
        announce: Announce,
        links: impl ExactSizeIterator<Item = Link>,
    ) -> Option<Vec<Link>> {
        let Announce { generation, first, total, .. } = announce;
        if first == 0 && links.len() == usize::from(total) {
            self.parts = None;
            return Some(links.collect());
        }
        let is_same = |parts: &Parts| (parts.generation, parts.total) == (generation, total);
        if !self.parts.as_ref().is_some_and(is_same) {
            self.parts = Some(Parts { generation, total, links: BTreeMap::new() });
        }
        let parts = self.parts.as_mut()?;
        parts.links.extend((first..total).zip(links));
        if parts.links.len() < usize::from(total) {
            return None;
        }
        let parts = self.parts.take()?;
        assert_eq!(parts.links.len(), usize::from(total), "each link is announced once");
        Some(parts.links.into_values().collect())
    }

    /// Whether a frozen link is resolved and this node was not notified of it.
    pub fn has_resumable(&self) -> bool {
        self.frozen.iter().any(|entry| entry.is_resolved && !entry.is_notified)
    }

    /// Whether `generation` is older than the known one, counting modulo 2^32.
    pub fn is_stale(&self, generation: u32) -> bool {
        let known = self.parts.as_ref().map(|parts| parts.generation).or(self.generation);
        known.is_some_and(|known| (generation.wrapping_sub(known) as i32) < 0)
    }

    /// Returns the index of the edge to `instance` on `side`, or where it is to be inserted.
    pub fn find(&self, instance: Instance, side: Side) -> Result<usize, usize> {
        self.edges.binary_search_by_key(&(instance, side), |edge| (edge.instance, edge.side))
    }

    /// Adds an edge, or marks it as up.
    pub fn link(&mut self, instance: Instance, side: Side, is_up: bool) {
        match self.find(instance, side) {
            Ok(index) => self.edges[index].is_up |= is_up,
            Err(index) => {
                self.edges.insert(index, Edge { instance, side, is_up });
                debug_assert_eq!(self.find(instance, side), Ok(index), "edges are in order");
                self.is_recorded = false;
            }
        }
    }
}
