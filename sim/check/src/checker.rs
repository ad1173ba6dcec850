//! The checker of ordered scattering: all processes of a run with all their incarnations.

use std::collections::BTreeSet;

use onepipe_base::{Cause, ProcessId, Timestamp};
use onepipe_sim_engine::Section;
use onepipe_wire::Service;

use crate::incarnation::{End, Failure, IncarnationState};
use crate::observation::{Delivered, Failed, Snapshot, Submitted};
use crate::outcome::Outcome;
use crate::tag::Tag;
use crate::violation::{Rule, ViolationKind, Violations};

mod divide;
mod finish;
mod reads;

pub use divide::Received;

/// Totals over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages submitted.
    pub submitted: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages reported lost.
    pub lost: u64,
    /// Messages reported unknown.
    pub unknown: u64,
    /// Delivered messages of the reliable service.
    pub reliable: u64,
    /// Incarnations that processes were notified of as failed.
    pub failures: u64,
    /// Failed incarnations whose failure timestamp is not exact: their scatterings may be torn.
    pub inexact: u64,
    /// Scatterings that were torn and allowed to be: see [`Checker::allow_torn`].
    pub torn: u64,
}

#[derive(Debug)]
struct Process {
    incarnations: Vec<IncarnationState>,
    /// Whether other processes may be uncertain about what this one received.
    may_be_unknown: bool,
    /// Whether an incarnation has crashed, left or was declared failed.
    has_ended: bool,
    /// When the process last crashed or was cut off, in ns of the run.
    disconnected_ns: Option<u64>,
}

impl Process {
    fn current(&self) -> &IncarnationState {
        self.incarnations.last().expect("a process has at least one incarnation")
    }

    fn current_mut(&mut self) -> &mut IncarnationState {
        self.incarnations.last_mut().expect("a process has at least one incarnation")
    }
}

/// Checks all processes of a run.
#[derive(Debug)]
pub struct Checker {
    processes: Section<Process>,
    checks_submission_order: bool,
    is_merged: bool,
    /// Whether correct processes were permanently cut off from each other.
    may_be_torn: bool,
    /// Whether no controller recalls what a sender that has crashed left incomplete.
    is_uncontrolled: bool,
    /// Reliable scatterings that their senders have given up or cancelled.
    given_up: BTreeSet<(u32, Tag)>,
    /// Whether no process that runs may be declared failed.
    protects_living: bool,
    /// Whether no frame of a leave can have been lost.
    protects_leavers: bool,
    now_ns: u64,
    /// The first reliable scatterings to restarted processes, by sender.
    first_contacts: BTreeSet<(u32, Tag)>,
    /// Senders that have contacted an incarnation of a process reliably.
    contacted: BTreeSet<(u32, u32, u32, u32)>,
    counts: Counts,
    violations: Violations,
    /// Whether this is a part of a checker: see [`Checker::divide`].
    is_part: bool,
    /// Reported failures that are checked when the parts are united, with the time in ns.
    failed: Vec<(u64, ProcessId, Failed)>,
}

impl Checker {
    /// Creates a checker of `processes` processes, all in their first incarnation.
    ///
    /// `checks_submission_order`: whether messages of a pair of processes must arrive in the order
    /// of their submission in addition to the order of their timestamps (I5).
    pub fn new(processes: u32, checks_submission_order: bool) -> Self {
        let process = |_| Process {
            incarnations: vec![IncarnationState::new(0, false)],
            may_be_unknown: false,
            has_ended: false,
            disconnected_ns: None,
        };
        Self {
            processes: Section::from((0..processes).map(process).collect::<Vec<_>>()),
            checks_submission_order,
            is_merged: false,
            may_be_torn: false,
            is_uncontrolled: false,
            given_up: BTreeSet::new(),
            protects_living: false,
            protects_leavers: false,
            now_ns: 0,
            first_contacts: BTreeSet::new(),
            contacted: BTreeSet::new(),
            counts: Counts::default(),
            violations: Violations::default(),
            is_part: false,
            failed: Vec::new(),
        }
    }

    /// Sets whether both services are delivered as one stream in one total order.
    #[must_use]
    pub fn merged(mut self, is_merged: bool) -> Self {
        self.is_merged = is_merged;
        for process in self.processes.iter_mut() {
            process.incarnations = vec![IncarnationState::new(0, is_merged)];
        }
        self
    }

    /// Sets the time of the following calls, in ns of the run.
    #[inline]
    pub fn at_ns(&mut self, ns: u64) {
        self.now_ns = ns;
    }

