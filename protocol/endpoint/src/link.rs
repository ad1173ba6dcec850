//! The links of an endpoint: promises received, beacons, joins and link timeouts.

use onepipe_base::{Lateness, Mono, Now, Port, Promises, Registers, Timestamp};

use crate::demand::Demand;
use crate::timestamp::NO_PROMISE_AGE_NS;
use crate::{Config, Links};

/// Interval of Join frames until the switch responds, if the endpoint sends no beacons.
const JOIN_INTERVAL_NS: u64 = 1_000_000;
/// The same with beacons, in beacon intervals. With beacons on demand it doubles up to a heartbeat.
const JOIN_INTERVALS: u64 = 10;

/// Number of heartbeats that a link may miss.
const HEARTBEATS_PER_TIMEOUT: u64 = 10;

//= spec/ordering.md#R49
/// A turn that is late by this fraction of the link timeout is a stall: frames of live peers are
/// yet to be read.
const STALLS_PER_TIMEOUT: u64 = 8;
/// A gap between two promises that is at most this fraction of the link timeout does not lengthen
/// the timeout (R55).
const SHORT_GAPS_PER_TIMEOUT: u64 = 4;
/// Stalls postpone the loss of a silent link by at most this many timeouts.
const TIMEOUTS_POSTPONED_MAX: u64 = 3;

/// State of all links in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkLayer {
    registers: Registers,
    barrier: Option<Timestamp>,
    commit: Option<Timestamp>,
    /// Whether the last promise received contained a commit barrier.
    receives_commits: bool,
    /// When the next beacon and the next Join are due.
    beacon_at: Option<Mono>,
    join_at: Option<Mono>,
    /// Time until the Join after the next one, in ns.
    join_interval_ns: u64,
    /// Whether the uplink was ever up.
    has_been_up: bool,
    /// When to check links for timeouts: no link can time out earlier, as of the last check.
    expire_at: Option<Mono>,
    /// Whether a frame was sent since the beacon was last rescheduled.
    has_sent: bool,
    /// How late the turns of this process come, and until when a stall postpones lost links.
    lateness: Lateness,
    postponed_until: Option<Mono>,
    /// The next timeout as of the end of the last turn.
    promised_timeout: Option<Mono>,
    demand: Demand,
    /// Whether the other end of the uplink sends beacons on demand, as its last beacon says.
    is_peer_on_demand: bool,
}

impl LinkLayer {
    pub fn new(config: &Config) -> Self {
        let links = match config.links {
            Links::Uplink | Links::Overlay => 1,
            Links::Mesh => config.processes_max as u16,
        };
        let join_at = (config.links != Links::Mesh).then_some(Mono::from_ns(0));
        Self {
            registers: Registers::new(links),
            barrier: None,
            commit: None,
            receives_commits: false,
            beacon_at: None,
            join_at,
            join_interval_ns: first_join_interval_ns(config),
            has_been_up: false,
            expire_at: None,
            has_sent: false,
            lateness: Lateness::new(),
            postponed_until: None,
            promised_timeout: None,
            demand: Demand::new(
                config.beacon_interval_ns,
                config.heartbeat_interval_ns,
                config.link_timeout_ns,
            ),
            is_peer_on_demand: false,
        }
    }

    /// Returns the barrier: every message below it was or can be delivered.
    #[inline]
    pub fn barrier(&self) -> Option<Timestamp> {
        self.barrier
    }

    /// Returns the commit barrier without this process's own promise: no other process commits a
    /// scattering below it later.
    #[inline]
    pub fn commit(&self) -> Option<Timestamp> {
        self.commit
    }

    /// Returns whether the uplink carries commit barriers. A switch without a commit barrier sends
    /// a value that is [`NO_PROMISE_AGE_NS`] old instead.
    #[inline]
    pub fn receives_commits(&self) -> bool {
        self.receives_commits
    }

    //= spec/ordering.md#R19
    /// Records promises of `port`. Returns the barrier if it or the commit barrier has risen.
    #[inline]
    pub fn on_promises(
        &mut self,
        config: &Config,
        now: Mono,
        port: Port,
        promises: Promises,
    ) -> Option<Timestamp> {
        self.demand.on_uplink(now);
        if config.links == Links::Mesh {
            self.on_gap(config, now, port);
        }
        if self.registers.update(now, port, promises) {
            self.join_at = None;
            self.has_been_up = true;
            if config.link_timeout_ns > 0 {
                self.refresh_timeout(config, now);
                self.expire_at.get_or_insert(now.after_ns(self.idle_timeout_ns(config) + 1));
            }
        }
        self.receives_commits =
            promises.commit.wrapping_add_ns(NO_PROMISE_AGE_NS / 2) >= promises.barrier;
        let minimum = self.registers.minimum()?;
        self.raise(minimum)
    }

