//! The lives of a fabric and their links, put together from announcements.

mod announce;
mod net;
mod node;
mod partition;
mod reach;
#[cfg(test)]
pub(crate) mod whole;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Address, Controllers, Incarnation, Life, Mono, ProcessId, Timestamp};
use onepipe_wire::Side;

pub(crate) use announce::Announced;
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
    /// By their numbers in the net; of those whom it does not know, nothing.
    nodes: Vec<Node>,
    newest: BTreeMap<Address, Incarnation>,
    /// Who lists this controller as a link that is up.
    attachments: BTreeSet<Life>,
    /// Who has frozen links, and who has some that are resolved and was not told so; by number.
    owners: BTreeMap<Life, usize>,
    ready: BTreeMap<Life, usize>,
    /// Who lists as up whose failure is resolved.
    haunted: BTreeMap<Life, usize>,
    net: Net,
    /// How many announcements have been taken.
    announcements: u64,
}

impl Graph {
    pub(crate) fn new(own: Life, controllers: Controllers) -> Self {
        Self {
            own,
            controllers,
            nodes: Vec::new(),
            newest: BTreeMap::new(),
            attachments: BTreeSet::new(),
            owners: BTreeMap::new(),
            ready: BTreeMap::new(),
            haunted: BTreeMap::new(),
            net: Net::default(),
            announcements: 0,
        }
    }

