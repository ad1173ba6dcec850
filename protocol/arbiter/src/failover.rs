//! Election of the primary among several arbiters.
//!
//! The primary sends a watchdog with its epoch at intervals. Secondaries send watchdogs without a
//! claim, so that switches learn where they are attached. A secondary that has received no claim
//! for the takeover time becomes the primary with a higher epoch. A primary steps down when it
//! receives a higher claim, from the other arbiter or from an endpoint that knows both. Arbiters
//! share no other state: a new primary resets all endpoints, which report their demand again, and
//! begins beyond every timeslot that its predecessor may have granted (`docs/design/arbiter.md`,
//! "How does a secondary take over without knowing what was given?").

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_wire::Watchdog;

/// Maximum number of changes of the primary that an arbiter can have missed: those of a minute with
/// one in every `takeover_ns` (default 1 ms).
const EPOCH_JUMP_MAX: u32 = 1 << 16;
/// The highest epoch that an arbiter believes first: 24 days of such changes.
const EPOCH_FIRST_MAX: u32 = 1 << 31;

/// The configured role of an arbiter at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Becomes the primary unless another arbiter claims to be.
    Primary,
    /// Waits twice as long before it does.
    Secondary,
}

/// Settings of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverConfig {
    /// The role of this arbiter at its start.
    pub role: Role,
    /// The other arbiters.
    pub peers: Vec<ProcessId>,
    /// Interval of watchdogs, ns. Default 100 us.
    pub watchdog_ns: u64,
    /// Time without a claim after which a secondary takes over, ns. Default 1 ms.
    pub takeover_ns: u64,
}

impl FailoverConfig {
    /// An arbiter without peers.
    pub const ALONE: Self = Self {
        role: Role::Primary,
        peers: Vec::new(),
        watchdog_ns: 100_000,
        takeover_ns: 1_000_000,
    };
}

/// A change of the current role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// This arbiter grants timeslots from now on. `may_overlap`: another arbiter may have granted
    /// timeslots until now.
    Primary { may_overlap: bool },
    /// This arbiter has stepped down.
    Secondary,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Failover {
    own: ProcessId,
    config: FailoverConfig,
    /// The highest epoch claimed or received.
    epoch: u32,
    is_primary: bool,
    /// When a secondary takes over unless it receives a claim.
    takeover_at: Option<Mono>,
    /// When the next watchdogs are due.
    advertise_at: Mono,
    /// Number of peers that the current watchdog has not been sent to.
    unsent: usize,
    /// A later incarnation of this arbiter exists: this one has stopped.
    is_replaced: bool,
}

impl Failover {
    pub fn new(own: ProcessId, config: FailoverConfig) -> Self {
        Self {
            own,
            config,
            epoch: 0,
            is_primary: false,
            takeover_at: None,
            advertise_at: Mono::from_ns(0),
            unsent: 0,
            is_replaced: false,
        }
    }

    /// Stops this arbiter, as a later incarnation exists. Returns false if it was stopped already.
    pub fn retire(&mut self) -> bool {
        let was_replaced = core::mem::replace(&mut self.is_replaced, true);
        (self.is_primary, self.unsent) = (false, 0);
        !was_replaced
    }

    /// Asserts that only an arbiter that claims an epoch is the primary.
    pub fn check_invariants(&self) {
        assert!(!self.is_primary || self.epoch > 0, "a primary has claimed an epoch");
        assert!(!self.is_primary || !self.is_replaced, "a replaced arbiter is no primary");
        assert!(!self.is_replaced || self.unsent == 0, "a replaced arbiter sends nothing");
        assert!(self.unsent <= self.config.peers.len(), "one watchdog for each peer");
        let alone = self.config.peers.is_empty();
        assert!(!self.is_primary || alone || self.takeover_at.is_some(), "it has waited before");
    }

    pub fn is_primary(&self) -> bool {
        self.is_primary
    }

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    //= spec/arbiter.md#R27
    /// Returns the watchdog to send. Epoch 0 claims nothing.
    fn claim(&self) -> Watchdog {
        let epoch = if self.is_primary { self.epoch } else { 0 };
        Watchdog { epoch, primary: self.own }
    }

