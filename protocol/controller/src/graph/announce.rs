//! Updates of the graph by announcements.

use alloc::vec::Vec;

use onepipe_base::{Instance, Mono, Timestamp};
use onepipe_wire::{AnnounceView, Link, LinkState, Side};

use super::node::{Edge, Node};
use super::{FrozenEdge, Graph, View};

/// The effect of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// The announcement is of a previous incarnation or of a previous generation.
    Stale,
    /// The announcement exceeds a limit, and has no effect.
    Excessive,
    /// More parts are outstanding.
    Partial,
    /// The announcement contains nothing new.
    Unchanged,
    /// The graph has changed.
    Changed {
        /// Whether a link has died or a previous incarnation has ended.
        is_loss: bool,
    },
}

/// Changes to the links of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    is_any: bool,
    /// Whether a link has died.
    is_loss: bool,
}

impl Graph {
    /// Applies one part of an announcement of `instance`; `is_over` returns which instances have
    /// failed and are resolved.
    pub(crate) fn announce(
        &mut self,
        now: Mono,
        instance: Instance,
        view: &AnnounceView<'_>,
        near: Timestamp,
        is_over: impl Fn(Instance) -> bool,
    ) -> Announced {
        let announce = view.announce;
        let newest = self.newest.get(&instance.address).copied();
        if newest.is_some_and(|newest| newest > instance.incarnation) {
            return Announced::Stale;
        }
        if !self.has_space_for(instance, announce.total.into()) {
            return Announced::Excessive;
        }
        let index = self.index_or_insert(instance);
        let node = &mut self.nodes[index];
        if node.is_stale(announce.generation) {
            return Announced::Stale;
        }
        node.last_seen = Some(now);
        // An announcement of a known generation is a repetition. But if it lists frozen links that
        // are resolved already, their Resume has not arrived and must be sent again.
        if node.generation == Some(announce.generation) && node.frozen.is_empty() {
            return Announced::Unchanged;
        }
        let Some(links) = node.assemble(announce, view.links(near)) else {
            return Announced::Partial;
        };
        if !self.has_space(instance, index, &links) {
            return Announced::Excessive;
        }
        let node = &mut self.nodes[index];
        let is_first = node.generation.is_none();
        node.generation = Some(announce.generation);
        if newest != Some(instance.incarnation) {
            self.newest.insert(instance.address, instance.incarnation);
            self.mark_dirty(instance.address);
        }
        self.announcements += 1;
        #[cfg(test)]
        let mut other = self.clone();
        let changed = self.changed_peers(instance, index, &links, &is_over);
        #[cfg(test)]
        let expected = changed.is_some().then(|| {
            let change = other.apply(now, instance, index, links.clone(), None, &is_over);
            (change, other)
        });
        let change = self.apply(now, instance, index, links, changed, &is_over);
        #[cfg(test)]
        if let Some((expected, other)) = expected {
            assert_eq!(change, expected);
            self.check_equal(&other);
        }
        let is_loss = change.is_loss || newest.is_some_and(|newest| newest < instance.incarnation);
        if change.is_any || is_first || is_loss {
            Announced::Changed { is_loss }
        } else {
            Announced::Unchanged
        }
    }