    /// The number of `life`, which is known from now on.
    fn known(&mut self, life: Life) -> usize {
        let at = self.net.place(life).unwrap_or_else(|| self.net.appear(life));
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, Node::default());
        }
        at
    }

    /// Notes whether `owner`, whose number is `at`, has frozen links, and such as it is to be told
    /// of.
    fn sort_out(&mut self, owner: Life, at: usize) {
        let node = &self.nodes[at];
        let is_ready = node.frozen.iter().any(|entry| entry.is_resolved && !entry.is_told);
        for (set, is_in) in [
            (&mut self.owners, !node.frozen.is_empty()),
            (&mut self.ready, is_ready),
            (&mut self.haunted, !node.ghosts.is_empty()),
        ] {
            if is_in {
                set.insert(owner, at);
            } else {
                set.remove(&owner);
            }
        }
    }

    /// Lets `change` go over the frozen links of `owner`.
    pub(crate) fn each_frozen(&mut self, owner: Life, change: impl FnMut(&mut FrozenEdge)) {
        let Some(at) = self.net.place(owner) else { return };
        self.nodes[at].frozen.iter_mut().for_each(change);
        self.sort_out(owner, at);
    }

    /// A node that the store knows: its links are taken to be up until somebody says otherwise.
    ///
    /// Even of one that was given up when it died: it may have come back since, and it is not for
    /// want of reports that anybody fails.
    pub(crate) fn load(&mut self, member: &Member) {
        let newest = self.newest.entry(member.life.address).or_insert(member.life.incarnation);
        *newest = member.life.incarnation.max(*newest);
        for link in &member.links {
            let at = self.known(link.life);
            self.nodes[at].has_joined = true;
        }
        let at = self.known(member.life);
        let node = &mut self.nodes[at];
        node.has_joined = true;
        let (is_silent, before) = (node.generation.is_none(), node.edges.clone());
        for link in &member.links {
            node.link(link.life, link.side, is_silent);
        }
        node.is_recorded = true;
        let after = node.edges.clone();
        self.list(at, &before, &after);
    }

    /// What the store should know of `life`.
    pub(crate) fn member(&self, life: Life) -> Option<Member> {
        let node = self.get(life)?;
        let link = |edge: &Edge| MemberLink { side: edge.side, life: edge.life };
        let links = node.edges.iter().map(link).collect();
        Some(Member { life, links })
    }

    pub(crate) fn get(&self, life: Life) -> Option<&Node> {
        self.net.place(life).map(|at| &self.nodes[at])
    }

    pub(crate) fn get_mut(&mut self, life: Life) -> Option<&mut Node> {
        self.net.place(life).map(|at| &mut self.nodes[at])
    }

    /// Everybody who is known, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Life, &Node)> {
        self.net.places().map(|(life, at)| (life, &self.nodes[at]))
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
        self.net.doubt(address);
    }

    /// Lives of `address` may be forgotten, or count as resolved, who did not before: what others
    /// say of them means something else from now on.
    pub(crate) fn on_decision(&mut self, address: Address) {
        for (at, neighbour) in self.net.around(address) {
            for at in [at, neighbour] {
                if let Some(node) = self.nodes.get_mut(at) {
                    node.links.clear();
                }
            }
        }
    }

    /// The same of everybody.
    pub(crate) fn on_takeover(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.links.clear());
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
    pub(crate) fn owners(&self) -> impl ExactSizeIterator<Item = (Life, &Node)> {
        self.owners.iter().map(|(owner, at)| (*owner, &self.nodes[*at]))
    }

    /// Those of them who are correct.
    pub(crate) fn correct_owners(&self) -> impl Iterator<Item = (Life, &Node)> {
        self.correct(&self.owners)
    }

    /// Who is listed as up by a correct node though the failure is resolved.
    pub(crate) fn ghosts(&self) -> impl Iterator<Item = Life> {
        self.correct(&self.haunted).flat_map(|(_, node)| node.ghosts.iter().copied())
    }

    /// Correct nodes with frozen links that are resolved, of which they were not told.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (Life, &FrozenEdge)> {
        self.correct(&self.ready).flat_map(|(owner, node)| {
            let ready = node.frozen.iter().filter(|entry| entry.is_resolved && !entry.is_told);
            ready.map(move |entry| (owner, entry))
        })
    }

    fn correct<'a>(
        &'a self,
        of: &'a BTreeMap<Life, usize>,
    ) -> impl Iterator<Item = (Life, &'a Node)> {
        let correct = of.iter().filter(|(_, at)| self.net.is_correct(**at));
        correct.map(|(life, at)| (*life, &self.nodes[*at]))
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
        self.net.has_later(life) || self.is_superseded(life)
    }

    /// Whether a later life of the same address has announced itself.
    pub(crate) fn is_superseded(&self, life: Life) -> bool {
        self.newest.get(&life.address).is_some_and(|newest| *newest > life.incarnation)
    }

    /// A frame of `life` has come in.
    pub(crate) fn hear(&mut self, now: Mono, life: Life) {
        if let Some(node) = self.get_mut(life) {
            node.heard = Some(now);
        }
    }

    /// `life` was told that reliable messages are decided up to `at`.
    pub(crate) fn note_decided(&mut self, life: Life, at: Timestamp) {
        if let Some(node) = self.get_mut(life) {
            node.decided = node.decided.max(Some(at));
        }
    }

    /// The lowest up to which any of the correct processes was told so, but for those who were
    /// told nothing above `nothing`: they commit nothing, nor deliver. `Err` while some of them
    /// have not said it.
    pub(crate) fn decided(&self, nothing: Timestamp) -> Result<Option<Timestamp>, ()> {
        let correct = self.iter().filter(|(life, _)| process_of(*life).is_some());
        let mut lowest: Option<Timestamp> = None;
        for (_, node) in correct.filter(|(life, _)| self.is_correct(*life)) {
            let at = node.decided.ok_or(())?;
            if at > nothing {
                lowest = Some(lowest.map_or(at, |lowest| lowest.min(at)));
            }
        }
        Ok(lowest)
    }

    /// Nothing was heard of `life` that still counts.
    pub(crate) fn unhear(&mut self, life: Life) {
        if let Some(node) = self.get_mut(life) {
            node.heard = None;
        }
    }

    /// `life` counts no more.
    pub(crate) fn remove(&mut self, life: Life) {
        self.on_decision(life.address);
        self.attachments.remove(&life);
        if let Some(at) = self.net.place(life) {
            self.nodes[at] = Node::default();
            self.sort_out(life, at);
        }
        self.net.vanish(life);
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
