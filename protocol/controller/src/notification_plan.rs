//! What processes and nodes are to be notified of, and in which order.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::{Instance, Mono};
use onepipe_wire::FloodKind;

use crate::failure_detection::{Findings, Suspects};

/// The notifications that are to be sent, and what complete ones have achieved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NotificationPlan {
    open_failures: OpenFailures,
    coverage: Coverage,
    /// Whether links wait for another full round of notices.
    needs_renotify: bool,
    /// Instances whose neighbours are to freeze their links.
    freeze: Vec<Instance>,
    /// Kind of the last notification that was restarted for want of acknowledgements.
    unanswered_kind: Option<FloodKind>,
}

/// The failures that are recorded and not resolved, as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum OpenFailures {
    /// No failure is open.
    #[default]
    None,
    /// A process has yet to complete one of them.
    Unnoticed {
        /// When the first of them was decided.
        since: Mono,
    },
    /// All processes have completed them: they can be resolved.
    Noticed {
        /// When the first of them was decided.
        since: Mono,
    },
}

/// Which processes know the failures that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Coverage {
    /// Processes that joined in another epoch may not know earlier failures.
    Unknown,
    /// The last complete round of notices started after this number of announcements.
    Since(u64),
}

impl Default for Coverage {
    fn default() -> Self {
        Self::Since(0)
    }
}

/// A notification to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Resume,
    NoticeAll,
    NoticeJoiners,
    Freeze,
}

impl Step {
    fn kind(self) -> FloodKind {
        match self {
            Self::Resume => FloodKind::Resume,
            Self::NoticeAll | Self::NoticeJoiners => FloodKind::Notice,
            Self::Freeze => FloodKind::Freeze,
        }
    }
}

impl NotificationPlan {
    //= spec/failure.md#R61
    /// Asserts what holds between any two calls in an epoch.
    pub(crate) fn check_invariants(&self, is_any_open: bool, announcements: u64) {
        let is_none = self.open_failures == OpenFailures::None;
        assert_eq!(is_any_open, !is_none, "what is open is known");
        let frozen: BTreeSet<&Instance> = self.freeze.iter().collect();
        assert_eq!(frozen.len(), self.freeze.len(), "an instance is frozen twice");
        assert!(self.covered_announcements() <= announcements, "notices of the future");
    }

    /// Requires that all processes are notified: failures of earlier epochs are recent.
    pub(crate) fn require_notice(&mut self) {
        assert_eq!(self.coverage, Coverage::Since(0), "a round of notices in no epoch");
        self.coverage = Coverage::Unknown;
    }

    /// Whether processes may not know failures of earlier epochs.
    #[inline]
    pub(crate) fn requires_notice(&self) -> bool {
        self.coverage == Coverage::Unknown
    }

    /// Returns the number of announcements after which the last complete round of notices started.
    #[inline]
    pub(crate) fn covered_announcements(&self) -> u64 {
        match self.coverage {
            Coverage::Unknown => 0,
            Coverage::Since(announcements) => announcements,
        }
    }

    #[inline]
    pub(crate) fn needs_renotify(&self) -> bool {
        self.needs_renotify
    }

    pub(crate) fn set_needs_renotify(&mut self, needs_renotify: bool) {
        self.needs_renotify = needs_renotify;
    }

    /// Adds failures that were decided at `decided`.
    pub(crate) fn add_open(&mut self, decided: Mono) {
        let since = match self.open_failures {
            OpenFailures::None => decided,
            OpenFailures::Unnoticed { since } | OpenFailures::Noticed { since } => since,
        };
        debug_assert!(since <= decided, "failures are recorded in the order of their decision");
        self.open_failures = OpenFailures::Unnoticed { since };
    }

    /// Notes that all failures are resolved.
    pub(crate) fn resolve_all(&mut self) {
        self.open_failures = OpenFailures::None;
    }

    /// Whether a process has yet to complete an open failure.
    #[inline]
    pub(crate) fn is_unnoticed(&self) -> bool {
        matches!(self.open_failures, OpenFailures::Unnoticed { .. })
    }

    /// Updates the instances whose neighbours are to freeze their links. While regions are not
    /// evaluated, suspects found earlier still have to be frozen.
    pub(crate) fn update_freeze(
        &mut self,
        findings: &mut Findings,
        suspects: &Suspects,
        mut stale_peers: BTreeSet<Instance>,
    ) {
        match findings.is_backing_off {
            true => self.freeze.retain(|instance| suspects.contains(*instance)),
            false => self.freeze = core::mem::take(&mut findings.freeze),
        }
        stale_peers.retain(|peer| !self.freeze.contains(peer));
        self.freeze.extend(stale_peers);
    }

    /// Takes the instances whose neighbours are to freeze their links.
    pub(crate) fn take_freeze(&mut self) -> Vec<Instance> {
        assert!(!self.freeze.is_empty(), "there is nothing to freeze");
        core::mem::take(&mut self.freeze)
    }

