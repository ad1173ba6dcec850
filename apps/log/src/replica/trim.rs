//! What the members of a view have applied, and how the log is trimmed by that.
//!
//! Each member sends to the others how many entries its state includes durably, once it has stored
//! the view. What all of them include is removed from the log. That all members have stored a view
//! says that its cut is valid, and what the view began with is committed.

use alloc::collections::{BTreeMap, BTreeSet};

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId};

use crate::entry::EntryId;
use crate::message::{Applied, Request};
use crate::replica::{LogReplica, Role};
use crate::scattering::ScatteringKind;

/// Timeouts after which a replica that reads the state, and has not asked since, no longer limits
/// what is trimmed.
const HOLD_TIMEOUTS: u64 = 50;

/// What is known of the members of the view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Progress {
    /// Number of entries that the states of other members include durably.
    applied: BTreeMap<ProcessId, u64>,
    /// The number that was sent last, in this view.
    sent: Option<u64>,
    /// The record of the view.
    view_record: u64,
    /// Length and checksum of the log with which the view has begun.
    begin: (u64, u64),
    /// Replicas that read the state, with the number of entries that they will have then, and when
    /// they have asked last.
    holds: BTreeMap<ProcessId, (u64, Mono)>,
}

impl LogReplica {
    /// Notes that a view has begun, as the last record says.
    pub(super) fn begin_progress(&mut self) {
        let len = self.entries.len();
        let checksum = self.entries.checksum(len).expect("the log has this length");
        self.progress.applied.clear();
        self.progress.sent = None;
        self.progress.view_record = self.recorded;
        self.progress.begin = (len, checksum);
        self.recorded_entries.clear();
    }

    /// Returns the last record before those of the entries that were not trimmed, if these were all
    /// recorded in this view: the records up to that one have only changed the view and the base.
    pub(super) fn base_record(&self) -> Option<u64> {
        if self.entries.base_len() < self.progress.begin.0 {
            return None;
        }
        let first = self.recorded_entries.front().map(|(record, _)| record - 1);
        Some(first.unwrap_or(self.recorded))
    }

    /// Returns whether the view with which the replica serves survives a loss of power.
    fn has_stored_view(&self) -> bool {
        self.role == Role::Member && self.stored >= self.progress.view_record
    }

    /// Returns the number of entries that the state may apply: they are committed, and the own disk
    /// has them. 0 if that is not known at the moment.
    pub fn applicable_len(&self) -> u64 {
        let is_stored = self.has_stored_view() || self.stored >= self.recorded;
        if is_stored { self.entries.committed_len() } else { 0 }
    }

    /// Notes that the state includes the first entries, of this number, also after a loss of power.
    ///
    /// # Panics
    /// If the state includes entries that are not known to be committed.
    pub fn on_applied(&mut self, len: u64) {
        if self.has_state && len <= self.applied {
            return;
        }
        assert!(len <= self.entries.committed_len(), "a state has committed entries only");
        let lacked_state = self.applied < self.entries.base_len();
        self.has_state = true;
        self.applied = self.applied.max(len);
        self.awaits_install &= self.applied < self.entries.base_len();
        if self.role == Role::Member {
            self.trim();
            self.advance();
        } else if lacked_state && self.applied >= self.entries.base_len() {
            let is_member = self.reach_target();
            if !is_member {
                self.read();
            }
        }
    }

    /// Sends what is applied to the other members, if that is new.
    pub(super) fn send_progress(&mut self) {
        let is_new = self.progress.sent != Some(self.applied);
        if self.has_state && self.round.is_none() && self.has_stored_view() && is_new {
            let others = self.others();
            // The first message of a view asks for those of the others.
            self.send_applied(others, !self.is_progress_complete());
        }
    }

    fn others(&self) -> BTreeSet<ProcessId> {
        let mut others = self.view.members.clone();
        others.remove(&self.process);
        others
    }

    fn send_applied(&mut self, receivers: BTreeSet<ProcessId>, is_asking: bool) {
        self.progress.sent = Some(self.applied);
        let len = self.entries.committed_len();
        let checksum = self.entries.checksum(len).expect("committed entries exist");
        let (view, committed) = (self.view.clone(), (len, checksum));
        if !receivers.is_empty() {
            let applied = Applied { view, len: self.applied, committed, is_asking };
            self.send(ScatteringKind::BestEffort, receivers, &Request::Applied(applied));
        }
        self.on_progress();
    }

    /// Handles what another member has applied.
    pub(super) fn on_peer_applied(&mut self, from: ProcessId, applied: &Applied) {
        let is_other = from != self.process && self.view.members.contains(&from);
        if applied.view != self.view || !is_other {
            self.stats.outdated += 1;
            return;
        }
        if self.role != Role::Member || self.round.is_some() {
            return;
        }
        let known = self.progress.applied.entry(from).or_default();
        *known = applied.len.max(*known);
        let (len, checksum) = applied.committed;
        self.on_committed(len, checksum);
        if applied.is_asking && self.progress.sent.is_some() {
            self.send_applied([from].into(), false);
        }
        self.on_progress();
    }

    fn is_progress_complete(&self) -> bool {
        let is_known = |member: &ProcessId| self.progress.applied.contains_key(member);
        self.progress.sent.is_some() && self.others().iter().all(is_known)
    }

    fn on_progress(&mut self) {
        if self.is_progress_complete() {
            let (len, checksum) = self.progress.begin;
            self.on_committed(len, checksum);
            self.trim();
        } else {
            self.arm();
        }
    }

    /// Asks the other members again, until all have answered.
    pub(super) fn repeat_progress(&mut self) {
        let is_due = self.has_state && self.round.is_none() && self.has_stored_view();
        if is_due && !self.is_progress_complete() {
            let others = self.others();
            self.send_applied(others, true);
        }
    }

    /// Limits what is trimmed while another replica reads the state: afterwards it reads the
    /// entries from `len` on.
    pub(super) fn hold(&mut self, reader: ProcessId, len: Option<u64>) {
        let held = self.progress.holds.get(&reader).map(|(len, _)| *len);
        if let Some(len) = len.or(held) {
            self.progress.holds.insert(reader, (len, self.now));
        }
    }

    /// Removes the entries that the states of all members include durably. During a change of the
    /// view nothing is removed, as the cut compares what members have stated.
    fn trim(&mut self) {
        if self.role != Role::Member || self.round.is_some() || !self.is_progress_complete() {
            return;
        }
        let (now, hold_ns) = (self.now, self.options.timeout_ns.saturating_mul(HOLD_TIMEOUTS));
        self.progress.holds.retain(|_, (_, at)| now.since_ns(*at) < hold_ns);
        let held = self.progress.holds.values().map(|(len, _)| *len);
        let applied = self.progress.applied.values().copied();
        let of_all = applied.chain([self.applied]).chain(held).min().unwrap_or(0);
        let len = match makes(Mistake::TrimmedBeforeApplied) {
            true => self.entries.committed_len(),
            false => of_all,
        };
        if len > self.entries.base_len() {
            assert!(self.applied >= len || makes(Mistake::TrimmedBeforeApplied));
            self.stats.trimmed += len - self.entries.base_len();
            self.entries.trim(len);
            let last = self.entries.base().last;
            let is_trimmed = |one: &mut (u64, EntryId)| last.is_some_and(|last| one.1 <= last);
            while self.recorded_entries.pop_front_if(is_trimmed).is_some() {}
        }
    }
}
