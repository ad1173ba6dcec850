//! Evidence about suspects: what correct nodes report of them, and since when the switch that they
//! are behind has been connected (`docs/design/failure.md`, "When does a timeout count
//! as a failure?").

use alloc::collections::BTreeMap;

use onepipe_base::{Address, Cause, Instance, Mono};
use onepipe_wire::Side;

use crate::Config;
use crate::graph::{Graph, process_of};

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

/// The switch that a suspect is behind.
enum Home {
    /// The suspect is behind no switch: it belongs to a mesh.
    None,
    /// Every such switch has lost its path, too.
    Lost,
    /// Connected since this time; the latest of several.
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
    /// Returns until when `instance`, a suspect since `since`, may not be declared failed, because
    /// nothing proves that it is dead. `last_seen` is when its last frame was received, and
    /// `receiving_since` since when the controller receives; `silent_after_ns` is
    /// [`Config::silent_after_ns`], or longer where processes are slow. `None` if it may be at any
    /// time.
    pub(crate) fn protected_until(
        &self,
        (config, silent_after_ns): (&Config, u64),
        graph: &Graph,
        instance: Instance,
        (since, last_seen, receiving_since): (Mono, Option<Mono>, Mono),
    ) -> Option<Mono> {
        let reported = self.0.get(&instance);
        let is_certain = reported.is_some_and(|reported| reported.evidence.cause.is_certain());
        if config.silent_after_ns == 0 || is_certain || process_of(instance).is_none() {
            return None;
        }
        let reachable_since = match home(graph, instance) {
            Home::None => receiving_since,
            Home::ConnectedSince(connected) => connected.max(receiving_since),
            Home::Lost => {
                return Some(since.max(receiving_since).after_ns(config.switch_wait_ns));
            }
        };
        // A link that does not come up must not hold back the commits of all others for ever.
        let seen_max = since.max(reachable_since).after_ns(config.grace_ns);
        let alive_at = last_seen.max(reported.and_then(|reported| reported.alive_at));
        let from = alive_at.map_or(reachable_since, |at| at.min(seen_max).max(reachable_since));
        Some(from.after_ns(silent_after_ns))
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
/// and the controller must have been connected for `silent_after_ns`.
pub(crate) fn answerable_at(
    silent_after_ns: u64,
    graph: &Graph,
    instance: Instance,
    receiving_since: Mono,
) -> Mono {
    let own = graph.get(instance).and_then(|node| node.connected_since);
    let home = match home(graph, instance) {
        Home::ConnectedSince(since) => Some(since),
        Home::None | Home::Lost => None,
    };
    own.max(home).unwrap_or(receiving_since).max(receiving_since).after_ns(silent_after_ns)
}

fn home(graph: &Graph, instance: Instance) -> Home {
    let adjacency = graph.adjacency();
    let Some(index) = adjacency.index(instance) else { return Home::None };
    let mut home = Home::None;
    for arc in adjacency.arcs(index).filter(|arc| arc.side == Side::Upper) {
        let address = adjacency.instance(arc.to).address;
        if !matches!(address, Address::Switch(_)) {
            continue;
        }
        let newest = graph.newest(address).and_then(|newest| graph.get(newest));
        home = match (home, newest.and_then(|node| node.connected_since)) {
            (Home::ConnectedSince(one), Some(other)) => Home::ConnectedSince(one.max(other)),
            (_, Some(since)) => Home::ConnectedSince(since),
            (Home::None, None) => Home::Lost,
            (known, None) => known,
        };
    }
    home
}
