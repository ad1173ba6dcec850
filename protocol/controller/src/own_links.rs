//! The controller's own links: what is received on them, and the Hello frames that are sent.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Range;

use onepipe_base::{AdaptiveTimeout, Instance, Mono, Port};

use crate::graph::{Graph, process_of};
use crate::{Config, Links};

/// After this many heartbeats without an answer the switch may have restarted.
const SILENT_HEARTBEATS: u64 = 3;
/// A replica is isolated after this many heartbeats without any frame, at the earliest.
const ISOLATED_HEARTBEATS: u64 = 10;
/// Number of frequent Hello frames after a change. With the intervals of daemons they last 100 ms,
/// as long as nodes announce a change frequently.
const AWAKE_HELLOS: u64 = 50;

/// The controller's own links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnLinks {
    /// The instance at the other end of each link, as announced by its frames.
    peers: BTreeMap<Port, Instance>,
    /// When the last frame was received.
    last_seen: Option<Mono>,
    /// Since when frames have been received without a stall.
    receiving_since: Mono,
    is_isolated: bool,
    /// When the last Hello was sent; `None` before the first call.
    hello_sent: Option<Mono>,
    /// Hello frames are sent at the fast interval until then.
    awake_until: Mono,
    /// Links whose Hello is still to be sent in this interval.
    hello_ports: Range<u16>,
    /// How long nothing may be received of a process, given how late processes were recently.
    gaps: AdaptiveTimeout,
}

/// What the controller can conclude from not receiving a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reception {
    /// Since when frames have been received without a stall.
    pub since: Mono,
    /// How long nothing may be received of a process before it counts as failed, in ns: at least
    /// [`Config::silent_after_ns`], and longer where processes are slow.
    pub silent_after_ns: u64,
}

