//! What an announcement changes in the graph.

use alloc::vec::Vec;

use onepipe_base::{Life, Mono, Timestamp};
use onepipe_wire::{AnnounceView, Link, LinkState, Side};

use super::node::Edge;
use super::{FrozenEdge, Graph, View};

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

/// What has become of somebody's links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    is_any: bool,
    /// For the worse.
    is_loss: bool,
}

impl Graph {
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
        let at = self.known(life);
        let node = &mut self.nodes[at];
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
        #[cfg(test)]
        let mut other = self.clone();
        let changed = self.changed(life, at, &links, &is_over);
        #[cfg(test)]
        let expected = changed.is_some().then(|| {
            let change = other.apply(now, life, at, links.clone(), None, &is_over);
            (change, other)
        });
        let change = self.apply(now, life, at, links, changed, &is_over);
        #[cfg(test)]
        if let Some((expected, other)) = expected {
            assert_eq!(change, expected);
            self.check_same(&other);
        }
        let is_loss = change.is_loss || newest.is_some_and(|newest| newest < life.incarnation);
        if change.is_any || is_first || is_loss {
            Announced::Changed { is_loss }
        } else {
            Announced::Same
        }
    }

    /// Replaces what is known of the links of `life`, whose number is `at`: of those that `changed`
    /// names, or of all.
    fn apply(
        &mut self,
        now: Mono,
        life: Life,
        at: usize,
        links: Vec<Link>,
        changed: Option<Vec<(Life, Side)>>,
        is_over: impl Fn(Life) -> bool,
    ) -> Change {
        let change = match changed {
            Some(changed) => self.apply_some(at, &links, changed),
            None => self.apply_all(life, at, &links, is_over),
        };
        let held = links.iter().filter_map(|link| match link.state {
            LinkState::Frozen { number, commit } => Some((link, number, commit)),
            LinkState::Up => None,
        });
        let before = core::mem::take(&mut self.nodes[at].frozen);
        let mut frozen = Vec::new();
        let mut is_new = false;
        for (link, number, commit) in held {
            let known = before.iter().find(|known| known.number == number);
            is_new |= known.is_none();
            frozen.push(FrozenEdge {
                number,
                side: link.side,
                life: link.life.filter(|life| !self.is_controller(*life)),
                commit,
                seen: known.map_or(self.announcements, |known| known.seen),
                seen_at: known.map_or(now, |known| known.seen_at),
                is_resolved: known.is_some_and(|known| known.is_resolved),
                is_told: false,
            });
        }
        let is_loss = change.is_loss || is_new;
        let is_any = change.is_any
            || is_loss
            || before.len() != frozen.len()
            // Told, but announced again: it has to be told again.
            || before.iter().any(|known| known.is_told);
        let node = &mut self.nodes[at];
        (node.frozen, node.links) = (frozen, links);
        self.sort_out(life, at);
        Change { is_any, is_loss }
    }

    /// To whom the links of `life` are not as they were announced the last time. `None` where
    /// anything else may have become of them, too.
    fn changed(
        &self,
        life: Life,
        at: usize,
        links: &[Link],
        is_over: impl Fn(Life) -> bool,
    ) -> Option<Vec<(Life, Side)>> {
        let node = &self.nodes[at];
        if node.links.is_empty() || !node.ghosts.is_empty() {
            return None;
        }
        let mut changed = Vec::new();
        for link in differing(&node.links, links) {
            let Some(peer) = link.life else { continue };
            if peer == life || self.is_controller(peer) || is_over(peer) {
                return None;
            }
            changed.push((peer, link.side));
        }
        changed.sort_unstable();
        changed.dedup();
        Some(changed)
    }

    fn apply_some(&mut self, at: usize, links: &[Link], changed: Vec<(Life, Side)>) -> Change {
        let mut change = Change::default();
        for (peer, side) in changed {
            let is_here = |link: &&Link| link.life == Some(peer) && link.side == side;
            let is_up = links.iter().filter(is_here).any(|link| link.state == LinkState::Up);
            let node = &mut self.nodes[at];
            let was_up = match node.find(peer, side) {
                Ok(place) => Some(core::mem::replace(&mut node.edges[place].is_up, is_up)),
                Err(place) => {
                    node.edges.insert(place, Edge { life: peer, side, is_up });
                    node.is_recorded = false;
                    self.known(peer);
                    None
                }
            };
            if was_up != Some(is_up) {
                let view = if is_up { View::Up } else { View::Down };
                self.net.say(at, peer, side, view);
                change.is_any = true;
                change.is_loss |= was_up == Some(true);
            }
        }
        change
    }

    fn apply_all(
        &mut self,
        life: Life,
        at: usize,
        links: &[Link],
        is_over: impl Fn(Life) -> bool,
    ) -> Change {
        let mut node = core::mem::take(&mut self.nodes[at]);
        let (edges, ghosts) = (node.edges.clone(), core::mem::take(&mut node.ghosts));
        node.edges.iter_mut().for_each(|edge| edge.is_up = false);
        let was_attached = self.attachments.remove(&life);
        let mut is_attached = false;
        for link in links {
            let is_controller = link.life.is_some_and(|life| self.is_controller(life));
            if is_controller && link.state == LinkState::Up {
                is_attached |= link.life == Some(self.own);
                continue;
            }
            let Some(peer) = link.life.filter(|peer| *peer != life && !is_controller) else {
                continue;
            };
            if !is_over(peer) {
                node.link(peer, link.side, link.state == LinkState::Up);
                self.known(peer);
            } else if link.state == LinkState::Up {
                node.ghosts.push(peer);
            }
        }
        node.edges.retain(|edge| edge.is_up || self.net.place(edge.life).is_some());
        if is_attached {
            self.attachments.insert(life);
        }
        if was_attached != is_attached {
            self.net.attach(life, is_attached);
        }
        self.list(at, &edges, &node.edges);
        let lost = |edge: &Edge| {
            edge.is_up && !node.find(edge.life, edge.side).is_ok_and(|at| node.edges[at].is_up)
        };
        let is_loss = edges.iter().any(lost) || (was_attached && !is_attached);
        let is_any =
            is_loss || edges != node.edges || was_attached != is_attached || ghosts != node.ghosts;
        self.nodes[at] = node;
        Change { is_any, is_loss }
    }

    /// Tells the net what has become of the edges of `from`; both lists ascend.
    pub(super) fn list(&mut self, from: usize, before: &[Edge], after: &[Edge]) {
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
                self.net.say(from, next.0, next.1, view);
            }
        }
    }

    /// That what has changed was applied alone shows nowhere.
    #[cfg(test)]
    fn check_same(&self, other: &Self) {
        assert!(self.iter().eq(other.iter()));
        assert_eq!(self.attachments, other.attachments);
        let lives =
            |of: &alloc::collections::BTreeMap<Life, usize>| of.keys().copied().collect::<Vec<_>>();
        assert_eq!(lives(&self.owners), lives(&other.owners));
        assert_eq!(lives(&self.ready), lives(&other.ready));
        assert_eq!(lives(&self.haunted), lives(&other.haunted));
    }
}

/// Links that are on one of the lists only. Most stand in the same order on both; those who lost a
/// link say so first.
fn differing<'a>(before: &'a [Link], after: &'a [Link]) -> impl Iterator<Item = &'a Link> {
    let is_up = |link: &&Link| link.state == LinkState::Up;
    let up = middle(before.iter().filter(is_up), after.iter().filter(is_up));
    let is_frozen = move |link: &&Link| !is_up(link);
    up.chain(middle(before.iter().filter(is_frozen), after.iter().filter(is_frozen)))
}

/// What stands between an equal beginning and an equal end.
fn middle<'a>(
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