    //= spec/arbiter.md#R39
    /// Returns whether a claim can be one of the configured arbiters. Epochs do not wrap, so the
    /// last one would end elections.
    pub fn is_plausible(&self, claim: Watchdog) -> bool {
        let epoch_max = match self.epoch {
            0 => EPOCH_FIRST_MAX,
            epoch => epoch.saturating_add(EPOCH_JUMP_MAX),
        };
        self.is_arbiter(claim.primary) && claim.epoch <= epoch_max
    }

    /// Returns whether `process` is one of the configured arbiters.
    pub fn is_arbiter(&self, process: ProcessId) -> bool {
        process == self.own || self.config.peers.contains(&process)
    }

    //= spec/arbiter.md#R29
    /// Handles a plausible watchdog from any sender.
    pub fn on_watchdog(&mut self, now: Mono, received: Watchdog) -> Option<Change> {
        if received.epoch == 0 || self.is_replaced {
            return None;
        }
        if received.primary == self.own {
            // An echo, or the claim of a previous incarnation: never claim less than that.
            self.epoch = self.epoch.max(received.epoch);
            return None;
        }
        if !self.is_primary {
            if received.epoch >= self.epoch {
                self.epoch = received.epoch;
                self.takeover_at = Some(now.after_ns(self.config.takeover_ns));
            }
            return None;
        }
        if received < self.claim() {
            // The other arbiter does not know this claim yet.
            self.unsent = self.config.peers.len();
            return None;
        }
        self.epoch = received.epoch;
        self.is_primary = false;
        self.unsent = 0;
        self.takeover_at = Some(now.after_ns(self.config.takeover_ns));
        Some(Change::Secondary)
    }

    //= spec/arbiter.md#R27
    /// Takes over, or starts sending watchdogs, when due.
    pub fn on_timeout(&mut self, now: Mono) -> Option<Change> {
        if self.is_replaced {
            return None;
        }
        if self.config.peers.is_empty() {
            return self.take_over(now, false);
        }
        let wait_ns = match self.config.role {
            Role::Primary => self.config.takeover_ns,
            Role::Secondary => 2 * self.config.takeover_ns,
        };
        let takeover_at = *self.takeover_at.get_or_insert(now.after_ns(wait_ns));
        if !self.is_primary && now >= takeover_at {
            return self.take_over(now, true);
        }
        if now >= self.advertise_at {
            self.advertise(now);
        }
        None
    }

    fn take_over(&mut self, now: Mono, may_overlap: bool) -> Option<Change> {
        if self.is_primary {
            return None;
        }
        debug_assert!(!self.is_replaced, "a replaced arbiter never takes over");
        self.epoch = self.epoch.saturating_add(1);
        self.is_primary = true;
        self.advertise(now);
        Some(Change::Primary { may_overlap })
    }

    fn advertise(&mut self, now: Mono) {
        self.unsent = self.config.peers.len();
        self.advertise_at = now.after_ns(self.config.watchdog_ns);
    }

    /// Returns the next watchdog and the peer to send it to.
    pub fn poll_watchdog(&mut self) -> Option<(ProcessId, Watchdog)> {
        self.unsent = self.unsent.checked_sub(1)?;
        Some((self.config.peers[self.unsent], self.claim()))
    }