    //= spec/ordering.md#R55
    /// Handles the time since the last promise of a live link of a mesh, where nobody asks for
    /// promises: a long one shows that the peer, or this process, waited for a core.
    #[inline]
    fn on_gap(&mut self, config: &Config, now: Mono, port: Port) {
        let gap_ns = self.registers.last_seen(port).map_or(0, |at| now.since_ns(at));
        if gap_ns > config.link_timeout_ns / SHORT_GAPS_PER_TIMEOUT && config.link_timeout_ns > 0 {
            self.demand.on_response(now, gap_ns);
        }
    }

    /// Forgets the gaps of a mesh that are no longer recent.
    fn refresh_timeout(&mut self, config: &Config, now: Mono) {
        if config.links == Links::Mesh {
            self.demand.refresh_timeout(now);
        }
    }

    /// Returns whether this process is the only live one in a mesh.
    #[inline]
    pub fn has_no_peers(&self, config: &Config) -> bool {
        config.links == Links::Mesh && self.registers.live_count() == 0
    }

    /// Advances the barriers of a mesh without peers: only this process's own promise counts.
    #[cold]
    pub fn on_no_peers(&mut self, own: Option<Promises>) -> Option<Timestamp> {
        // Frozen links of dead peers still hold commits.
        let Promises { barrier, commit } = own?;
        let commit = self.registers.commit_floor().map_or(commit, |floor| commit.min(floor));
        self.raise(Promises { barrier, commit })
    }

    //= spec/ordering.md#R7
    #[inline]
    fn raise(&mut self, minimum: Promises) -> Option<Timestamp> {
        let (barrier, commit) = (Some(minimum.barrier), Some(minimum.commit));
        if barrier <= self.barrier && commit <= self.commit {
            return None;
        }
        self.barrier = self.barrier.max(barrier);
        self.commit = self.commit.max(commit);
        debug_assert!(self.barrier >= barrier && self.commit >= commit, "I9: barriers only rise");
        self.barrier
    }