    /// Returns the notice to be sent if any failure is open or recent.
    pub(crate) fn notice(&self, has_joiners: bool) -> Option<Step> {
        if self.is_unnoticed() || self.needs_renotify || self.requires_notice() {
            return Some(Step::NoticeAll);
        }
        has_joiners.then_some(Step::NoticeJoiners)
    }

    /// Takes the most urgent notification, if any. One that was not acknowledged lets the others
    /// go first.
    pub(crate) fn next(&mut self, has_resolved: bool, notice: Option<Step>) -> Option<Step> {
        assert!(notice.is_none_or(|step| step.kind() == FloodKind::Notice), "no notice");
        let unanswered_kind = self.unanswered_kind.take();
        let resume = has_resolved.then_some(Step::Resume);
        let freeze = (!self.freeze.is_empty()).then_some(Step::Freeze);
        let mut steps = [resume, notice, freeze].into_iter().flatten();
        let is_answered = |step: &Step| Some(step.kind()) != unanswered_kind;
        steps.clone().find(is_answered).or_else(|| steps.next())
    }

    /// Notes that a notification of this kind is restarted for want of acknowledgements.
    pub(crate) fn on_unanswered(&mut self, kind: Option<FloodKind>) {
        self.unanswered_kind = kind;
    }

    /// Notes that no failure of a process is open or recent: no process waits for a notice. If only
    /// switches have failed, processes have nothing to do.
    pub(crate) fn on_nothing_to_notice(&mut self, announcements: u64) {
        self.coverage = Coverage::Since(match self.complete_open() {
            Some(_) => announcements,
            None => self.covered_announcements(),
        });
    }

    /// Handles a complete round of notices to all processes, which started after this number of
    /// announcements. Returns whether links waited for one.
    pub(crate) fn on_noticed(&mut self, announcements: u64) -> bool {
        assert!(self.covered_announcements() <= announcements, "rounds follow each other");
        self.coverage = Coverage::Since(announcements);
        core::mem::take(&mut self.needs_renotify)
    }

    /// Notes that all processes have completed all failures. Returns when the first one was
    /// decided, if that is new.
    pub(crate) fn complete_open(&mut self) -> Option<Mono> {
        let OpenFailures::Unnoticed { since } = self.open_failures else { return None };
        self.open_failures = OpenFailures::Noticed { since };
        Some(since)
    }

    /// Makes links resume before processes are notified: a mistake.
    pub(crate) fn resume_early(&mut self, announcements: u64) {
        self.complete_open();
        if !self.requires_notice() {
            self.coverage = Coverage::Since(announcements);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_notification_lets_others_go_first() {
        let mut plan = NotificationPlan::default();
        assert_eq!((plan.notice(true), plan.next(false, None)), (Some(Step::NoticeJoiners), None));
        plan.add_open(Mono::from_ns(5));
        let notice = plan.notice(true);
        assert_eq!(notice, Some(Step::NoticeAll));
        assert_eq!(plan.next(true, notice), Some(Step::Resume));
        plan.on_unanswered(Some(FloodKind::Resume));
        assert_eq!(plan.next(true, notice), Some(Step::NoticeAll));
        assert_eq!(plan.next(true, notice), Some(Step::Resume), "only once");
        plan.on_unanswered(Some(FloodKind::Notice));
        assert_eq!(plan.next(false, notice), Some(Step::NoticeAll), "there is no other");
    }

    #[test]
    fn complete_round_covers_earlier_announcements() {
        let mut plan = NotificationPlan::default();
        plan.require_notice();
        plan.add_open(Mono::from_ns(5));
        plan.set_needs_renotify(true);
        assert!(plan.requires_notice() && plan.is_unnoticed());
        assert!(plan.on_noticed(7), "links waited for the round");
        assert_eq!((plan.complete_open(), plan.notice(false)), (Some(Mono::from_ns(5)), None));
        assert_eq!(plan.covered_announcements(), 7);
        plan.on_nothing_to_notice(9);
        assert_eq!(plan.covered_announcements(), 7, "no failure was open");
        plan.add_open(Mono::from_ns(8));
        plan.on_nothing_to_notice(9);
        assert_eq!((plan.covered_announcements(), plan.is_unnoticed()), (9, false));
        plan.check_invariants(true, 9);
    }

    #[test]
    fn another_failure_needs_another_notice() {
        let at = Mono::from_ns;
        let mut plan = NotificationPlan::default();
        assert_eq!((plan.complete_open(), plan.open_failures), (None, OpenFailures::None));
        plan.add_open(at(5));
        assert_eq!((plan.complete_open(), plan.complete_open()), (Some(at(5)), None), "once");
        assert_eq!(plan.open_failures, OpenFailures::Noticed { since: at(5) });
        plan.add_open(at(9));
        let since_the_first = OpenFailures::Unnoticed { since: at(5) };
        assert_eq!(plan.open_failures, since_the_first);
    }
}
