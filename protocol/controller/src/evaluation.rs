//! When the graph is evaluated, and what the last evaluation found.

use alloc::vec::Vec;

use onepipe_base::Mono;

use crate::Severed;
use crate::failure_detection::Findings;

/// Continuing changes postpone an evaluation by at most this many `quiet_ns`.
const QUIET_PERIODS_MAX: u64 = 8;

/// The schedule of evaluations, and findings of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Evaluation {
    /// When the graph is evaluated even if nothing changes.
    at: Option<Mono>,
    /// Changes of the graph since the last evaluation.
    change: Option<Change>,
    /// Time of the last evaluation; cleared by the first call at a later time.
    evaluated_at: Option<Mono>,
    /// Links that may be resumed without any failure.
    severable: Vec<Severed>,
    /// Number of processes that more than one switch listed.
    duplicates: usize,
    /// Whether most processes have no path to this replica, but are alive.
    is_minority: bool,
}

/// Changes of the graph that are not evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Change {
    /// When the first of them was reported.
    first_at: Mono,
    /// When the quiet period after the last of them ends.
    quiet_at: Mono,
}

impl Evaluation {
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        let is_in_order = |change: Change| change.first_at <= change.quiet_at;
        assert!(self.change.is_none_or(is_in_order), "evaluated before it was known");
        let is_severable = |link: &Severed| link.owner != link.peer;
        assert!(self.severable.iter().all(is_severable), "a link to itself");
    }

    /// Schedules an evaluation after the quiet period, or at the latest [`QUIET_PERIODS_MAX`] quiet
    /// periods after the first change.
    pub(crate) fn on_change(&mut self, now: Mono, quiet_ns: u64) {
        let first_at = self.change.map_or(now, |change| change.first_at);
        let latest = first_at.after_ns(quiet_ns.saturating_mul(QUIET_PERIODS_MAX));
        let quiet_at = now.after_ns(quiet_ns).min(latest);
        self.change = Some(Change { first_at, quiet_at });
    }

    /// Schedules an evaluation at `at` at the latest, even if nothing changes.
    pub(crate) fn schedule(&mut self, at: Option<Mono>) {
        self.at = Mono::earlier(self.at, at);
    }

    /// Returns when the graph is to be evaluated.
    #[inline]
    pub(crate) fn due(&self) -> Option<Mono> {
        Mono::earlier(self.at, self.change.map(|change| change.quiet_at))
    }

    /// Returns whether changes are pending at the first call after an evaluation. An evaluation
    /// takes time: frames that have arrived meanwhile are yet to be read, and are evaluated
    /// together with these changes.
    #[inline]
    pub(crate) fn take_overtaken(&mut self, now: Mono) -> bool {
        let is_later = self.evaluated_at.take_if(|evaluated_at| *evaluated_at < now).is_some();
        is_later && self.change.is_some()
    }

    /// Starts an evaluation. Returns when the first change was reported.
    pub(crate) fn start(&mut self, now: Mono) -> Mono {
        self.at = None;
        self.evaluated_at = Some(now);
        let changed_at = self.change.take().map_or(now, |change| change.first_at);
        debug_assert!(changed_at <= now, "a change of the future");
        changed_at
    }

    /// Returns how many more processes than before are listed by more than one switch.
    pub(crate) fn on_duplicates(&mut self, duplicates: usize) -> u64 {
        let known = core::mem::replace(&mut self.duplicates, duplicates);
        duplicates.saturating_sub(known) as u64
    }

    /// Returns whether `findings` show for the first time that this replica itself is cut off.
    pub(crate) fn take_cut_off(&mut self, findings: &Findings) -> bool {
        let is_new = findings.is_minority && !core::mem::replace(&mut self.is_minority, true);
        self.is_minority &= findings.is_minority || findings.is_backing_off;
        is_new
    }

    /// Replaces the links that may be resumed without any failure.
    pub(crate) fn set_severable(&mut self, links: Vec<Severed>) {
        self.severable = links;
    }

    /// Takes the links that may be resumed without any failure. None while changes are pending: one
    /// of them may be that a link must stay frozen.
    pub(crate) fn take_severable(&mut self) -> Vec<Severed> {
        match self.change {
            Some(_) => Vec::new(),
            None => core::mem::take(&mut self.severable),
        }
    }

    #[inline]
    pub(crate) fn has_severable(&self) -> bool {
        !self.severable.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Address, Incarnation, Instance, SwitchId};

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    #[test]
    fn changes_postpone_an_evaluation_within_a_limit() {
        let mut evaluation = Evaluation::default();
        for ns in (100..200).step_by(5) {
            evaluation.on_change(at(ns), 10);
            assert_eq!(evaluation.due(), Some(at((ns + 10).min(180))));
            evaluation.check_invariants();
        }
        evaluation.schedule(Some(at(150)));
        assert_eq!(evaluation.due(), Some(at(150)), "whichever is earlier");
        assert_eq!(evaluation.start(at(200)), at(100), "the first change");
        assert_eq!((evaluation.due(), evaluation.start(at(300))), (None, at(300)));
        evaluation.on_change(at(300), 10);
        assert!(!evaluation.take_overtaken(at(300)), "the evaluation is not over");
        assert!(evaluation.take_overtaken(at(301)) && !evaluation.take_overtaken(at(302)));
    }

    #[test]
    fn links_are_severed_only_without_pending_changes() {
        let switch =
            |id| Instance { address: Address::Switch(SwitchId(id)), incarnation: Incarnation(1) };
        let link = Severed { owner: switch(1), number: 3, peer: switch(2) };
        let mut evaluation = Evaluation::default();
        evaluation.set_severable(alloc::vec![link]);
        evaluation.on_change(at(5), 10);
        assert!(evaluation.take_severable().is_empty() && evaluation.has_severable());
        evaluation.start(at(15));
        assert_eq!(evaluation.take_severable(), [link]);
        assert!(!evaluation.has_severable());
    }

    #[test]
    fn minority_is_reported_once_while_it_lasts() {
        let mut evaluation = Evaluation::default();
        let minority = Findings { is_minority: true, ..Findings::default() };
        let backing_off = Findings { is_backing_off: true, ..Findings::default() };
        assert!(evaluation.take_cut_off(&minority) && !evaluation.take_cut_off(&minority));
        assert!(!evaluation.take_cut_off(&backing_off) && !evaluation.take_cut_off(&minority));
        assert!(!evaluation.take_cut_off(&Findings::default()));
        assert!(evaluation.take_cut_off(&minority));
        assert_eq!([2, 1, 3].map(|count| evaluation.on_duplicates(count)), [2, 0, 2]);
    }
}
