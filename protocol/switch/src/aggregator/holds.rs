//! Commits that dead links hold, and outputs on which commits do not rise.

use onepipe_base::{Port, Promises, Timestamp};

use super::Aggregator;
use crate::clock::carries_commit;

impl Aggregator {
    /// Holds the commit of `port` at `held` from now on, or releases it.
    pub(crate) fn hold(&mut self, port: Port, held: Option<Timestamp>) {
        let (registers, port) = self.registers_mut(port);
        registers.hold(port, held);
    }

    /// Whether dead instances hold the commit of `port`.
    pub(crate) fn is_held(&self, port: Port) -> bool {
        if self.is_upper(port) {
            self.upper.is_held(self.upper_index(port))
        } else {
            self.lower.is_held(port)
        }
    }

    /// Notes whether this switch may have been cut off from the controllers: a link has died, or a
    /// controller was received. Returns whether that has changed.
    pub(crate) fn set_cut(&mut self, is_cut: bool) -> bool {
        core::mem::replace(&mut self.is_cut, is_cut) != is_cut
    }

    /// Notes whether the commits that the other end of `port` promises do not rise. Returns whether
    /// that has changed.
    #[inline]
    pub(crate) fn set_stopped_behind(&mut self, port: Port, is_stopped: bool) -> bool {
        let has_changed = self.stopped_behind.contains(port) != is_stopped;
        match is_stopped {
            true => self.stopped_behind.insert(port),
            false => self.stopped_behind.remove(port),
        }
        has_changed
    }

    /// Whether any dead link holds commits, or a commit does not rise behind an input.
    #[inline]
    pub(super) fn has_holds(&self) -> bool {
        self.lower.has_holds() || self.upper.has_holds() || !self.stopped_behind.is_empty()
    }

    /// Whether the commit advertised on the output `port` does not rise.
    pub(crate) fn is_stopped(&self, port: Port) -> bool {
        let is_upper = self.is_upper(port);
        let feeds = |input: Port| match is_upper {
            true => !self.is_upper(input),
            false => input != port,
        };
        let is_held = self.lower.has_holds() || (!is_upper && self.upper.has_holds());
        (self.is_cut && is_held) || self.stopped_behind.iter().any(feeds)
    }

    //= spec/failure.md#R73
    /// As [`Aggregator::minimum_live`] while dead links hold commits, which they do even where no
    /// link is live beside them. A commit that was advertised on a stopped output stays.
    #[cold]
    pub(super) fn minimum_held(&self, port: Port) -> Option<Promises> {
        let live = self.minimum_live(port)?;
        let floor = self.commit_floor(port).unwrap_or(live.commit);
        let advertised = self.advertised(port).filter(|advertised| carries_commit(*advertised));
        let commit = match advertised {
            Some(advertised) if self.is_stopped(port) => floor.min(advertised.commit),
            _ => floor,
        };
        Some(Promises { commit, ..live })
    }

    /// Returns the lowest commit of all inputs of `port`, dead ones included.
    pub(super) fn commit_floor(&self, port: Port) -> Option<Timestamp> {
        let floors = if self.is_upper(port) {
            [self.lower.commit_floor(), None]
        } else if self.lower.is_held(port) {
            [self.lower.commit_floor(), self.upper.commit_floor()]
        } else {
            [self.lower.commit_floor_except(port), self.upper.commit_floor()]
        };
        floors.into_iter().flatten().min()
    }
}
