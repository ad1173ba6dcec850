//! The part of [`Switch`] that advertises promises: on passing frames and in beacons.

use onepipe_base::{Port, Promises, Timestamp, Transmit};
use onepipe_wire::{Flags, HEADER_LEN, Header, Opcode, seal_with_hops};

use crate::clock::no_promise;
use crate::{Form, Switch};

impl Switch {
    /// Returns what is advertised on `port` now.
    #[inline]
    pub(crate) fn advertise(&mut self, reference: Timestamp, port: Port) -> Option<Promises> {
        if self.may_advertise_commit(port) {
            return self.aggregator.advertise(port);
        }
        let no_commit = no_promise(reference).commit;
        let mut advertised = self.aggregator.advertise_barrier(port, no_commit);
        if !self.aggregator.is_upper(port)
            && let Some(advertised) = &mut advertised
        {
            // The commit advertised here before may have been received by another instance: the
            // current peer gets none.
            advertised.commit = no_commit;
        }
        advertised
    }

    /// Returns the promises and flags of a beacon that shows the peer of the unfed `port` that the
    /// link is up. `None` where no peer needs it: a process that this switch does not receive must
    /// find its link idle.
    #[cold]
    pub(crate) fn advertise_unfed(
        &mut self,
        reference: Timestamp,
        port: Port,
    ) -> Option<(Promises, u8)> {
        let is_upper = self.aggregator.is_upper(port);
        if !is_upper && !self.aggregator.is_live(port) && !self.is_switch_at(port) {
            return None;
        }
        let with_commit = self.may_advertise_commit(port);
        let (promises, holds_commits) =
            self.aggregator.advertise_unfed(port, no_promise(reference), with_commit);
        Some((promises, if holds_commits { Flags::UNFED | Flags::HOLDS } else { Flags::UNFED }))
    }

    //= spec/failure.md#R18
    /// Writes a beacon for `port`, if there is anything to advertise: a solicit for promises above
    /// `wanted`, if that is given.
    pub(crate) fn write_beacon(
        &mut self,
        reference: Timestamp,
        port: Port,
        wanted: Option<Timestamp>,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let (promises, flags) = match self.advertise(reference, port) {
            Some(promises) => (promises, 0),
            None => self.advertise_unfed(reference, port)?,
        };
        self.stats.beacons_sent += 1;
        debug_assert!(slot.len() >= HEADER_LEN);
        let (own, peer) = (self.config.instance(), self.peer_at(port));
        let previous = if self.aggregator.is_held(port) { Flags::PREVIOUS_HOLDS } else { 0 };
        let header = match wanted {
            Some(wanted) => {
                self.stats.solicits_sent += 1;
                Header::hop_only(Opcode::Solicit, own, peer, promises).soliciting(wanted)
            }
            None => {
                let counted = self.counted(reference, port);
                Header::hop_only(Opcode::Beacon, own, peer, promises).with_counted(counted)
            }
        };
        let bytes =
            seal_with_hops(slot, header.flagged(flags | previous | self.demand.mode_flag()), 0, 0);
        Some(Transmit { port, bytes })
    }

    /// Returns up to which promise of `port` this switch counts it, as its beacons acknowledge.
    pub(crate) fn counted(&self, reference: Timestamp, port: Port) -> Timestamp {
        let counts =
            self.has_joined(port) && (!self.must_hold_joiners() || self.caught_up.contains(port));
        let counted = self.aggregator.promised(port).filter(|_| counts);
        counted.unwrap_or(no_promise(reference)).barrier
    }

    /// Whether joiners get no commit before they have caught up.
    #[inline]
    pub(crate) fn must_hold_joiners(&self) -> bool {
        // Where frames are not rewritten they do not carry what was advertised on their path.
        let is_chip = self.config.form == Form::Chip;
        self.control.is_some() || self.config.holds_joiners || !is_chip
    }

    //= spec/failure.md#R47
    /// Whether commits may be advertised on `port`: its peer has joined, and no switch above holds
    /// its joiners, of which this switch is one with all that is below it
    /// (`docs/design/failure.md`, "When does a joiner commit?").
    #[inline]
    pub(crate) fn may_advertise_commit(&self, port: Port) -> bool {
        let gets_commits = || self.aggregator.is_upper(port) || self.without_commit.is_empty();
        self.has_joined(port) && gets_commits()
    }

    //= spec/failure.md#R14
    //= spec/failure.md#R18
    /// Whether the peer at `port` is no joiner. A joiner from below must have caught up. Where dead
    /// links are frozen, the peer must also know the incarnation of this switch, or a commit could
    /// raise the register of a previous incarnation there before a beacon explains it; and no such
    /// register may hold commits.
    #[inline]
    fn has_joined(&self, port: Port) -> bool {
        let has_caught_up = || self.aggregator.is_upper(port) || self.caught_up.contains(port);
        match self.control {
            Some(_) => {
                self.neighbours.is_two_way(port)
                    && !self.previous_holds.contains(port)
                    && has_caught_up()
            }
            None => !self.must_hold_joiners() || has_caught_up(),
        }
    }
}