    pub fn due(&self) -> Option<Mono> {
        match self.takeover_at {
            _ if self.is_replaced => None,
            _ if self.config.peers.is_empty() => {
                Some(self.advertise_at).filter(|_| !self.is_primary)
            }
            Some(due) if !self.is_primary => Some(self.advertise_at.min(due)),
            _ => Some(self.advertise_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn new(own: u32, role: Role, peer: u32) -> Failover {
        let config =
            FailoverConfig { role, peers: alloc::vec![ProcessId(peer)], ..FailoverConfig::ALONE };
        let mut failover = Failover::new(ProcessId(own), config);
        assert_eq!(failover.on_timeout(Mono::from_ns(0)), None);
        failover
    }

    //= spec/arbiter.md#R27
    #[test]
    fn secondary_takes_over_1_ms_after_the_last_watchdog() {
        let (mut one, mut other) = (new(9, Role::Primary, 8), new(8, Role::Secondary, 9));
        assert_eq!(one.on_timeout(Mono::from_ns(MS - 1)), None);
        let change = one.on_timeout(Mono::from_ns(MS));
        assert_eq!(change, Some(Change::Primary { may_overlap: true }));
        let (to, watchdog) = one.poll_watchdog().expect("a watchdog for the peer");
        assert_eq!((to, watchdog.epoch, one.poll_watchdog()), (ProcessId(8), 1, None));
        assert_eq!(other.on_watchdog(Mono::from_ns(MS), watchdog), None);
        assert_eq!(other.on_timeout(Mono::from_ns(2 * MS - 1)), None);
        assert!(other.on_timeout(Mono::from_ns(2 * MS)).is_some() && other.epoch() == 2);
        let (_, watchdog) = other.poll_watchdog().expect("a watchdog for the peer");
        assert_eq!(one.on_watchdog(Mono::from_ns(2 * MS), watchdog), Some(Change::Secondary));
        assert!(!one.is_primary() && other.is_primary());
        assert_eq!(one.on_watchdog(Mono::from_ns(3 * MS), watchdog), None);
        assert!(one.on_timeout(Mono::from_ns(3 * MS + 999_999)).is_none());
        assert!(one.on_timeout(Mono::from_ns(4 * MS)).is_some() && one.epoch() == 3);
    }

    //= spec/arbiter.md#R29
    #[test]
    fn of_two_primaries_in_one_epoch_one_steps_down() {
        let (mut one, mut other) = (new(9, Role::Primary, 8), new(8, Role::Primary, 9));
        for failover in [&mut one, &mut other] {
            assert!(failover.on_timeout(Mono::from_ns(MS)).is_some());
        }
        let (nine, eight) = (
            one.poll_watchdog().expect("a watchdog").1,
            other.poll_watchdog().expect("a watchdog").1,
        );
        assert_eq!(one.on_watchdog(Mono::from_ns(MS), eight), None);
        assert_eq!(one.poll_watchdog().expect("sends its claim at once").1, nine);
        assert_eq!(other.on_watchdog(Mono::from_ns(MS), nine), Some(Change::Secondary));
        assert!(one.is_primary() && !other.is_primary());
    }

    //= spec/arbiter.md#R27
    #[test]
    fn secondary_advertises_itself_without_a_claim() {
        let (mut one, mut other) = (new(9, Role::Secondary, 8), new(8, Role::Secondary, 9));
        let there = Watchdog { epoch: 0, primary: ProcessId(9) };
        for nth in 0..15 {
            let now = Mono::from_ns(nth * 100_000);
            assert!(nth == 0 || one.due() == Some(now), "a watchdog is due");
            assert_eq!((one.on_timeout(now), other.on_timeout(now)), (None, None));
            let (to, watchdog) = one.poll_watchdog().expect("a watchdog for the peer");
            assert_eq!((to, watchdog, one.poll_watchdog()), (ProcessId(8), there, None));
            assert_eq!(other.on_watchdog(now, watchdog), None);
        }
        let now = Mono::from_ns(2 * MS);
        assert!(other.on_timeout(now).is_some(), "received no claim");
        let (_, claim) = other.poll_watchdog().expect("a watchdog for the peer");
        assert_eq!((claim.epoch, other.on_watchdog(now, there)), (1, None));
        assert_eq!(other.poll_watchdog(), None, "no claim to contradict");
        assert_eq!((one.on_watchdog(now, claim), one.epoch()), (None, 1));
        assert_eq!(one.on_timeout(now), None);
        assert_eq!(
            one.poll_watchdog(),
            Some((ProcessId(8), there)),
            "does not repeat claims of others"
        );
    }

    #[test]
    fn restarted_arbiter_claims_a_higher_epoch() {
        let mut restarted = new(9, Role::Primary, 8);
        let previous = Watchdog { epoch: 7, primary: ProcessId(9) };
        assert_eq!(restarted.on_watchdog(Mono::from_ns(0), previous), None);
        assert!(restarted.on_timeout(Mono::from_ns(MS)).is_some(), "not another primary");
        assert_eq!(restarted.poll_watchdog().map(|(_, watchdog)| watchdog.epoch), Some(8));
        let lower = Watchdog { epoch: 3, primary: ProcessId(9) };
        assert_eq!((restarted.on_watchdog(Mono::from_ns(MS), lower), restarted.epoch()), (None, 8));
    }

    #[test]
    fn arbiter_without_peers_starts_at_once() {
        let mut alone = Failover::new(ProcessId(9), FailoverConfig::ALONE);
        let change = alone.on_timeout(Mono::from_ns(5));
        assert_eq!(change, Some(Change::Primary { may_overlap: false }));
        assert_eq!((alone.poll_watchdog(), alone.due()), (None, None));
    }
}