    /// Replaces the links of `instance`, which has index `index`: those to the peers in `changed`,
    /// or all.
    fn apply(
        &mut self,
        now: Mono,
        instance: Instance,
        index: usize,
        links: Vec<Link>,
        changed: Option<Vec<(Instance, Side)>>,
        is_over: impl Fn(Instance) -> bool,
    ) -> Change {
        let is_up = |node: &Node, peer: Option<Instance>, side| {
            let edge = peer.and_then(|peer| node.find(peer, side).ok());
            edge.is_some_and(|edge| node.edges[edge].is_up)
        };
        let node = &self.nodes[index];
        let dead = node.frozen.iter().filter(|known| !is_up(node, known.instance, known.side));
        let dead: Vec<u32> = dead.map(|known| known.number).collect();
        let change = match changed {
            Some(changed) => self.apply_some(index, &links, changed),
            None => self.apply_all(instance, index, &links, is_over),
        };
        let held = links.iter().filter_map(|link| match link.state {
            LinkState::Frozen { number, commit, cause } => Some((link, number, commit, cause)),
            LinkState::Up => None,
        });
        let before = core::mem::take(&mut self.nodes[index].frozen);
        let mut frozen = Vec::new();
        let mut is_new = false;
        for (link, number, commit, cause) in held {
            let known = before.iter().find(|known| known.number == number);
            is_new |= known.is_none();
            let is_back =
                dead.contains(&number) && is_up(&self.nodes[index], link.instance, link.side);
            frozen.push(FrozenEdge {
                number,
                side: link.side,
                instance: link.instance.filter(|instance| !self.is_controller(*instance)),
                commit,
                cause,
                missed_until: known
                    .filter(|_| !is_back)
                    .map_or(self.announcements, |known| known.missed_until),
                first_seen: known.map_or(now, |known| known.first_seen),
                is_resolved: known.is_some_and(|known| known.is_resolved),
                is_notified: false,
            });
        }
        let is_loss = change.is_loss || is_new;
        let is_any = change.is_any
            || is_loss
            || before.len() != frozen.len()
            // Its owner was notified, but announces it again: the Resume has to be sent again.
            || before.iter().any(|known| known.is_notified);
        let node = &mut self.nodes[index];
        (node.frozen, node.links) = (frozen, links);
        self.reindex(instance, index);
        Change { is_any, is_loss }
    }

    /// Returns the peers to which the links of `instance` differ from its last announcement. `None`
    /// if other state may have changed as well, so that all links must be applied.
    fn changed_peers(
        &self,
        instance: Instance,
        index: usize,
        links: &[Link],
        is_over: impl Fn(Instance) -> bool,
    ) -> Option<Vec<(Instance, Side)>> {
        let node = &self.nodes[index];
        if node.links.is_empty() || !node.stale_peers.is_empty() {
            return None;
        }
        let mut changed = Vec::new();
        for link in differing(&node.links, links) {
            let Some(peer) = link.instance else { continue };
            if peer == instance || self.is_controller(peer) || is_over(peer) {
                return None;
            }
            changed.push((peer, link.side));
        }
        changed.sort_unstable();
        changed.dedup();
        Some(changed)
    }

    fn apply_some(
        &mut self,
        index: usize,
        links: &[Link],
        changed: Vec<(Instance, Side)>,
    ) -> Change {
        let mut change = Change::default();
        for (peer, side) in changed {
            let is_match = |link: &&Link| link.instance == Some(peer) && link.side == side;
            let is_up = links.iter().filter(is_match).any(|link| link.state == LinkState::Up);
            let node = &mut self.nodes[index];
            let was_up = match node.find(peer, side) {
                Ok(edge_index) => {
                    Some(core::mem::replace(&mut node.edges[edge_index].is_up, is_up))
                }
                Err(edge_index) => {
                    node.edges.insert(edge_index, Edge { instance: peer, side, is_up });
                    node.is_recorded = false;
                    self.index_or_insert(peer);
                    None
                }
            };
            if was_up != Some(is_up) {
                let view = if is_up { View::Up } else { View::Down };
                self.adjacency.set_view_of(index, peer, side, view);
                change.is_any = true;
                change.is_loss |= was_up == Some(true);
            }
        }
        change
    }