impl OwnLinks {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            peers: BTreeMap::new(),
            last_seen: None,
            receiving_since: Mono::from_ns(0),
            is_isolated: false,
            hello_sent: None,
            awake_until: Mono::from_ns(0),
            hello_ports: 0..0,
            gaps: AdaptiveTimeout::new(config.silent_after_ns),
        }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self, links: Links) {
        assert!(self.hello_ports.end <= links.ports(), "a Hello on no link");
        assert!(
            self.hello_ports.is_empty() || self.hello_sent.is_some(),
            "a Hello that is not due"
        );
        assert!(self.peers.keys().all(|port| port.0 < links.ports()), "a peer at no link");
        assert!(!self.is_isolated || self.last_seen.is_some(), "isolated from the start");
    }

    #[inline]
    pub(crate) fn peer(&self, port: Port) -> Option<Instance> {
        self.peers.get(&port).copied()
    }

    pub(crate) fn set_peer(&mut self, port: Port, peer: Instance) {
        self.peers.insert(port, peer);
    }

    pub(crate) fn remove_peer(&mut self, port: Port) {
        self.peers.remove(&port);
    }

    //= spec/failure.md#R17
    /// Notes that a frame was received. Returns whether reception had stalled until now: a switch
    /// hung, or this replica was off its core, and the answers of others are still to be read.
    pub(crate) fn on_received(&mut self, now: Mono, config: &Config) -> bool {
        let had_stalled = self.is_stalled(now, config);
        if had_stalled {
            self.receiving_since = now;
        }
        self.last_seen = Some(now);
        self.is_isolated = false;
        had_stalled
    }

    /// Whether nothing was received for half the time that a process has for an answer.
    #[inline]
    pub(crate) fn is_stalled(&self, now: Mono, config: &Config) -> bool {
        let pause_ns = self.last_seen.map_or(0, |last_seen| now.since_ns(last_seen));
        pause_ns > config.ping_timeout_ns / 2
    }

    pub(crate) fn reception(&self, now: Mono) -> Reception {
        Reception { since: self.receiving_since, silent_after_ns: self.gaps.ns(now) }
    }

    /// Returns since when frames have been received without a stall.
    #[inline]
    pub(crate) fn receiving_since(&self) -> Mono {
        self.receiving_since
    }

    //= spec/failure.md#R64
    /// Returns how long a process may take to answer a ping, in ns.
    pub(crate) fn ping_timeout_ns(&self, now: Mono, config: &Config) -> u64 {
        config.ping_timeout_ns.max(self.gaps.ns(now))
    }

    //= spec/failure.md#R64
    /// Measures by how much a frame of `instance` is later than its announcements are at rest. Time
    /// in which this replica received nothing does not count.
    pub(crate) fn measure_gap(
        &mut self,
        now: Mono,
        config: &Config,
        graph: &Graph,
        instance: Instance,
    ) {
        let is_measured = config.silent_after_ns > 0 && config.heartbeat_interval_ns > 0;
        if !is_measured || process_of(instance).is_none() {
            return;
        }
        let Some(last_seen) = graph.get(instance).and_then(|node| node.last_seen) else { return };
        let gap_ns = now.since_ns(last_seen.max(self.receiving_since));
        let controllers = u64::from(config.controllers.count);
        let rest_ns = config.heartbeat_interval_ns.saturating_mul(controllers);
        self.gaps.on_response(now, gap_ns.saturating_sub(rest_ns));
    }

    /// Returns neighbours in a mesh that list this controller as up, but from which no frame has
    /// arrived within the link timeout, or none since other nodes lost them. Times in which the
    /// controller received nothing at all do not count.
    pub(crate) fn idle_neighbours(
        &self,
        now: Mono,
        config: &Config,
        graph: &Graph,
    ) -> BTreeSet<Instance> {
        if config.links == Links::Uplink {
            return BTreeSet::new();
        }
        let mut lost_at: BTreeMap<Instance, Mono> = BTreeMap::new();
        for (_, node) in graph.owners() {
            for entry in node.frozen.iter().filter(|entry| !entry.is_resolved) {
                if let Some(instance) = entry.instance {
                    let at = lost_at.entry(instance).or_insert(entry.first_seen);
                    *at = entry.first_seen.max(*at);
                }
            }
        }
        let is_idle = |instance: &Instance| {
            let last_seen = graph.get(*instance).and_then(|node| node.last_seen);
            // A frame may have been in flight when the others lost the link.
            let in_flight_until = |at: &Mono| at.after_ns(config.quiet_ns);
            last_seen.is_none_or(|last_seen| {
                now.since_ns(last_seen.max(self.receiving_since)) > config.link_timeout_ns
                    || lost_at.get(instance).is_some_and(|at| last_seen < in_flight_until(at))
            })
        };
        graph.attachments().filter(is_idle).collect()
    }

    /// Returns when to report that this replica is isolated.
    #[inline]
    pub(crate) fn isolated_at(&self, config: &Config) -> Option<Mono> {
        let last_seen = self.last_seen.filter(|_| !self.is_isolated)?;
        let after_ns = ISOLATED_HEARTBEATS * config.heartbeat_interval_ns;
        Some(last_seen.after_ns(config.isolated_after_ns.max(after_ns)))
    }

    /// Returns whether this replica has become isolated; once until a frame is received.
    pub(crate) fn take_isolated(&mut self, now: Mono, config: &Config) -> bool {
        let is_new = self.isolated_at(config).is_some_and(|at| at <= now);
        self.is_isolated |= is_new;
        is_new
    }

    /// Sends Hello frames at the fast interval for a while: something has changed.
    #[inline]
    pub(crate) fn wake(&mut self, now: Mono, config: &Config) {
        let awake_ns = AWAKE_HELLOS.saturating_mul(config.hello_interval_ns);
        self.awake_until = self.awake_until.max(now.after_ns(awake_ns));
    }

    //= spec/failure.md#R46
    /// Returns when the next Hello is due; `None` before the first one. A switch that has restarted
    /// reaches this replica only after a Hello, so they are frequent while `is_pending`, as
    /// anything is to be sent.
    #[inline]
    pub(crate) fn hello_at(&self, config: &Config, is_pending: bool) -> Option<Mono> {
        let sent = self.hello_sent?;
        let is_frequent = is_pending || sent < self.awake_until;
        Some(sent.after_ns(match config.heartbeat_interval_ns {
            heartbeat_ns if !is_frequent => heartbeat_ns.max(config.hello_interval_ns),
            _ => config.hello_interval_ns,
        }))
    }

    /// Starts an interval: a Hello is to be sent on each link.
    pub(crate) fn start_hellos(&mut self, now: Mono, config: &Config) {
        self.hello_sent = Some(now);
        let unanswered_ns = SILENT_HEARTBEATS * config.heartbeat_interval_ns;
        if self.last_seen.is_none_or(|last_seen| now.since_ns(last_seen) > unanswered_ns) {
            self.wake(now, config);
        }
        self.hello_ports = 0..config.links.ports();
        debug_assert!(self.hello_at(config, true) > Some(now), "due again at once");
    }

    #[inline]
    pub(crate) fn has_hello(&self) -> bool {
        !self.hello_ports.is_empty()
    }

    /// Takes the next link on which a Hello is to be sent.
    #[inline]
    pub(crate) fn pop_hello(&mut self) -> Option<Port> {
        self.hello_ports.next().map(Port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Controllers, ProcessId};

    fn config() -> Config {
        let controllers = Controllers { first: ProcessId(90), count: 1 };
        let (heartbeat_interval_ns, isolated_after_ns) = (1_000, 1);
        let config = Config::new(ProcessId(90), controllers);
        Config { hello_interval_ns: 10, heartbeat_interval_ns, isolated_after_ns, ..config }
    }

    #[test]
    fn hellos_are_rare_when_a_change_is_past() {
        let (config, at) = (Config { links: Links::Mesh(2), ..config() }, Mono::from_ns);
        let mut links = OwnLinks::new(&config);
        assert_eq!((links.hello_at(&config, false), links.pop_hello()), (None, None));
        links.on_received(at(100), &config);
        links.start_hellos(at(100), &config);
        assert_eq!([links.pop_hello(), links.pop_hello()], [Some(Port(0)), Some(Port(1))]);
        assert!(!links.has_hello());
        assert_eq!(links.hello_at(&config, false), Some(at(1_100)));
        assert_eq!(links.hello_at(&config, true), Some(at(110)), "an answer is awaited");
        links.wake(at(100), &config);
        assert_eq!(links.hello_at(&config, false), Some(at(110)), "a change is recent");
        links.start_hellos(at(600), &config);
        assert_eq!(links.hello_at(&config, false), Some(at(1_600)));
        links.check_invariants(config.links);
    }

    #[test]
    fn isolation_is_reported_once_until_a_frame_arrives() {
        let (config, at) = (config(), Mono::from_ns);
        let mut links = OwnLinks::new(&config);
        assert!(!links.take_isolated(at(1 << 30), &config), "nothing was ever received");
        assert!(!links.on_received(at(5), &config));
        assert!(!links.take_isolated(at(10_004), &config));
        assert!(links.take_isolated(at(10_005), &config));
        assert!(!links.take_isolated(at(20_000), &config), "reported once");
        let late = at(6 + config.ping_timeout_ns / 2);
        assert!(links.on_received(late, &config), "reception had stalled");
        assert_eq!((links.receiving_since(), links.isolated_at(&config).is_some()), (late, true));
        links.check_invariants(config.links);
    }
}
