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

use onepipe_base::{Address, Controllers, Incarnation, Instance, Mono, ProcessId, Timestamp};
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
    own: Instance,
    controllers: Controllers,
    /// By their numbers in the net; of those whom it does not know, nothing.
    nodes: Vec<Node>,
    newest: BTreeMap<Address, Incarnation>,
    /// Who lists this controller as a link that is up.
    attachments: BTreeSet<Instance>,
    /// Who has frozen links, and who has some that are resolved and was not told so; by number.
    owners: BTreeMap<Instance, usize>,
    ready: BTreeMap<Instance, usize>,
    /// Who lists as up whose failure is resolved.
    haunted: BTreeMap<Instance, usize>,
    net: Net,
    /// How many announcements have been taken.
    announcements: u64,
}

impl Graph {
    pub(crate) fn new(own: Instance, controllers: Controllers) -> Self {
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

    /// The number of `instance`, which is known from now on.
    fn known(&mut self, instance: Instance) -> usize {
        let at = self.net.place(instance).unwrap_or_else(|| self.net.appear(instance));
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, Node::default());
        }
        at
    }

    /// Notes whether `owner`, whose number is `at`, has frozen links, and such as it is to be told
    /// of.
    fn sort_out(&mut self, owner: Instance, at: usize) {
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
    pub(crate) fn each_frozen(&mut self, owner: Instance, change: impl FnMut(&mut FrozenEdge)) {
        let Some(at) = self.net.place(owner) else { return };
        self.nodes[at].frozen.iter_mut().for_each(change);
        self.sort_out(owner, at);
    }

    /// A node that the store knows: its links are taken to be up until somebody says otherwise.
    ///
    /// Even of one that was given up when it died: it may have come back since, and it is not for
    /// want of reports that anybody fails.
    pub(crate) fn load(&mut self, member: &Member) {
        let newest =
            self.newest.entry(member.instance.address).or_insert(member.instance.incarnation);
        *newest = member.instance.incarnation.max(*newest);
        for link in &member.links {
            let at = self.known(link.instance);
            self.nodes[at].has_joined = true;
        }
        let at = self.known(member.instance);
        let node = &mut self.nodes[at];
        node.has_joined = true;
        let (is_silent, before) = (node.generation.is_none(), node.edges.clone());
        for link in &member.links {
            node.link(link.instance, link.side, is_silent);
        }
        node.is_recorded = true;
        let after = node.edges.clone();
        self.list(at, &before, &after);
    }

    /// What the store should know of `instance`.
    pub(crate) fn member(&self, instance: Instance) -> Option<Member> {
        let node = self.get(instance)?;
        let link = |edge: &Edge| MemberLink { side: edge.side, instance: edge.instance };
        let links = node.edges.iter().map(link).collect();
        Some(Member { instance, links })
    }

    pub(crate) fn get(&self, instance: Instance) -> Option<&Node> {
        self.net.place(instance).map(|at| &self.nodes[at])
    }

    pub(crate) fn get_mut(&mut self, instance: Instance) -> Option<&mut Node> {
        self.net.place(instance).map(|at| &mut self.nodes[at])
    }

    /// Everybody who is known, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instance, &Node)> {
        self.net.places().map(|(instance, at)| (instance, &self.nodes[at]))
    }

    /// The links between them.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// So much of the graph was looked at beside the paths.
    pub(crate) fn note_visits(&mut self, visits: usize) {
        self.net.visits += visits as u64;
    }

    /// Whether `instance` had a path to the controller at the last look.
    pub(crate) fn is_correct(&self, instance: Instance) -> bool {
        self.net.place(instance).is_some_and(|at| self.net.is_correct(at))
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
    pub(crate) fn repair(
        &mut self,
        is_dead: impl Fn(&Self, Instance) -> bool,
    ) -> BTreeSet<Instance> {
        let doubted = self.net.take_doubted();
        let mut news = BTreeSet::new();
        for at in doubted {
            let instance = self.net.instance(at);
            news.insert(instance);
            if self.net.is_present(at) {
                let is_out = is_dead(self, instance);
                self.net.judge(at, is_out);
            }
        }
        let turned = self.net.repair();
        news.extend(turned.into_iter().map(|at| self.net.instance(at)));
        self.net.recycle();
        news
    }

    /// Who has frozen links, ascending.
    pub(crate) fn owners(&self) -> impl ExactSizeIterator<Item = (Instance, &Node)> {
        self.owners.iter().map(|(owner, at)| (*owner, &self.nodes[*at]))
    }

    /// Those of them who are correct.
    pub(crate) fn correct_owners(&self) -> impl Iterator<Item = (Instance, &Node)> {
        self.correct(&self.owners)
    }

    /// Who is listed as up by a correct node though the failure is resolved.
    pub(crate) fn ghosts(&self) -> impl Iterator<Item = Instance> {
        self.correct(&self.haunted).flat_map(|(_, node)| node.ghosts.iter().copied())
    }

    /// Correct nodes with frozen links that are resolved, of which they were not told.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (Instance, &FrozenEdge)> {
        self.correct(&self.ready).flat_map(|(owner, node)| {
            let ready = node.frozen.iter().filter(|entry| entry.is_resolved && !entry.is_told);
            ready.map(move |entry| (owner, entry))
        })
    }

    fn correct<'a>(
        &'a self,
        of: &'a BTreeMap<Instance, usize>,
    ) -> impl Iterator<Item = (Instance, &'a Node)> {
        let correct = of.iter().filter(|(_, at)| self.net.is_correct(**at));
        correct.map(|(instance, at)| (*instance, &self.nodes[*at]))
    }

    /// Where this controller is attached.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = Instance> {
        self.attachments.iter().copied()
    }

    /// How many announcements have been taken.
    pub(crate) fn announcements(&self) -> u64 {
        self.announcements
    }

    /// The present life of `address`, as far as it has announced itself or the store knows it.
    pub(crate) fn newest(&self, address: Address) -> Option<Instance> {
        let incarnation = *self.newest.get(&address)?;
        Some(Instance { address, incarnation })
    }

    /// Whether anybody has spoken of a later life of the same address.
    pub(crate) fn has_later(&self, instance: Instance) -> bool {
        self.net.has_later(instance) || self.is_superseded(instance)
    }

    /// Whether a later life of the same address has announced itself.
    pub(crate) fn is_superseded(&self, instance: Instance) -> bool {
        self.newest.get(&instance.address).is_some_and(|newest| *newest > instance.incarnation)
    }

    /// A frame of `instance` has come in.
    pub(crate) fn hear(&mut self, now: Mono, instance: Instance) {
        if let Some(node) = self.get_mut(instance) {
            node.heard = Some(now);
        }
    }

    /// `instance` was told that reliable messages are decided up to `at`.
    pub(crate) fn note_decided(&mut self, instance: Instance, at: Timestamp) {
        if let Some(node) = self.get_mut(instance) {
            node.decided = node.decided.max(Some(at));
        }
    }

    /// The lowest up to which any of the correct processes was told so, but for those who were
    /// told nothing above `nothing`: they commit nothing, nor deliver. `Err` while some of them
    /// have not said it.
    pub(crate) fn decided(&self, nothing: Timestamp) -> Result<Option<Timestamp>, ()> {
        let correct = self.iter().filter(|(instance, _)| process_of(*instance).is_some());
        let mut lowest: Option<Timestamp> = None;
        for (_, node) in correct.filter(|(instance, _)| self.is_correct(*instance)) {
            let at = node.decided.ok_or(())?;
            if at > nothing {
                lowest = Some(lowest.map_or(at, |lowest| lowest.min(at)));
            }
        }
        Ok(lowest)
    }

    /// Nothing was heard of `instance` that still counts.
    pub(crate) fn unhear(&mut self, instance: Instance) {
        if let Some(node) = self.get_mut(instance) {
            node.heard = None;
        }
    }

    /// `instance` counts no more.
    pub(crate) fn remove(&mut self, instance: Instance) {
        self.on_decision(instance.address);
        self.attachments.remove(&instance);
        if let Some(at) = self.net.place(instance) {
            self.nodes[at] = Node::default();
            self.sort_out(instance, at);
        }
        self.net.vanish(instance);
    }

    fn is_controller(&self, instance: Instance) -> bool {
        matches!(instance.address, Address::Process(process) if self.controllers.contains(process))
    }
}

/// Which process lives it, if it is the life of one.
pub(crate) fn process_of(instance: Instance) -> Option<ProcessId> {
    match instance.address {
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
