//! One life, and its links as far as it has told.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use onepipe_base::{Instance, Mono, Timestamp};
use onepipe_wire::{Announce, Link, Side};

/// One life of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Which announcement is known; `None`: only others, or the store, speak of it.
    pub generation: Option<u32>,
    /// When a frame of this life has come in last.
    pub last_seen: Option<Mono>,
    /// Of a process, up to where it was told that reliable messages are decided, at its last
    /// announcement.
    pub decided: Option<Timestamp>,
    /// Whether it has been connected once.
    pub has_joined: bool,
    /// Whether the store knows it and all of its edges.
    pub is_recorded: bool,
    /// Its links as announced; none when they may mean something else by now.
    pub links: Vec<Link>,
    /// Everybody it was ever linked to and who may still count; ascending by life and side.
    pub edges: Vec<Edge>,
    /// Its links that hold commits, as announced.
    pub frozen: Vec<FrozenEdge>,
    /// Whom it lists as up though they have failed, and that is resolved.
    pub stale_peers: Vec<Instance>,
    parts: Option<Parts>,
}

/// What a node says of its links to one other life on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Edge {
    /// Who is there.
    pub instance: Instance,
    /// Where it leads, seen from the node.
    pub side: Side,
    /// Whether at least one of them is up.
    pub is_up: bool,
}

/// A link that holds commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrozenEdge {
    /// The owner's number of its death.
    pub number: u32,
    /// Where it leads, seen from the owner.
    pub side: Side,
    /// Who was there.
    pub instance: Option<Instance>,
    /// The last commit promised on it.
    pub commit: Timestamp,
    /// Place of the announcement that told of it first among all announcements.
    pub first_announcement: u64,
    /// When that was.
    pub first_seen: Mono,
    /// Decided, and recorded where that is needed: it need hold nothing any more.
    pub is_resolved: bool,
    /// Its owner was told so, and has not announced itself since.
    pub is_notified: bool,
}

/// Parts of an announcement that is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Parts {
    generation: u32,
    total: u16,
    links: BTreeMap<u16, Link>,
}

impl Node {
    /// Takes one part. Answers all links once the generation is complete.
    pub fn assemble(
        &mut self,
        announce: Announce,
        links: impl ExactSizeIterator<Item = Link>,
    ) -> Option<Vec<Link>> {
        let Announce { generation, first, total } = announce;
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
        Some(parts.links.into_values().collect())
    }

    /// Whether `generation` is older than what is known, counting modulo 2^32.
    pub fn is_stale(&self, generation: u32) -> bool {
        let known = self.parts.as_ref().map(|parts| parts.generation).or(self.generation);
        known.is_some_and(|known| generation.wrapping_sub(known) as i32 <= -1)
    }

    /// The edge to `instance` on `side`, and where it is or would be.
    pub fn find(&self, instance: Instance, side: Side) -> Result<usize, usize> {
        self.edges.binary_search_by_key(&(instance, side), |edge| (edge.instance, edge.side))
    }

    /// Notes an edge.
    pub fn link(&mut self, instance: Instance, side: Side, is_up: bool) {
        match self.find(instance, side) {
            Ok(at) => self.edges[at].is_up |= is_up,
            Err(at) => {
                self.edges.insert(at, Edge { instance, side, is_up });
                self.is_recorded = false;
            }
        }
    }
}
