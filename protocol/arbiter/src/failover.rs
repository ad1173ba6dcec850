//! Which of several arbiters gives out timeslots.
//!
//! The primary says so at intervals. The others claim nothing, and say that they are there, so that
//! switches know where. Who has heard no claim for a while takes over, with a higher epoch, and
//! whoever hears of a higher claim than its own steps down: from the other arbiter, or from an
//! endpoint that has met both. Nothing else is shared: who takes over asks all endpoints what they
//! still want, and gives out no timeslot that the other one may have given out (design: arbiter.md
//! section 4).

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};
use onepipe_wire::Watchdog;

/// What an arbiter is when all of them begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It gives out timeslots if nobody else does.
    Primary,
    /// It waits twice as long before it does.
    Secondary,
}

/// How arbiters take over from each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverConfig {
    /// What this one is at the beginning.
    pub role: Role,
    /// The others.
    pub peers: Vec<ProcessId>,
    /// A primary says so at intervals of so much, ns, and the others that they are there. Default
    /// 100 us.
    pub watchdog_ns: u64,
    /// Who has heard none for so long takes over, ns. Default 1 ms (design: arbiter.md section 4).
    pub takeover_ns: u64,
}

impl FailoverConfig {
    /// An arbiter alone.
    pub const ALONE: Self = Self {
        role: Role::Primary,
        peers: Vec::new(),
        watchdog_ns: 100_000,
        takeover_ns: 1_000_000,
    };
}

/// What has become of this arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// It gives out timeslots from now on. `may_follow`: somebody else may have done so until now.
    Primary { may_follow: bool },
    /// It does no longer.
    Secondary,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Failover {
    own: ProcessId,
    config: FailoverConfig,
    /// The highest that was heard or is claimed.
    epoch: u32,
    is_primary: bool,
    /// When it takes over, if it is not the primary and hears nothing.
    takes_over: Option<Mono>,
    /// When it next says what it is.
    tells: Mono,
    /// How many peers have still to be told.
    to_tell: usize,
    /// There is a later life of this one: it does nothing any more.
    is_over: bool,
}

impl Failover {
    pub fn new(own: ProcessId, config: FailoverConfig) -> Self {
        Self {
            own,
            config,
            epoch: 0,
            is_primary: false,
            takes_over: None,
            tells: Mono::from_ns(0),
            to_tell: 0,
            is_over: false,
        }
    }

    /// There is a later life of this one. Answers whether that is new.
    pub fn end(&mut self) -> bool {
        let was_over = core::mem::replace(&mut self.is_over, true);
        (self.is_primary, self.to_tell) = (false, 0);
        !was_over
    }

    pub fn is_primary(&self) -> bool {
        self.is_primary
    }

    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What it says: nothing is claimed with epoch 0.
    fn claim(&self) -> Watchdog {
        let epoch = if self.is_primary { self.epoch } else { 0 };
        Watchdog { epoch, primary: self.own }
    }

    /// A watchdog has come, from whomever.
    pub fn on_watchdog(&mut self, now: Mono, heard: Watchdog) -> Option<Change> {
        if heard.epoch == 0 || self.is_over {
            return None;
        }
        if heard.primary == self.own {
            // Of a former life, unless it is an echo of this one: not below it again.
            self.epoch = self.epoch.max(heard.epoch);
            return None;
        }
        if !self.is_primary {
            if heard.epoch >= self.epoch {
                self.epoch = heard.epoch;
                self.takes_over = Some(now.after_ns(self.config.takeover_ns));
            }
            return None;
        }
        if heard < self.claim() {
            // It does not know yet.
            self.to_tell = self.config.peers.len();
            return None;
        }
        self.epoch = heard.epoch;
        self.is_primary = false;
        self.to_tell = 0;
        self.takes_over = Some(now.after_ns(self.config.takeover_ns));
        Some(Change::Secondary)
    }

    /// Takes over, or has the peers told, when it is time.
    pub fn on_timeout(&mut self, now: Mono) -> Option<Change> {
        if self.is_over {
            return None;
        }
        if self.config.peers.is_empty() {
            return self.take_over(now, false);
        }
        let wait_ns = match self.config.role {
            Role::Primary => self.config.takeover_ns,
            Role::Secondary => 2 * self.config.takeover_ns,
        };
        let takes_over = *self.takes_over.get_or_insert(now.after_ns(wait_ns));
        if !self.is_primary && now >= takes_over {
            return self.take_over(now, true);
        }
        if now >= self.tells {
            self.tell(now);
        }
        None
    }

    fn take_over(&mut self, now: Mono, may_follow: bool) -> Option<Change> {
        if self.is_primary {
            return None;
        }
        self.epoch = self.epoch.saturating_add(1);
        self.is_primary = true;
        self.tell(now);
        Some(Change::Primary { may_follow })
    }

    fn tell(&mut self, now: Mono) {
        self.to_tell = self.config.peers.len();
        self.tells = now.after_ns(self.config.watchdog_ns);
    }

