//! The lives of a fabric and their links, put together from announcements.

mod net;
mod node;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use onepipe_base::{Address, Controllers, Incarnation, Life, Mono, ProcessId, Timestamp};
use onepipe_wire::{AnnounceView, Link, LinkState, Side};

pub(crate) use net::{Arc, Net, View};
pub(crate) use node::{FrozenEdge, Node};

use crate::record::{Member, MemberLink};

/// All lives that are, or were and are not resolved yet (design: failure.md, "Who has failed, and
/// when?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Graph {
    own: Life,
    controllers: Controllers,
    nodes: BTreeMap<Life, Node>,
    newest: BTreeMap<Address, Incarnation>,
    /// Who lists this controller as a link that is up.
    attachments: BTreeSet<Life>,
    /// Who has frozen links.
    owners: BTreeSet<Life>,
    /// How many announcements have been taken.
    announcements: u64,
}

/// What became of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// Of a former life or a former generation.
    Stale,
    /// More parts are to come.
    Partly,
    /// Nothing new.
    Same,
    /// Something has changed.
    Changed {
        /// Some link has died, or a former life has ended.
        is_loss: bool,
    },
}

impl Graph {
    pub(crate) fn new(own: Life, controllers: Controllers) -> Self {
        Self {
            own,
            controllers,
            nodes: BTreeMap::new(),
            newest: BTreeMap::new(),
            attachments: BTreeSet::new(),
            owners: BTreeSet::new(),
            announcements: 0,
        }
    }

    /// Takes one part of an announcement of `life`; `is_over` says which lives have failed and are
    /// resolved.
    pub(crate) fn announce(
        &mut self,
        now: Mono,
        life: Life,
        view: &AnnounceView<'_>,
        near: Timestamp,
        is_over: impl Fn(Life) -> bool,
    ) -> Announced {
        let announce = view.announce;
        let newest = self.newest.get(&life.address).copied();
        if newest.is_some_and(|newest| newest > life.incarnation) {
            return Announced::Stale;
        }
        let node = self.nodes.entry(life).or_default();
        if node.is_stale(announce.generation) {
            return Announced::Stale;
        }
        node.heard = Some(now);
        // What was resolved may be listed again because its owner has not heard of it.
        if node.generation == Some(announce.generation) && node.frozen.is_empty() {
            return Announced::Same;
        }
        let Some(links) = node.assemble(announce, view.links(near)) else {
            return Announced::Partly;
        };
        let is_first = node.generation.is_none();
        node.generation = Some(announce.generation);
        self.newest.insert(life.address, life.incarnation);
        self.announcements += 1;
        let (is_changed, mut is_loss) = self.apply(now, life, &links, is_over);
        is_loss |= newest.is_some_and(|newest| newest < life.incarnation);
        if is_changed || is_first || is_loss {
            Announced::Changed { is_loss }
        } else {
            Announced::Same
        }
    }

    /// Replaces what is known of the links of `life`. Answers whether anything has changed, and
    /// whether for the worse.
    fn apply(
        &mut self,
        now: Mono,
        life: Life,
        links: &[Link],
        is_over: impl Fn(Life) -> bool,
    ) -> (bool, bool) {
        let mut node = self.nodes.remove(&life).unwrap_or_default();
        let (edges, frozen) = (node.edges.clone(), core::mem::take(&mut node.frozen));
        let ghosts = core::mem::take(&mut node.ghosts);
        node.edges.iter_mut().for_each(|edge| edge.is_up = false);
        let was_attached = self.attachments.remove(&life);
        let mut is_attached = false;
        for link in links {
            let is_controller = link.life.is_some_and(|life| self.is_controller(life));
            if is_controller && link.state == LinkState::Up {
                is_attached |= link.life == Some(self.own);
                continue;
            }
            let peer = link.life.filter(|peer| *peer != life && !is_controller);
            if let Some(ghost) = peer.filter(|peer| is_over(*peer))
                && link.state == LinkState::Up
            {
                node.ghosts.push(ghost);
            }
            let peer = peer.filter(|peer| !is_over(*peer));
            if let Some(peer) = peer {
                node.link(peer, link.side, link.state == LinkState::Up);
                self.nodes.entry(peer).or_default();
            }
            if let LinkState::Frozen { number, commit } = link.state {
                let known = frozen.iter().find(|known| known.number == number);
                let entry = FrozenEdge {
                    number,
                    side: link.side,
                    life: link.life.filter(|_| !is_controller),
                    commit,
                    seen: known.map_or(self.announcements, |known| known.seen),
                    seen_at: known.map_or(now, |known| known.seen_at),
                    is_resolved: known.is_some_and(|known| known.is_resolved),
                    is_told: false,
                };
                node.frozen.push(entry);
            }
        }
        node.edges.retain(|edge| edge.is_up || self.nodes.contains_key(&edge.life));
        if is_attached {
            self.attachments.insert(life);
        }
        if node.frozen.is_empty() {
            self.owners.remove(&life);
        } else {
            self.owners.insert(life);
        }
        let lost = |edge: &node::Edge| {
            edge.is_up && !node.find(edge.life, edge.side).is_ok_and(|at| node.edges[at].is_up)
        };
        let is_new = |entry: &FrozenEdge| !frozen.iter().any(|known| known.number == entry.number);
        let is_loss = edges.iter().any(lost)
            || node.frozen.iter().any(is_new)
            || (was_attached && !is_attached);
        let is_changed = is_loss
            || edges != node.edges
            || frozen.len() != node.frozen.len()
            || was_attached != is_attached
            || ghosts != node.ghosts
            // Told, but announced again: it has to be told again.
            || frozen.iter().any(|known| known.is_told);
        self.nodes.insert(life, node);
        (is_changed, is_loss)
    }