    /// Handles the submission of a scattering.
    pub fn submitted(&mut self, process: ProcessId, submitted: Submitted<'_>) {
        let is_behind_commit =
            submitted.service == Service::Reliable && self.is_behind_commit(process, &submitted);
        if submitted.service == Service::Reliable && self.protects_living {
            self.note_contacts(process, &submitted);
        }
        let incarnations = &mut self.processes[process.index()].incarnations;
        let incarnation = incarnations
            .get_mut(submitted.tag.incarnation as usize)
            .expect("the incarnation exists");
        let floor = (incarnation.receiver.floor(), is_behind_commit);
        incarnation.senders[submitted.service as usize].on_submitted(
            &submitted,
            floor,
            self.now_ns,
        );
        self.counts.submitted += submitted.messages.len() as u64;
    }

    /// Notes the first reliable scattering to each restarted process, if its sender was notified of
    /// the end of the previous incarnation.
    fn note_contacts(&mut self, process: ProcessId, submitted: &Submitted<'_>) {
        let own = submitted.tag.incarnation;
        for (to, _) in submitted.messages {
            let Some(receiver) = self.processes.get(to.index()) else { continue };
            let incarnation = receiver.incarnations.len() as u32 - 1;
            let notified = &self.processes[process.index()].current().notified;
            if incarnation > 0
                && notified.contains_key(&(to.0, incarnation - 1))
                && self.contacted.insert((process.0, own, to.0, incarnation))
            {
                self.first_contacts.insert((process.0, submitted.tag));
            }
        }
    }

    /// Whether the commit barrier of a receiver is above what `process` promises.
    fn is_behind_commit(&self, process: ProcessId, submitted: &Submitted<'_>) -> bool {
        let promises = self.processes[process.index()].current().receiver.promises();
        let promise = promises.map(|promises| promises.barrier);
        submitted.messages.iter().any(|(to, _)| {
            let to = self.processes.get(to.index());
            to.is_some_and(|to| to.current().receiver.commit_barrier() > promise)
        })
    }

    /// Handles a frame that shows the timestamp of a scattering.
    pub fn stamped(&mut self, process: ProcessId, service: Service, tag: Tag, stamp: Timestamp) {
        let process_of = self.processes.get_mut(process.index());
        let incarnation =
            process_of.and_then(|process| process.incarnations.get_mut(tag.incarnation as usize));
        if let Some(IncarnationState { senders, stamps, .. }) = incarnation {
            let (at_ns, log) = (self.now_ns, &mut self.violations);
            senders[service as usize].on_stamped(process, (tag, stamp), at_ns, stamps, log);
        }
    }

    /// Handles a delivery. Returns `submitted_at` of its scattering if the scattering is still
    /// open.
    pub fn delivered(&mut self, process: ProcessId, delivered: Delivered) -> Option<u64> {
        let received = self.received(process, delivered);
        self.resolved(received)
    }

    /// Handles a message that was reported to its sender as failed.
    pub fn failed(&mut self, process: ProcessId, failed: Failed) {
        debug_assert!(failed.outcome != Outcome::Delivered, "a delivered message cannot fail");
        if self.is_part {
            return self.failed.push((self.now_ns, process, failed));
        }
        match failed.outcome {
            Outcome::Lost => self.counts.lost += 1,
            _ => self.counts.unknown += 1,
        }
        // A sender that was cut off or declared failed cannot query the outcome any more. Where no
        // process that runs is lost, every outcome of a receiver that did not end is known.
        let protects_living = self.protects_living;
        let may_be_unknown = |process: ProcessId| {
            self.processes.get(process.index()).is_some_and(|process| match protects_living {
                true => process.has_ended,
                false => process.may_be_unknown,
            })
        };
        let has_ended_now = |process: ProcessId| {
            let process = self.processes.get(process.index());
            process.is_none_or(|process| process.current().end.is_some())
        };
        let Failed { tag, to, .. } = failed;
        let is_first_lost = failed.service == Service::Reliable
            && self.first_contacts.contains(&(process.0, failed.tag))
            && !has_ended_now(failed.to)
            && !has_ended_now(process);
        if is_first_lost {
            let kind = ViolationKind::FirstLost { process, tag, to };
            self.violations.add(Rule::L, self.now_ns, kind);
        }
        let is_needless = failed.outcome == Outcome::Unknown
            && !may_be_unknown(failed.to)
            && !may_be_unknown(process);
        if is_needless {
            let kind = ViolationKind::NeedlesslyUnknown { process, tag, to };
            self.violations.add(Rule::I12, self.now_ns, kind);
        }
        let incarnations = &mut self.processes[process.index()].incarnations;
        let (at_ns, log) = (self.now_ns, &mut self.violations);
        match incarnations.get_mut(failed.tag.incarnation as usize) {
            Some(IncarnationState { senders, stamps, .. }) => {
                senders[failed.service as usize].on_failed(process, &failed, at_ns, stamps, log);
            }
            None => {
                let Failed { tag, index, to, .. } = failed;
                let kind =
                    ViolationKind::Invented { process: to, from: process, tag: Some(tag), index };
                log.add(Rule::I4, at_ns, kind);
            }
        }
    }