    /// Whom to tell what.
    pub fn poll(&mut self) -> Option<(ProcessId, Watchdog)> {
        self.to_tell = self.to_tell.checked_sub(1)?;
        Some((self.config.peers[self.to_tell], self.claim()))
    }

    pub fn due(&self) -> Option<Mono> {
        match self.takes_over {
            _ if self.is_over => None,
            _ if self.config.peers.is_empty() => Some(self.tells).filter(|_| !self.is_primary),
            Some(due) if !self.is_primary => Some(self.tells.min(due)),
            _ => Some(self.tells),
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

    #[test]
    fn the_primary_begins_and_the_other_takes_over_a_millisecond_after_its_last_word() {
        let (mut one, mut other) = (new(9, Role::Primary, 8), new(8, Role::Secondary, 9));
        assert_eq!(one.on_timeout(Mono::from_ns(MS - 1)), None);
        let change = one.on_timeout(Mono::from_ns(MS));
        assert_eq!(change, Some(Change::Primary { may_follow: true }));
        let (to, word) = one.poll().expect("its peer");
        assert_eq!((to, word.epoch, one.poll()), (ProcessId(8), 1, None));
        assert_eq!(other.on_watchdog(Mono::from_ns(MS), word), None);
        assert_eq!(other.on_timeout(Mono::from_ns(2 * MS - 1)), None);
        assert!(other.on_timeout(Mono::from_ns(2 * MS)).is_some() && other.epoch() == 2);
        let (_, word) = other.poll().expect("its peer");
        assert_eq!(one.on_watchdog(Mono::from_ns(2 * MS), word), Some(Change::Secondary));
        assert!(!one.is_primary() && other.is_primary());
        assert_eq!(one.on_watchdog(Mono::from_ns(3 * MS), word), None);
        assert!(one.on_timeout(Mono::from_ns(3 * MS + 999_999)).is_none());
        assert!(one.on_timeout(Mono::from_ns(4 * MS)).is_some() && one.epoch() == 3);
    }

    #[test]
    fn of_two_claims_of_one_epoch_one_yields() {
        let (mut one, mut other) = (new(9, Role::Primary, 8), new(8, Role::Primary, 9));
        for failover in [&mut one, &mut other] {
            assert!(failover.on_timeout(Mono::from_ns(MS)).is_some());
        }
        let (nine, eight) = (one.poll().expect("a word").1, other.poll().expect("a word").1);
        assert_eq!(one.on_watchdog(Mono::from_ns(MS), eight), None);
        assert_eq!(one.poll().expect("it says so at once").1, nine);
        assert_eq!(other.on_watchdog(Mono::from_ns(MS), nine), Some(Change::Secondary));
        assert!(one.is_primary() && !other.is_primary());
    }

    #[test]
    fn who_is_not_the_primary_says_that_it_is_there_and_nothing_else() {
        let (mut one, mut other) = (new(9, Role::Secondary, 8), new(8, Role::Secondary, 9));
        let there = Watchdog { epoch: 0, primary: ProcessId(9) };
        for nth in 0..15 {
            let now = Mono::from_ns(nth * 100_000);
            assert!(nth == 0 || one.due() == Some(now), "it is time");
            assert_eq!((one.on_timeout(now), other.on_timeout(now)), (None, None));
            let (to, word) = one.poll().expect("its peer");
            assert_eq!((to, word, one.poll()), (ProcessId(8), there, None));
            assert_eq!(other.on_watchdog(now, word), None);
        }
        let now = Mono::from_ns(2 * MS);
        assert!(other.on_timeout(now).is_some(), "it has heard no primary");
        let (_, claim) = other.poll().expect("its peer");
        assert_eq!((claim.epoch, other.on_watchdog(now, there)), (1, None));
        assert_eq!(other.poll(), None, "nothing was claimed that it had to deny");
        assert_eq!((one.on_watchdog(now, claim), one.epoch()), (None, 1));
        assert_eq!(one.on_timeout(now), None);
        assert_eq!(one.poll(), Some((ProcessId(8), there)), "of others' claims it says nothing");
    }

    #[test]
    fn who_begins_anew_claims_more_than_its_former_life_did() {
        let mut anew = new(9, Role::Primary, 8);
        let former = Watchdog { epoch: 7, primary: ProcessId(9) };
        assert_eq!(anew.on_watchdog(Mono::from_ns(0), former), None);
        assert!(anew.on_timeout(Mono::from_ns(MS)).is_some(), "that is no other primary");
        assert_eq!(anew.poll().map(|(_, word)| word.epoch), Some(8));
        let lower = Watchdog { epoch: 3, primary: ProcessId(9) };
        assert_eq!((anew.on_watchdog(Mono::from_ns(MS), lower), anew.epoch()), (None, 8));
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let mut alone = Failover::new(ProcessId(9), FailoverConfig::ALONE);
        let change = alone.on_timeout(Mono::from_ns(5));
        assert_eq!(change, Some(Change::Primary { may_follow: false }));
        assert_eq!((alone.poll(), alone.due()), (None, None));
    }
}
