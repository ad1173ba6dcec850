//! Frozen links that need not hold commits any more, and what their release costs
//! (`docs/design/failure.md`).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::{Instance, Mono, Now};
use onepipe_wire::{Resolved, Side};

use crate::decisions::DecisionLog;
use crate::graph::{FrozenEdge, Graph, Node};
use crate::{Config, Severed};

/// What an evaluation finds about the frozen links of correct nodes.
#[derive(Debug, Default)]
pub(crate) struct Releasable {
    /// Links that no failure concerns.
    pub resolvable: Vec<Resolved>,
    /// Links that died alone, and that may be severed.
    pub severable: Vec<Severed>,
    /// When another link may be severed even if nothing changes.
    pub reevaluate_at: Option<Mono>,
    /// Whether links wait for another full round of notices.
    pub needs_renotify: bool,
}

impl Releasable {
    //= spec/failure.md#R28
    /// Finds the frozen links of correct nodes that need not hold commits any more, because no node
    /// behind them has failed or its failure is resolved. The last complete round of notices
    /// started after `covered_announcements` announcements.
    pub(crate) fn find(
        now: Now,
        config: &Config,
        graph: &mut Graph,
        decisions: &DecisionLog,
        covered_announcements: u64,
    ) -> Self {
        let mut found = Self::default();
        if graph.owners().len() == 0 {
            return found;
        }
        let has_notice = decisions.has_notice(now.mono, config.notice_retention_ns);
        let mut died_alone: Vec<(Severed, FrozenEdge)> = Vec::new();
        for (owner, node) in graph.correct_owners() {
            for entry in node.frozen.iter().filter(|entry| !entry.is_resolved) {
                let number = entry.number;
                let Some(peer) = released_peer(graph, decisions, owner, node, entry) else {
                    continue;
                };
                // Nodes behind this link may have missed notices while it was dead.
                if has_notice && entry.missed_until > covered_announcements {
                    found.needs_renotify = true;
                } else if peer == owner {
                    found.resolvable.push(Resolved { owner, number });
                } else {
                    died_alone.push((Severed { owner, number, peer }, *entry));
                }
            }
        }
        for (link, entry) in died_alone {
            debug_assert!(graph.is_correct(link.peer), "the peer has not died");
            let give_up_at = entry.first_seen.after_ns(config.inexact_after_ns);
            if now.mono < give_up_at && is_needed(graph, link, entry.side) {
                found.reevaluate_at = Mono::earlier(found.reevaluate_at, Some(give_up_at));
            } else {
                found.severable.push(link);
            }
        }
        found
    }
}

//= spec/failure.md#R41
/// Whether `link`, which is on this side of its owner, should come back: one of its ends has no
/// other path to some correct process, and their commits would not hold each other any more.
fn is_needed(graph: &mut Graph, link: Severed, side: Side) -> bool {
    let (upper, lower) = match side {
        Side::Upper => (link.peer, link.owner),
        Side::Lower | Side::Direct => (link.owner, link.peer),
    };
    graph.is_cut_off(upper, lower)
}

//= spec/failure.md#R41
/// Returns the instance that `entry` needs no longer wait for; the owner itself if no failure is
/// involved. `None` while the link must stay frozen.
fn released_peer(
    graph: &Graph,
    decisions: &DecisionLog,
    owner: Instance,
    node: &Node,
    entry: &FrozenEdge,
) -> Option<Instance> {
    let Some(peer) = entry.instance else { return Some(owner) };
    if decisions.is_resolved(peer) || graph.get(peer).is_none() {
        return Some(owner);
    }
    if !graph.is_correct(peer) {
        return None;
    }
    // The other end must be known to have survived: it is up again here, or it has announced that
    // it lost the link as well. Otherwise it may have died, and its other neighbours have not
    // reported that yet.
    let is_back = node.edges.iter().any(|edge| edge.instance == peer && edge.is_up);
    let other = graph.get(peer)?;
    let has_lost = other.generation.is_some()
        && !other.edges.iter().any(|edge| edge.instance == owner && edge.is_up);
    (is_back || has_lost).then_some(peer)
}

