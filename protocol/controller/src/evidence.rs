//! Evidence about suspects: what correct nodes report of them, and since when the switch that they
//! are behind has been connected (`docs/design/failure.md`, "When does a timeout count
//! as a failure?").

use alloc::collections::BTreeMap;

use onepipe_base::{Address, Cause, Instance, Mono};
use onepipe_wire::Side;

use crate::Config;
use crate::graph::{Graph, Node, process_of};
use crate::own_links::Reception;

/// The report that decides about one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Evidence {
    /// Why the instance counts as failed.
    pub cause: Cause,
    /// The correct node that reported this cause; `None` if the controller found it itself.
    pub reporter: Option<Instance>,
}

/// What is reported of one suspect.
#[derive(Clone, Copy, Debug)]
struct Reported {
    evidence: Evidence,
    /// When the last report arrived that shows a lost link, not a timeout: the suspect was alive.
    alive_at: Option<Mono>,
}

/// The reports of correct nodes about suspects.
#[derive(Debug, Default)]
pub(crate) struct Reports(BTreeMap<Instance, Reported>);

/// An instance without a path to the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspect {
    pub instance: Instance,
    /// When the instance lost its path.
    pub since: Mono,
    /// When its last frame was received.
    pub last_seen: Option<Mono>,
}

/// The switch that a suspect is behind.
enum Home {
    /// The suspect is behind no switch: it belongs to a mesh.
    None,
    /// Every such switch has lost its path, too.
    Lost,
    /// Connected, and received without idle times, since this time; the latest of several.
    ConnectedSince(Mono),
}

impl Reports {
    /// Collects what correct nodes report of the suspects.
    pub(crate) fn collect(graph: &Graph, is_suspect: impl Fn(Instance) -> bool) -> Self {
        let mut reports = BTreeMap::new();
        for (owner, node) in graph.correct_owners() {
            for entry in node.frozen.iter().filter(|entry| !entry.is_resolved) {
                let Some(instance) = entry.instance.filter(|instance| is_suspect(*instance)) else {
                    continue;
                };
                let evidence = Evidence { cause: entry.cause, reporter: Some(owner) };
                let alive_at = (entry.cause == Cause::OneWay).then_some(entry.first_seen);
                let known = reports.entry(instance).or_insert(Reported { evidence, alive_at });
                known.alive_at = known.alive_at.max(alive_at);
                if rank(entry.cause) > rank(known.evidence.cause) {
                    known.evidence = evidence;
                }
            }
        }
        Self(reports)
    }

    /// Returns the most certain report about `instance`.
    pub(crate) fn evidence(&self, instance: Instance) -> Option<Evidence> {
        self.0.get(&instance).map(|reported| reported.evidence)
    }

    //= spec/failure.md#R49
    /// Returns until when `suspect` may not be declared failed, because nothing proves that it is
    /// dead. `None` if it may be at any time.
    pub(crate) fn protected_until(
        &self,
        config: &Config,
        graph: &Graph,
        reception: Reception,
        suspect: Suspect,
    ) -> Option<Mono> {
        let Suspect { instance, since, last_seen } = suspect;
        let reported = self.0.get(&instance);
        let is_certain = reported.is_some_and(|reported| reported.evidence.cause.is_certain());
        if config.silent_after_ns == 0 || is_certain || process_of(instance).is_none() {
            return None;
        }
        let reachable_since = match home(graph, instance) {
            Home::None => reception.since,
            Home::ConnectedSince(connected) => connected.max(reception.since),
            Home::Lost => {
                return Some(since.max(reception.since).after_ns(config.switch_wait_ns));
            }
        };
        // A link that does not come up must not hold back the commits of all others for ever.
        let seen_max = since.max(reachable_since).after_ns(config.grace_ns);
        let alive_at = last_seen.max(reported.and_then(|reported| reported.alive_at));
        let from = alive_at.map_or(reachable_since, |at| at.min(seen_max).max(reachable_since));
        assert!(from >= reception.since, "time without reception proves nothing");
        Some(from.after_ns(reception.silent_after_ns))
    }
}

/// Order of causes by how much they prove. A graceful leave ranks below what shows a death: if any
/// node found the instance dead, it has failed.
fn rank(cause: Cause) -> u8 {
    match cause {
        Cause::Unknown => 0,
        Cause::OneWay => 1,
        Cause::TimedOut => 2,
        Cause::Left => 3,
        Cause::Superseded => 4,
        Cause::Refused => 5,
        Cause::Fenced => 6,
    }
}

/// Returns when a process with a path can have answered a ping: it, the switch that it is behind,
/// and the controller must have been connected, and received, for `silent_after_ns`.
pub(crate) fn answerable_at(graph: &Graph, instance: Instance, reception: Reception) -> Mono {
    let own = graph.get(instance).and_then(|node| node.connected_since);
    let home = match home(graph, instance) {
        Home::ConnectedSince(since) => Some(since),
        Home::None | Home::Lost => None,
    };
    let answerable_since = own.max(home).unwrap_or(reception.since).max(reception.since);
    answerable_since.after_ns(reception.silent_after_ns)
}

/// Whether a connected switch that `instance` is behind is silent: it may have paused, and its
/// neighbours may give it more time than the controller gives the process.
pub(crate) fn is_behind_silent_switch(
    graph: &Graph,
    instance: Instance,
    now: Mono,
    receiving_since: Mono,
    idle_ns: u64,
) -> bool {
    let mut homes = homes(graph, instance).flatten();
    homes.any(|node| {
        node.connected_since.is_some() && is_silent(node, now, receiving_since, idle_ns)
    })
}

/// Whether nothing has been received of `node` for `idle_ns`, while the controller did receive.
pub(crate) fn is_silent(node: &Node, now: Mono, receiving_since: Mono, idle_ns: u64) -> bool {
    node.last_seen.is_some_and(|seen| now.since_ns(seen.max(receiving_since)) > idle_ns)
}

/// Returns the current instances of the switches that `instance` is behind, as far as they are
/// known.
fn homes(graph: &Graph, instance: Instance) -> impl Iterator<Item = Option<&Node>> {
    let adjacency = graph.adjacency();
    let arcs = adjacency.index(instance).into_iter().flat_map(|index| adjacency.arcs(index));
    let upper = arcs.filter(|arc| arc.side == Side::Upper);
    let addresses = upper.map(|arc| adjacency.instance(arc.to).address);
    let switches = addresses.filter(|address| matches!(address, Address::Switch(_)));
    switches.map(|address| graph.newest(address).and_then(|newest| graph.get(newest)))
}

fn home(graph: &Graph, instance: Instance) -> Home {
    homes(graph, instance).fold(Home::None, |home, node| {
        let since = node.and_then(|node| node.connected_since.max(node.returned_at));
        let is_connected = node.is_some_and(|node| node.connected_since.is_some());
        match (home, since.filter(|_| is_connected)) {
            (Home::ConnectedSince(one), Some(other)) => Home::ConnectedSince(one.max(other)),
            (_, Some(since)) => Home::ConnectedSince(since),
            (Home::None, None) => Home::Lost,
            (known, None) => known,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_show_a_death_outrank_a_leave() {
        let causes = [
            Cause::Unknown,
            Cause::OneWay,
            Cause::TimedOut,
            Cause::Left,
            Cause::Superseded,
            Cause::Refused,
            Cause::Fenced,
        ];
        assert!(causes.map(rank).is_sorted_by(|weaker, stronger| weaker < stronger));
    }
}