    /// Handles the notification of `process` that `victim` failed at timestamp `at` in its
    /// incarnation `incarnation` and all earlier ones.
    pub fn failure_notified(
        &mut self,
        process: ProcessId,
        (victim, incarnation): (ProcessId, u32),
        at: Timestamp,
    ) {
        self.note_failure(process, (victim, incarnation), at);
        for previous in 0..=incarnation {
            let notified = &mut self.processes[process.index()].current_mut().notified;
            notified.entry((victim.0, previous)).or_insert(self.now_ns);
        }
    }

    /// Handles the notification of `process` that it was itself declared failed: it stops.
    pub fn excluded(&mut self, process: ProcessId, at: Timestamp) {
        self.note_failure(process, (process, self.incarnation(process)), at);
        self.end(process, End::Exclusion);
    }

    /// Handles the controller's decision that `victim` has failed in its incarnation `incarnation`,
    /// before any process is notified. From here on senders may be uncertain about what it has
    /// received. If the failure timestamp is not exact, correct processes may have received
    /// different parts of the incarnation's scatterings.
    pub fn decided(&mut self, victim: ProcessId, incarnation: u32, is_exact: bool, cause: Cause) {
        self.allow_unknown(victim);
        self.processes[victim.index()].has_ended = true;
        self.check_cause(victim, incarnation, cause);
        let incarnations = &mut self.processes[victim.index()].incarnations;
        if let Some(incarnation) = incarnations.get_mut(incarnation as usize)
            && !is_exact
            && !std::mem::replace(&mut incarnation.is_inexact, true)
        {
            self.counts.inexact += 1;
        }
    }

    /// Checks why an incarnation counts as failed (rule L).
    fn check_cause(&mut self, process: ProcessId, incarnation: u32, cause: Cause) {
        let incarnations = &self.processes[process.index()].incarnations;
        let end = incarnations.get(incarnation as usize).and_then(|state| state.end);
        let kind = match end {
            Some(End::Leave) if self.protects_leavers && cause != Cause::Left => {
                ViolationKind::LeaverFailed { process, incarnation, cause }
            }
            None if self.protects_living => {
                ViolationKind::LivingFailed { process, incarnation, cause }
            }
            Some(End::Crash | End::Exclusion) | None if cause == Cause::Left => {
                ViolationKind::NotLeft { process, incarnation }
            }
            _ => return,
        };
        self.violations.add(Rule::L, self.now_ns, kind);
    }

    /// Forbids from now on that a process that runs is declared failed: no fault of the run cuts
    /// one off, or stops one, for as long as the link timeout, except for pauses and restarts of
    /// switches.
    pub fn protect_living(&mut self) {
        self.protects_living = true;
    }

    /// Forbids from now on that a process that has left is declared failed: no fault of the run can
    /// lose its Leave, or what a switch knows of it.
    pub fn protect_leavers(&mut self) {
        self.protects_leavers = true;
    }

    /// Allows torn scatterings: correct processes were cut off from each other in a way that no
    /// controller can repair. Violations of I6 and I7 are counted, but not reported
    /// (docs/design/failure.md, "Who has failed, and when?").
    pub fn allow_torn(&mut self) {
        self.may_be_torn = true;
    }

    /// Allows a sender that crashes to leave a torn scattering: there is no controller that has it
    /// recalled.
    pub fn allow_torn_by_crashes(&mut self) {
        self.is_uncontrolled = true;
    }

    //= spec/failure.md#R55
    //= spec/failure.md#R58
    //= spec/failure.md#R59
    /// Handles that `process` has reported a reliable scattering as lost or unknown because it has
    /// given it up, or has cancelled it: correct receivers need not deliver it, but must agree.
    pub fn given_up(&mut self, process: ProcessId, tag: Tag) {
        self.given_up.insert((process.0, tag));
    }