    fn apply_all(
        &mut self,
        instance: Instance,
        index: usize,
        links: &[Link],
        is_over: impl Fn(Instance) -> bool,
    ) -> Change {
        let mut node = core::mem::take(&mut self.nodes[index]);
        let (edges, stale_peers) = (node.edges.clone(), core::mem::take(&mut node.stale_peers));
        node.edges.iter_mut().for_each(|edge| edge.is_up = false);
        let was_attached = self.attachments.remove(&instance);
        let mut is_attached = false;
        for link in links {
            let is_controller = link.instance.is_some_and(|instance| self.is_controller(instance));
            if is_controller && link.state == LinkState::Up {
                is_attached |= link.instance == Some(self.own);
                continue;
            }
            let Some(peer) = link.instance.filter(|peer| *peer != instance && !is_controller)
            else {
                continue;
            };
            if !is_over(peer) {
                node.link(peer, link.side, link.state == LinkState::Up);
                self.index_or_insert(peer);
            } else if link.state == LinkState::Up {
                node.stale_peers.push(peer);
            }
        }
        node.edges.retain(|edge| edge.is_up || self.adjacency.index(edge.instance).is_some());
        if is_attached {
            self.attachments.insert(instance);
        }
        if was_attached != is_attached {
            self.adjacency.attach(instance, is_attached);
        }
        self.update_views(index, &edges, &node.edges);
        let lost = |edge: &Edge| {
            edge.is_up
                && !node
                    .find(edge.instance, edge.side)
                    .is_ok_and(|edge_index| node.edges[edge_index].is_up)
        };
        let is_loss = edges.iter().any(lost) || (was_attached && !is_attached);
        let is_any = is_loss
            || edges != node.edges
            || was_attached != is_attached
            || stale_peers != node.stale_peers;
        self.nodes[index] = node;
        Change { is_any, is_loss }
    }

    /// Updates the adjacency from the edges of `from`; both lists are in ascending order.
    pub(super) fn update_views(&mut self, from: usize, before: &[Edge], after: &[Edge]) {
        let is_before =
            |one: &Edge, other: &Edge| (one.instance, one.side) < (other.instance, other.side);
        debug_assert!(before.is_sorted_by(is_before) && after.is_sorted_by(is_before));
        let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
        loop {
            let key = |edge: &&Edge| (edge.instance, edge.side);
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
                self.adjacency.set_view_of(from, next.0, next.1, view);
            }
        }
    }

    /// Asserts that applying the changed links alone has the same effect as applying all.
    #[cfg(test)]
    fn check_equal(&self, other: &Self) {
        assert!(self.iter().eq(other.iter()));
        assert_eq!(self.attachments, other.attachments);
        let instances = |of: &alloc::collections::BTreeMap<Instance, usize>| {
            of.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(instances(&self.owners), instances(&other.owners));
        assert_eq!(instances(&self.resumable), instances(&other.resumable));
        assert_eq!(instances(&self.stale_owners), instances(&other.stale_owners));
    }
}

/// Returns the links that only one of the lists contains. Most links are at the same position in
/// both; a node that lost a link lists its frozen entry first.
fn differing<'a>(before: &'a [Link], after: &'a [Link]) -> impl Iterator<Item = &'a Link> {
    let is_up = |link: &&Link| link.state == LinkState::Up;
    let up = differing_middle(before.iter().filter(is_up), after.iter().filter(is_up));
    let is_frozen = move |link: &&Link| !is_up(link);
    up.chain(differing_middle(before.iter().filter(is_frozen), after.iter().filter(is_frozen)))
}

/// Returns what is between the common prefix and the common suffix.
fn differing_middle<'a>(
    mut one: impl DoubleEndedIterator<Item = &'a Link> + Clone,
    mut other: impl DoubleEndedIterator<Item = &'a Link> + Clone,
) -> impl Iterator<Item = &'a Link> {
    let is_equal = |one: Option<&Link>, other: Option<&Link>| one.is_some() && one == other;
    while is_equal(one.clone().next(), other.clone().next()) {
        one.next();
        other.next();
    }
    while is_equal(one.clone().next_back(), other.clone().next_back()) {
        one.next_back();
        other.next_back();
    }
    one.chain(other)
}
