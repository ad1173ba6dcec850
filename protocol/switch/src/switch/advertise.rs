//! The part of [`Switch`] that advertises promises: on passing frames and in beacons.

use onepipe_base::{Port, Promises, Timestamp, Transmit};
use onepipe_wire::{Flags, HEADER_LEN, Header, Opcode, seal_with_hops};

use crate::Switch;
use crate::clock::no_promise;

impl Switch {
    /// Returns what is advertised on `port` now.
    #[inline]
    pub(super) fn advertise(&mut self, reference: Timestamp, port: Port) -> Option<Promises> {
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
    pub(super) fn advertise_unfed(
        &mut self,
        reference: Timestamp,
        port: Port,
    ) -> Option<(Promises, u8)> {
        let is_upper = self.aggregator.is_upper(port);
        if !is_upper && !self.aggregator.is_live(port) && !self.links.is_switch_at(port) {
            return None;
        }
        let with_commit = self.may_advertise_commit(port);
        let (promises, holds_commits) =
            self.aggregator.advertise_unfed(port, no_promise(reference), with_commit);
        Some((promises, if holds_commits { Flags::UNFED | Flags::HOLDS } else { Flags::UNFED }))
    }

    //= spec/failure.md#R18
    //= spec/failure.md#R73
    /// Writes a beacon for `port`, if there is anything to advertise: a solicit for promises above
    /// `wanted`, if that is given.
    pub(super) fn write_beacon(
        &mut self,
        reference: Timestamp,
        port: Port,
        wanted: Option<Timestamp>,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let (promises, flags) = match self.advertise(reference, port) {
            Some(promises) if self.aggregator.is_stopped(port) => (promises, Flags::HOLDS),
            Some(promises) => (promises, 0),
            None => self.advertise_unfed(reference, port)?,
        };
        self.stats.beacons_sent += 1;
        debug_assert!(slot.len() >= HEADER_LEN);
        let (own, peer) = (self.config.instance(), self.view().peer_at(port));
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
    pub(super) fn counted(&self, reference: Timestamp, port: Port) -> Timestamp {
        let counts = self.is_confirmed(port) && self.joiners.is_free(port);
        let counted = self.aggregator.promised(port).filter(|_| counts);
        counted.unwrap_or(no_promise(reference)).barrier
    }

    /// Whether commits may be advertised on `port`.
    #[inline]
    pub(super) fn may_advertise_commit(&self, port: Port) -> bool {
        self.is_confirmed(port) && self.joiners.may_get_commit(port)
    }

    /// Whether the peer at `port` knows this incarnation, where dead links are frozen.
    #[inline]
    pub(super) fn is_confirmed(&self, port: Port) -> bool {
        self.control.is_none() || self.links.is_confirmed(port)
    }
}