    /// A node that the store knows: its links are taken to be up until somebody says otherwise.
    pub(crate) fn load(&mut self, member: &Member, is_severed: impl Fn(Life) -> bool) {
        let newest = self.newest.entry(member.life.address).or_insert(member.life.incarnation);
        *newest = member.life.incarnation.max(*newest);
        for link in &member.links {
            self.nodes.entry(link.life).or_default().has_joined = true;
        }
        let node = self.nodes.entry(member.life).or_default();
        node.has_joined = true;
        let is_silent = node.generation.is_none();
        for link in &member.links {
            node.link(link.life, link.side, is_silent && !is_severed(link.life));
        }
        node.is_recorded = true;
    }

    /// What the store should know of `life`.
    pub(crate) fn member(&self, life: Life) -> Option<Member> {
        let node = self.nodes.get(&life)?;
        let link = |edge: &node::Edge| MemberLink { side: edge.side, life: edge.life };
        let links = node.edges.iter().map(link).collect();
        Some(Member { life, links })
    }

    pub(crate) fn get(&self, life: Life) -> Option<&Node> {
        self.nodes.get(&life)
    }

    pub(crate) fn get_mut(&mut self, life: Life) -> Option<&mut Node> {
        self.nodes.get_mut(&life)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Life, &Node)> {
        self.nodes.iter().map(|(life, node)| (*life, node))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Life, &mut Node)> {
        self.nodes.iter_mut().map(|(life, node)| (*life, node))
    }

    /// Of each known life, ascending, whether a later one of the same address has announced itself.
    pub(crate) fn superseded(&self) -> impl Iterator<Item = bool> {
        let mut newest = self.newest.iter().peekable();
        self.nodes.keys().map(move |life| {
            while newest.next_if(|(address, _)| **address < life.address).is_some() {}
            let newest = newest.peek().filter(|(address, _)| **address == life.address);
            newest.is_some_and(|(_, incarnation)| **incarnation > life.incarnation)
        })
    }

    /// Who has frozen links.
    pub(crate) fn owners(&self) -> Vec<Life> {
        self.owners.iter().copied().collect()
    }

    /// Where this controller is attached.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = Life> {
        self.attachments.iter().copied()
    }

    /// How many announcements have been taken.
    pub(crate) fn announcements(&self) -> u64 {
        self.announcements
    }

    /// The present life of `address`, as far as it has announced itself or the store knows it.
    pub(crate) fn newest(&self, address: Address) -> Option<Life> {
        let incarnation = *self.newest.get(&address)?;
        Some(Life { address, incarnation })
    }

    /// Whether anybody has spoken of a later life of the same address.
    pub(crate) fn has_later(&self, life: Life) -> bool {
        let last = Life { incarnation: Incarnation(u32::MAX), ..life };
        let mut later = self.nodes.range((Bound::Excluded(life), Bound::Included(last)));
        later.next().is_some() || self.is_superseded(life)
    }

    /// Whether a later life of the same address has announced itself.
    pub(crate) fn is_superseded(&self, life: Life) -> bool {
        self.newest.get(&life.address).is_some_and(|newest| *newest > life.incarnation)
    }

    /// A frame of `life` has come in.
    pub(crate) fn hear(&mut self, now: Mono, life: Life) {
        if let Some(node) = self.nodes.get_mut(&life) {
            node.heard = Some(now);
        }
    }

    /// Nothing was heard of `life` that still counts.
    pub(crate) fn unhear(&mut self, life: Life) {
        if let Some(node) = self.nodes.get_mut(&life) {
            node.heard = None;
        }
    }

    /// `life` counts no more.
    pub(crate) fn remove(&mut self, life: Life) {
        self.nodes.remove(&life);
        self.owners.remove(&life);
        self.attachments.remove(&life);
    }

    fn is_controller(&self, life: Life) -> bool {
        matches!(life.address, Address::Process(process) if self.controllers.contains(process))
    }
}

/// Which process lives it, if it is the life of one.
pub(crate) fn process_of(life: Life) -> Option<ProcessId> {
    match life.address {
        Address::Process(process) => Some(process),
        Address::Switch(_) => None,
    }
}

/// The same link, seen from the other end.
pub(crate) fn opposite(side: Side) -> Side {
    match side {
        Side::Lower => Side::Upper,
        Side::Upper => Side::Lower,
        Side::Direct => Side::Direct,
    }
}