    fn note_failure(
        &mut self,
        process: ProcessId,
        (victim, incarnation): (ProcessId, u32),
        now: Timestamp,
    ) {
        let at_ns = self.now_ns;
        let incarnations =
            self.processes.get_mut(victim.index()).map(|process| &mut process.incarnations);
        let Some(victim_incarnation) =
            incarnations.and_then(|incarnations| incarnations.get_mut(incarnation as usize))
        else {
            let kind = ViolationKind::NotNotified { process, failed: victim, incarnation };
            return self.violations.add(Rule::E, at_ns, kind);
        };
        match &mut victim_incarnation.failed {
            Some(Failure { at: before, .. }) if *before != now => {
                let before = *before;
                let kind = ViolationKind::TwoFailures {
                    process,
                    failed: victim,
                    incarnation,
                    before,
                    now,
                };
                self.violations.add(Rule::E, at_ns, kind);
            }
            Some(known) => known.last_notified_ns = at_ns,
            None => {
                let failure = Failure { at: now, last_notified_ns: at_ns };
                victim_incarnation.failed = Some(failure);
                self.counts.failures += 1;
            }
        }
        let victim = &mut self.processes[victim.index()];
        (victim.may_be_unknown, victim.has_ended) = (true, true);
        let has_left = victim.current().end == Some(End::Leave);
        if incarnation as usize + 1 == victim.incarnations.len() && !has_left {
            victim.disconnected_ns = Some(at_ns);
        }
    }

    /// Handles the state of a process that has handed out all its events.
    #[inline]
    pub fn drained(&mut self, process: ProcessId, snapshot: Snapshot) {
        let receiver = &mut self.processes[process.index()].current_mut().receiver;
        receiver.on_drained(process, &snapshot, self.now_ns, &mut self.violations);
        self.check_read(process, &snapshot);
    }

    /// Handles a crash. What the process submitted may have any outcome, and what it received is
    /// unknown to others.
    pub fn crashed(&mut self, process: ProcessId) {
        self.end(process, End::Crash);
    }

    //= spec/ordering.md#R56
    /// Handles a graceful leave: the process knows the outcome of everything that it submitted, and
    /// delivers no more. What it has acknowledged it has delivered, so that every message to it has
    /// an outcome: its sender reports those that it has not acknowledged.
    pub fn left(&mut self, process: ProcessId) {
        self.end(process, End::Leave);
    }

    fn end(&mut self, process: ProcessId, end: End) {
        let process = &mut self.processes[process.index()];
        process.current_mut().end.get_or_insert(end);
        if end != End::Leave {
            process.disconnected_ns = Some(self.now_ns);
        }
        (process.may_be_unknown, process.has_ended) = (true, true);
    }

    /// Handles a restart: starts a new incarnation that has delivered nothing.
    pub fn restarted(&mut self, process: ProcessId) {
        let incarnation = IncarnationState::new(self.now_ns, self.is_merged);
        let process = &mut self.processes[process.index()];
        process.current_mut().end.get_or_insert(End::Crash);
        process.incarnations.push(incarnation);
    }

    /// Allows senders to report messages to `process` as unknown: it was cut off, or frames to or
    /// from it are lost.
    pub fn allow_unknown(&mut self, process: ProcessId) {
        self.processes[process.index()].may_be_unknown = true;
    }

    /// Checks that no message was lost since `lost_before` losses had been reported: in that time
    /// no link dropped, corrupted or reordered a frame, and no process failed.
    pub fn expect_no_loss_since(&mut self, lost_before: u64) {
        let count = self.counts.lost - lost_before;
        if count > 0 {
            self.violations.add(Rule::I12, self.now_ns, ViolationKind::NeedlesslyLost { count });
        }
    }

    /// Returns the current incarnation of a process, counted from 0.
    pub fn incarnation(&self, process: ProcessId) -> u32 {
        self.processes[process.index()].incarnations.len() as u32 - 1
    }

    /// Returns the number of messages without an outcome, from live senders to receivers that have
    /// not been cut off since.
    pub fn open(&self) -> u64 {
        let living = self
            .processes
            .iter()
            .map(Process::current)
            .filter(|incarnation| incarnation.end.is_none());
        let senders = living.flat_map(|incarnation| &incarnation.senders);
        senders.map(|sender| sender.open(self.requires_outcome())).sum()
    }

    /// Returns whether a message must get an outcome. It need not if its receiver was lost after
    /// the submission: the receiver may have acknowledged the message and lost it.
    fn requires_outcome(&self) -> impl Fn(ProcessId, u64) -> bool {
        |to: ProcessId, submitted_ns: u64| {
            let to = self.processes.get(to.index());
            let disconnected_ns = to.and_then(|to| to.disconnected_ns);
            disconnected_ns.is_none_or(|disconnected_ns| disconnected_ns < submitted_ns)
        }
    }

    /// Returns the totals.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the violations.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
