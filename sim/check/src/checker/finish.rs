//! Checks at the end of a run, and of what must have ended before.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::Service;

use super::Checker;
use crate::incarnation::IncarnationState;
use crate::tag::Tag;
use crate::verify::{SenderStatus, find_gap, verify};
use crate::violation::{Rule, ViolationKind, Violations};

impl Checker {
    //= spec/failure.md#R55
    //= spec/failure.md#R58
    //= spec/failure.md#R59
    /// Handles that `process` still lists a reliable scattering of its current incarnation as open.
    /// One that was submitted before `since_ns` must have ended: each of its messages was delivered
    /// or reported, and it was acknowledged or recalled.
    pub fn still_open(
        &mut self,
        process: ProcessId,
        (scattering, is_recalled): (u64, bool),
        since_ns: u64,
    ) {
        let sender = &self.processes[process.index()].current().senders[Service::Reliable as usize];
        let Some((submitted_ns, open)) = sender.submission(scattering) else { return };
        if submitted_ns < since_ns && (open > 0 || !is_recalled) {
            let tag = Tag { incarnation: self.incarnation(process), scattering };
            let kind = ViolationKind::NotEnded { process, tag, submitted_ns };
            self.violations.add(Rule::I12, self.now_ns, kind);
        }
    }

    //= spec/failure.md#R34
    //= spec/failure.md#R52
    /// Handles that no controller has registered `process`, although controllers and their store
    /// have worked for long.
    pub fn unregistered(&mut self, process: ProcessId) {
        let kind = ViolationKind::NotRegistered { process };
        self.violations.add(Rule::I10, self.now_ns, kind);
    }

    /// Ends the run: every message of a live sender must have an outcome (I12), and the guarantees
    /// of the reliable service are checked (I6, I7, I8, E).
    pub fn finish(&mut self) {
        let mut log = std::mem::take(&mut self.violations);
        let mut torn = Violations::default();
        for (id, process) in (0u32..).map(ProcessId).zip(&self.processes) {
            for (incarnation, state) in (0u32..).zip(&process.incarnations) {
                let is_last = incarnation as usize + 1 == process.incarnations.len();
                if is_last && state.end.is_none() {
                    for sender in &state.senders {
                        sender.on_end(
                            id,
                            incarnation,
                            self.now_ns,
                            self.requires_outcome(),
                            &mut log,
                        );
                    }
                }
                let violations = if self.may_be_torn { &mut torn } else { &mut log };
                self.verify(id, incarnation, state, violations);
                self.find_unnotified(id, incarnation, state, &mut log);
            }
        }
        self.counts.torn += torn.count();
        self.violations = log;
    }

    /// Checks the reliable scatterings of one incarnation of a sender.
    fn verify(
        &self,
        id: ProcessId,
        number: u32,
        incarnation: &IncarnationState,
        log: &mut Violations,
    ) {
        let sender_status = incarnation.sender_status();
        let may_be_torn = match sender_status {
            SenderStatus::Failed { is_exact, .. } => !is_exact,
            SenderStatus::Crashed => self.is_uncontrolled,
            SenderStatus::Correct => false,
        };
        if may_be_torn {
            return;
        }
        let sender = &incarnation.senders[Service::Reliable as usize];
        let at_ns = self.now_ns;
        for case in sender.cases() {
            let is_correct = |to| self.is_correct_receiver(to, case.submitted_ns);
            let tag = Tag { incarnation: number, scattering: case.scattering };
            let is_given_up = self.given_up.contains(&(id.0, tag));
            let is_known =
                |to| !is_given_up && self.is_known_receiver(to, incarnation, case.submitted_ns);
            verify((id, number, sender_status), &case, (is_correct, is_known), at_ns, log);
            let is_resolved = match sender_status {
                SenderStatus::Correct => true,
                SenderStatus::Failed { at, .. } => case.stamp.is_some_and(|stamp| stamp < at),
                SenderStatus::Crashed => false,
            };
            if is_resolved {
                let spans = |to| self.failed_spans(to, case.submitted_ns);
                find_gap((id, number), &case, spans, at_ns, log);
            }
        }
        let SenderStatus::Failed { at, .. } = sender_status else { return };
        for (process, stamp, to_incarnation) in sender.last() {
            let to = &self.processes[process.index()];
            let is_correct =
                to_incarnation as usize + 1 == to.incarnations.len() && to.current().is_correct();
            if is_correct && stamp >= at {
                log.add(
                    Rule::I8,
                    at_ns,
                    ViolationKind::AboveFailure { process, from: id, stamp, at },
                );
            }
        }
    }

    /// Whether the current incarnation of `to` is correct and existed when the message was
    /// submitted.
    fn is_correct_receiver(&self, to: ProcessId, submitted_ns: u64) -> bool {
        let Some(process) = self.processes.get(to.index()) else { return false };
        let now = process.current();
        let was_there = process.incarnations.len() == 1 || now.started_ns < submitted_ns;
        was_there && now.is_correct()
    }

    /// Whether a process in `incarnation` had received a reliable message from the current
    /// incarnation of `to` before the submission. Otherwise it may have considered `to` failed.
    fn is_known_receiver(
        &self,
        to: ProcessId,
        incarnation: &IncarnationState,
        submitted_ns: u64,
    ) -> bool {
        let Some(process) = self.processes.get(to.index()) else { return false };
        let number = process.incarnations.len() as u32 - 1;
        let first_contact_ns = incarnation.first_contact_ns.get(&(to.0, number));
        number == 0 || first_contact_ns.is_some_and(|contact_ns| *contact_ns < submitted_ns)
    }

    /// Returns the range of reliable deliveries of each ended incarnation of `process` that had
    /// started when the message was submitted. A message to one incarnation is not due to later
    /// ones, however high its timestamp.
    fn failed_spans(&self, process: ProcessId, submitted_ns: u64) -> Vec<(Timestamp, Timestamp)> {
        let incarnations =
            self.processes.get(process.index()).map_or(&[][..], |process| &process.incarnations);
        let had_started = |number: usize, incarnation: &IncarnationState| {
            number == 0 || incarnation.started_ns < submitted_ns
        };
        let failed = incarnations.iter().enumerate().filter(|(number, incarnation)| {
            had_started(*number, incarnation) && !incarnation.is_correct()
        });
        failed.filter_map(|(_, incarnation)| incarnation.receiver.reliable_span()).collect()
    }

    /// Checks that every correct process that existed was notified of a failure (E).
    fn find_unnotified(
        &self,
        id: ProcessId,
        number: u32,
        incarnation: &IncarnationState,
        log: &mut Violations,
    ) {
        let Some(failure) = incarnation.failed else { return };
        for (peer, process) in (0u32..).zip(&self.processes) {
            let now = process.current();
            let is_due = now.is_correct() && now.started_ns < failure.last_notified_ns;
            // A notification of a later incarnation implies the failure of this one.
            if is_due && peer != id.0 && !now.notified.contains_key(&(id.0, number)) {
                let kind = ViolationKind::NotNotified {
                    process: ProcessId(peer),
                    failed: id,
                    incarnation: number,
                };
                log.add(Rule::E, self.now_ns, kind);
            }
        }
    }
}