    /// Returns the registers, for the control plane to freeze and resolve links. The caller must
    /// call [`LinkLayer::refresh`] after a change.
    #[inline]
    pub fn registers_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }

    #[inline]
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Recomputes the barriers from the registers. Returns the barrier if it or the commit barrier
    /// has risen.
    pub fn refresh(&mut self) -> Option<Timestamp> {
        let minimum = self.registers.minimum()?;
        self.raise(minimum)
    }

    //= spec/ordering.md#R48
    //= spec/ordering.md#R49
    /// Handles a timeout that is due since `due`: notes how late it comes. After a stall no link is
    /// lost before its peer had half a link timeout to be received.
    pub fn on_timeout(&mut self, config: &Config, now: Mono, due: Option<Mono>) {
        // A frame of this turn may have made something due in the past, or have put off what was
        // due: neither is late.
        let expected = due.zip(self.promised_timeout).map(|(due, promised)| due.max(promised));
        let late_ns = self.lateness.on_timeout(now, expected);
        self.demand.set_interval(self.lateness.stretch(config.beacon_interval_ns));
        if config.link_timeout_ns > 0 && late_ns > config.link_timeout_ns / STALLS_PER_TIMEOUT {
            self.postponed_until = Some(now.after_ns(config.link_timeout_ns / 2));
        }
    }

    /// Returns when to check links for timeouts: as soon as the first one can have timed out,
    /// unless a stall postpones that.
    fn check_at(&self, config: &Config) -> Option<Mono> {
        let at = Mono::earlier(self.expire_at, self.unanswered_until(config))?;
        let Some(until) = self.postponed_until else { return Some(at) };
        let latest = at.after_ns(TIMEOUTS_POSTPONED_MAX * config.link_timeout_ns);
        Some(at.max(until.min(latest)))
    }

    //= spec/ordering.md#R15
    /// Calls `on_lost`, which removes the link, for every link that timed out. Returns the barrier
    /// if it has risen.
    pub fn expire(
        &mut self,
        config: &Config,
        now: Mono,
        mut on_lost: impl FnMut(&mut Registers, Port),
    ) -> Option<Timestamp> {
        let unanswered = self.unanswered_until(config);
        if self.check_at(config).is_none_or(|at| now < at) {
            return None;
        }
        self.postponed_until = None;
        self.refresh_timeout(config, now);
        let before = self.registers.live_count();
        let deadline = match unanswered {
            // Nothing has arrived since the first solicit that was not answered.
            Some(at) if at <= now => now,
            _ => Mono::from_ns(now.as_ns().saturating_sub(self.idle_timeout_ns(config))),
        };
        while let Some(port) = self.registers.idle_since(deadline) {
            on_lost(&mut self.registers, port);
        }
        // One ns later, because a link is lost if it was updated *before* the deadline.
        let oldest = self.registers.oldest_update();
        self.expire_at = oldest.map(|at| at.after_ns(self.idle_timeout_ns(config) + 1));
        if self.registers.live_count() == before {
            return None;
        }
        self.restart_join(config, now);
        self.refresh()
    }

    //= spec/ordering.md#R44
    /// Returns the time after which an idle link is lost, in ns. Not valid without a link timeout.
    pub fn idle_timeout_ns(&self, config: &Config) -> u64 {
        if config.links == Links::Mesh {
            return self.demand.timeout_ns();
        }
        match self.is_peer_on_demand {
            true => {
                let heartbeats_ns = HEARTBEATS_PER_TIMEOUT * config.heartbeat_interval_ns;
                self.demand.timeout_ns().max(heartbeats_ns)
            }
            false => config.link_timeout_ns,
        }
    }

    /// Returns when a solicit will have been unanswered for the link timeout.
    fn unanswered_until(&self, config: &Config) -> Option<Mono> {
        let since = self.demand.unanswered_since().filter(|_| config.link_timeout_ns > 0)?;
        (self.registers.live_count() > 0).then(|| since.after_ns(self.demand.timeout_ns() + 1))
    }

    /// Returns when the next Join is due.
    pub fn join_due(&self) -> Option<Mono> {
        self.join_at
    }

    /// Returns whether the uplink was ever up.
    pub fn has_been_up(&self) -> bool {
        self.has_been_up
    }

    /// Schedules a Join at once, after the uplink was lost.
    pub fn restart_join(&mut self, config: &Config, now: Mono) {
        self.demand.on_link_change();
        self.join_interval_ns = first_join_interval_ns(config);
        if config.links != Links::Mesh {
            self.join_at = Some(now);
        }
    }

    //= spec/ordering.md#R45
    /// Returns whether Joins that are not answered become rare. They do not where the link was up
    /// before and each frame brings it closer to being up again (spec/failure.md R38), nor for a
    /// switch with a fixed interval.
    fn joins_rarely(&self, config: &Config) -> bool {
        let is_first = !self.has_been_up;
        let may_rejoin = config.controllers.is_none() && self.is_peer_on_demand;
        config.heartbeat_interval_ns > 0 && (is_first || may_rejoin)
    }

    /// Returns whether a Join is due now, and schedules the next one.
    #[inline]
    pub fn take_join(&mut self, config: &Config, now: Mono) -> bool {
        let is_due = self.join_at.is_some_and(|at| at <= now);
        if is_due {
            self.join_at = Some(now.after_ns(self.join_interval_ns));
            if self.joins_rarely(config) {
                let max_ns = config.heartbeat_interval_ns.max(first_join_interval_ns(config));
                self.join_interval_ns = (2 * self.join_interval_ns).min(max_ns);
            }
        }
        is_due
    }

    //= spec/ordering.md#R11
    /// Returns whether a beacon is due. Any other frame sent meanwhile has carried the promise.
    #[inline]
    pub fn take_beacon(&mut self, now: Mono, promises: Option<Promises>) -> bool {
        (!self.has_sent && self.beacon_at.is_some_and(|at| at <= now))
            || self.demand.take_beacon(now, promises)
    }

    #[inline]
    pub fn on_sent(&mut self, now: Mono, promises: Promises, is_started: bool) {
        self.has_sent = true;
        self.demand.on_sent(now, promises, is_started);
    }

    /// Schedules the next beacon once all frames are sent: at the next multiple of the interval on
    /// the synchronised clock, so that the beacons of all links coincide. With beacons on demand
    /// the interval is that of heartbeats, unless the link is still being set up.
    #[inline]
    pub fn on_drained(&mut self, config: &Config, now: Now, clock: Timestamp, is_joining: bool) {
        if config.beacon_interval_ns == 0 || config.links == Links::Mesh {
            return;
        }
        let interval_ns = match config.heartbeat_interval_ns {
            0 => config.beacon_interval_ns,
            // The switch has not responded to the Join, which promises all that a beacon would.
            heartbeat_ns if self.join_at.is_some() && self.joins_rarely(config) => heartbeat_ns,
            _ if is_joining || self.join_at.is_some() || !self.is_peer_on_demand => {
                self.lateness.stretch(config.beacon_interval_ns)
            }
            heartbeat_ns => heartbeat_ns,
        };
        let is_behind = self.beacon_at.is_none_or(|at| at <= now.mono);
        let is_slower = self.beacon_at.is_some_and(|at| at > now.mono.after_ns(interval_ns));
        if self.has_sent || is_behind || is_slower {
            let until_next = interval_ns - clock.as_ns() % interval_ns;
            self.beacon_at = Some(now.mono.after_ns(until_next));
            self.has_sent = false;
        }
    }

    /// Notes the next timeout at the end of a turn.
    #[inline]
    pub fn set_promised_timeout(&mut self, due: Option<Mono>) {
        self.promised_timeout = due;
    }

    /// Returns whether the other end of the uplink sends beacons on demand.
    #[inline]
    pub fn is_peer_on_demand(&self) -> bool {
        self.is_peer_on_demand
    }

    pub fn set_peer_on_demand(&mut self, is_on_demand: bool) {
        self.is_peer_on_demand = is_on_demand;
    }

    /// Returns the promises that others wait for, and those that this process waits for.
    #[inline]
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// See [`LinkLayer::demand`].
    #[inline]
    pub fn demand_mut(&mut self) -> &mut Demand {
        &mut self.demand
    }

    /// Checks the barriers against the registers, and that links are timed.
    pub fn check_invariants(&self, config: &Config) {
        if let Some(minimum) = self.registers.minimum() {
            assert!(self.barrier >= Some(minimum.barrier), "the barrier follows the registers");
            assert!(self.commit >= Some(minimum.commit), "the commit barrier follows, too");
        }
        assert_eq!(self.barrier.is_some(), self.commit.is_some(), "both barriers start at once");
        let is_live = self.registers.live_count() > 0;
        assert!(!is_live || self.has_been_up, "a live link has been up");
        let is_timed = config.link_timeout_ns == 0 || self.expire_at.is_some();
        assert!(!is_live || is_timed, "a live link is timed");
        let is_mesh = config.links == Links::Mesh;
        assert!(!is_mesh || self.join_at.is_none(), "a mesh has no switch to join");
        assert!(!is_mesh || self.beacon_at.is_none(), "a mesh has no beacons");
        assert!(is_mesh || !is_live || self.join_at.is_none(), "a live uplink is joined");
        assert!(self.join_interval_ns > 0, "a Join is not repeated at once");
    }

    /// Returns when the next beacon, Join or timeout check is due.
    #[inline]
    pub fn deadline(&self, config: &Config) -> Option<Mono> {
        let own = Mono::earlier(Mono::earlier(self.beacon_at, self.join_at), self.check_at(config));
        Mono::earlier(own, self.demand.deadline())
    }
}

