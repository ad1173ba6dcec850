//! The lives of a fabric and their links, put together from announcements.

mod net;
mod node;
mod partition;
mod reach;
#[cfg(test)]
pub(crate) mod whole;

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use onepipe_base::{Address, Controllers, Incarnation, Life, Mono, ProcessId, Timestamp};
use onepipe_wire::{AnnounceView, Link, LinkState, Side};

pub(crate) use net::{Arc, Net, View};
pub(crate) use node::{FrozenEdge, Node};

use node::Edge;

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
    /// Who has frozen links, and who has some that are resolved and was not told so.
    owners: BTreeSet<Life>,
    ready: BTreeSet<Life>,
    /// Who lists as up whose failure is resolved.
    haunted: BTreeSet<Life>,
    net: Net,
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
            ready: BTreeSet::new(),
            haunted: BTreeSet::new(),
            net: Net::default(),
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
        let node = self.known(life);
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
        if newest != Some(life.incarnation) {
            self.newest.insert(life.address, life.incarnation);
            self.doubt(life.address);
        }
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
        let mut node = core::mem::take(self.known(life));
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
                self.known(peer);
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
        if was_attached != is_attached {
            self.net.attach(life, is_attached);
        }
        self.list(life, &edges, &node.edges);
        let lost = |edge: &Edge| {
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
        self.sort_out(life);
        (is_changed, is_loss)
    }

    /// Tells the net what has become of the edges of `life`; both lists ascend.
    fn list(&mut self, life: Life, before: &[Edge], after: &[Edge]) {
        let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
        loop {
            let key = |edge: &&Edge| (edge.life, edge.side);
            let next = match (before.peek().map(key), after.peek().map(key)) {
                (Some(one), Some(other)) => one.min(other),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return,
            };
            let was = before.next_if(|edge| key(edge) == next).map(|edge| edge.is_up);
            let is = after.next_if(|edge| key(edge) == next).map(|edge| edge.is_up);
            if was != is {
                let view = match is {
                    None => View::Unknown,
                    Some(false) => View::Down,
                    Some(true) => View::Up,
                };
                self.net.say(life, next.0, next.1, view);
            }
        }
    }

    /// The node of `life`, which is known from now on.
    fn known(&mut self, life: Life) -> &mut Node {
        self.nodes.entry(life).or_insert_with(|| {
            self.net.appear(life);
            Node::default()
        })
    }

    /// Notes whether `owner` has frozen links, and such as it is to be told of.
    fn sort_out(&mut self, owner: Life) {
        let node = self.nodes.get(&owner);
        let frozen = node.map(|node| node.frozen.as_slice()).unwrap_or_default();
        let is_ready = frozen.iter().any(|entry| entry.is_resolved && !entry.is_told);
        for (set, is_in) in [
            (&mut self.owners, !frozen.is_empty()),
            (&mut self.ready, is_ready),
            (&mut self.haunted, node.is_some_and(|node| !node.ghosts.is_empty())),
        ] {
            if is_in {
                set.insert(owner);
            } else {
                set.remove(&owner);
            }
        }
    }

    /// Lets `change` go over the frozen links of `owner`.
    pub(crate) fn each_frozen(&mut self, owner: Life, change: impl FnMut(&mut FrozenEdge)) {
        let Some(node) = self.nodes.get_mut(&owner) else { return };
        node.frozen.iter_mut().for_each(change);
        self.sort_out(owner);
    }

    /// A node that the store knows: its links are taken to be up until somebody says otherwise.
    pub(crate) fn load(&mut self, member: &Member, is_severed: impl Fn(Life) -> bool) {
        let newest = self.newest.entry(member.life.address).or_insert(member.life.incarnation);
        *newest = member.life.incarnation.max(*newest);
        for link in &member.links {
            self.known(link.life).has_joined = true;
        }
        let node = self.known(member.life);
        node.has_joined = true;
        let (is_silent, before) = (node.generation.is_none(), node.edges.clone());
        for link in &member.links {
            node.link(link.life, link.side, is_silent && !is_severed(link.life));
        }
        node.is_recorded = true;
        let after = node.edges.clone();
        self.list(member.life, &before, &after);
    }

    /// What the store should know of `life`.
    pub(crate) fn member(&self, life: Life) -> Option<Member> {
        let node = self.nodes.get(&life)?;
        let link = |edge: &Edge| MemberLink { side: edge.side, life: edge.life };
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

    /// The links between them.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// So much of the graph was looked at beside the paths.
    pub(crate) fn note_visits(&mut self, visits: usize) {
        self.net.visits += visits as u64;
    }

    /// Whether `life` had a path to the controller at the last look.
    pub(crate) fn is_correct(&self, life: Life) -> bool {
        self.net.place(life).is_some_and(|at| self.net.is_correct(at))
    }

    /// It is to be found out anew whether the lives of `address` count as dead.
    pub(crate) fn doubt(&mut self, address: Address) {
        let life = |incarnation| Life { address, incarnation: Incarnation(incarnation) };
        for (life, _) in self.nodes.range(life(0)..=life(u32::MAX)) {
            self.net.doubt(*life);
        }
    }

    /// The same of everybody.
    pub(crate) fn doubt_all(&mut self) {
        self.net.doubt_all();
    }

    /// Finds out who is connected now; `is_dead` says who counts as dead, and need be right for
    /// those only of whom there was doubt. Answers, ascending, of whom anything may have changed.
    pub(crate) fn repair(&mut self, is_dead: impl Fn(&Self, Life) -> bool) -> BTreeSet<Life> {
        let doubted = self.net.take_doubted();
        let mut news = BTreeSet::new();
        for at in doubted {
            let life = self.net.life(at);
            news.insert(life);
            if self.net.is_present(at) {
                let is_out = is_dead(self, life);
                self.net.judge(at, is_out);
            }
        }
        let turned = self.net.repair();
        news.extend(turned.into_iter().map(|at| self.net.life(at)));
        self.net.recycle();
        news
    }

    /// Who has frozen links, ascending.
    pub(crate) fn owners(&self) -> impl ExactSizeIterator<Item = Life> {
        self.owners.iter().copied()
    }

    /// Who is listed as up by a correct node though the failure is resolved.
    pub(crate) fn ghosts(&self) -> impl Iterator<Item = Life> {
        let correct = self.haunted.iter().filter(|life| self.is_correct(**life));
        correct.filter_map(|life| self.nodes.get(life)).flat_map(|node| node.ghosts.iter().copied())
    }

    /// Correct nodes with frozen links that are resolved, of which they were not told.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (Life, &FrozenEdge)> {
        let correct = self.ready.iter().filter(|owner| self.is_correct(**owner));
        correct.flat_map(|owner| {
            let frozen = self.nodes.get(owner).map(|node| node.frozen.iter());
            let ready = frozen.into_iter().flatten();
            let ready = ready.filter(|entry| entry.is_resolved && !entry.is_told);
            ready.map(|entry| (*owner, entry))
        })
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
        self.net.vanish(life);
        self.nodes.remove(&life);
        self.attachments.remove(&life);
        self.sort_out(life);
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