/// Counts lower ends of severed links that no longer reach some correct process.
pub(crate) fn partitions(graph: &mut Graph, links: &[Severed]) -> u64 {
    let is_owned_by_upper = |link: &&Severed| {
        graph.get(link.owner).is_some_and(|node| {
            let mut frozen = node.frozen.iter();
            frozen.any(|entry| entry.number == link.number && entry.side != Side::Upper)
        })
    };
    let ends: BTreeSet<(Instance, Instance)> =
        links.iter().filter(is_owned_by_upper).map(|link| (link.peer, link.owner)).collect();
    let (mut last_counted, mut count) = (None, 0);
    for (lower, upper) in ends {
        if last_counted != Some(lower) && graph.is_cut_off(upper, lower) {
            last_counted = Some(lower);
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FailedInstance, Record};
    use onepipe_base::{
        Address, Cause, Controllers, Incarnation, Port, ProcessId, SwitchId, Timestamp,
    };
    use onepipe_wire::{Announce, AnnounceView, Link, LinkState};

    fn instance(address: Address) -> Instance {
        Instance { address, incarnation: Incarnation(1) }
    }

    #[test]
    fn link_that_died_alone_is_severed_when_notices_are_covered() {
        let controllers = Controllers { first: ProcessId(90), count: 1 };
        let config = Config::new(ProcessId(90), controllers);
        let mut graph = Graph::new(config.own(), controllers, config.limits());
        let [owner, peer] = [1, 2].map(|id| instance(Address::Switch(SwitchId(id))));
        let (at, sync) = (Mono::from_ns(5), Timestamp::from_ns(1 << 50));
        let mut announce = |from, links: &[(Side, Option<Instance>, LinkState)]| {
            let link = |(port, (side, instance, state)): (usize, &_)| {
                let (side, instance, state) = (*side, *instance, *state);
                Link { port: Port(port as u16), side, instance, state }
            };
            let announce =
                Announce { generation: 1, first: 0, total: links.len() as u16, tip: None };
            let mut buf = [0; 400];
            let links = links.iter().enumerate().map(link);
            let (_, bytes) = announce.write(&mut buf, links).expect("fits");
            let view = AnnounceView::parse(&buf[..bytes]).expect("written above");
            graph.announce(at, from, &view, sync, |_| false);
        };
        let frozen = |number| LinkState::Frozen { number, commit: sync, cause: Cause::TimedOut };
        // Of two links between the switches one died; at another dead link nobody was known.
        announce(peer, &[(Side::Lower, Some(owner), LinkState::Up)]);
        announce(
            owner,
            &[
                (Side::Lower, Some(config.own()), LinkState::Up),
                (Side::Upper, Some(peer), LinkState::Up),
                (Side::Upper, Some(peer), frozen(7)),
                (Side::Lower, None, frozen(8)),
            ],
        );
        graph.update_reachability(|_, _| false);
        let now = Now { mono: at, sync };
        let mut decisions = DecisionLog::default();
        let found = Releasable::find(now, &config, &mut graph, &decisions, 0);
        assert_eq!(found.severable, [Severed { owner, number: 7, peer }]);
        assert_eq!(found.resolvable, [Resolved { owner, number: 8 }]);
        assert_eq!((found.needs_renotify, found.reevaluate_at), (false, None));
        let process = instance(Address::Process(ProcessId(3)));
        let cause = Cause::TimedOut;
        let failed = FailedInstance { instance: process, at: sync, is_exact: true, cause };
        decisions.apply(at, &Record::Failed(alloc::vec![failed]));
        let found = Releasable::find(now, &config, &mut graph, &decisions, 0);
        assert!(found.needs_renotify && found.severable.is_empty(), "a notice may be missed");
        let covered = graph.announcements();
        let found = Releasable::find(now, &config, &mut graph, &decisions, covered);
        assert_eq!((found.needs_renotify, found.severable.len()), (false, 1));
        assert_eq!(partitions(&mut graph, &found.severable), 0);
    }
}