/// Returns the interval between the first two Join frames, in ns.
fn first_join_interval_ns(config: &Config) -> u64 {
    match config.beacon_interval_ns {
        0 => JOIN_INTERVAL_NS,
        beacon_interval_ns => JOIN_INTERVALS * beacon_interval_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Incarnation, ProcessId};

    //= spec/ordering.md#R55
    #[test]
    fn gaps_of_live_mesh_links_lengthen_the_timeout() {
        let links = Links::Mesh;
        let config =
            Config { links, link_timeout_ns: 100, ..Config::new(ProcessId(0), Incarnation(1)) };
        let both = |ns| Promises::both(Timestamp::from_ns(ns));
        let mut link = LinkLayer::new(&config);
        let lost_at = |link: &mut LinkLayer, from: u64| {
            let mut lost = None;
            let mut now = from;
            while lost.is_none() {
                now += 1;
                link.expire(&config, Mono::from_ns(now), |registers, port| {
                    registers.remove(port);
                    lost = Some(now);
                });
            }
            now
        };
        for at in [0, 20] {
            link.on_promises(&config, Mono::from_ns(at), Port(1), both(at));
        }
        assert_eq!(lost_at(&mut link, 20), 121, "no long gap so far");
        // Not live in between, so this is no gap.
        link.on_promises(&config, Mono::from_ns(190), Port(1), both(190));
        link.on_promises(&config, Mono::from_ns(250), Port(1), both(250));
        assert_eq!(lost_at(&mut link, 250), 491, "four times the longest gap");
        for at in [5_000, 5_010] {
            link.on_promises(&config, Mono::from_ns(at), Port(1), both(at));
        }
        assert_eq!(lost_at(&mut link, 5_010), 5_111, "the gap of 60 ns is long ago");
    }

    #[test]
    fn last_mesh_member_respects_frozen_commits() {
        let links = Links::Mesh;
        let config = Config { links, ..Config::new(ProcessId(0), Incarnation(1)) };
        let both = |ns| Promises::both(Timestamp::from_ns(ns));
        let mut link = LinkLayer::new(&config);
        link.on_promises(&config, Mono::from_ns(0), Port(1), both(50));
        assert_eq!(link.registers_mut().freeze(Port(1)), Some(Timestamp::from_ns(50)));
        link.on_no_peers(Some(both(90)));
        let raised = (link.barrier(), link.commit());
        assert_eq!(raised, (Some(Timestamp::from_ns(90)), Some(Timestamp::from_ns(50))));
        link.registers_mut().hold(Port(1), None);
        link.on_no_peers(Some(both(95)));
        assert_eq!(link.commit(), Some(Timestamp::from_ns(95)));
    }
}
