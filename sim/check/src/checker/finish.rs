//! Checks at the end of a run.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::Service;

use super::Checker;
use crate::judge::{Fortune, find_gap, judge};
use crate::life::Life;
use crate::violation::{Rule, Seen, Violations};

impl Checker {
    /// Ends the run: every message of a live sender must have an outcome (I12), and the guarantees
    /// of the reliable service are checked (I6, I7, I8, E).
    pub fn finish(&mut self) {
        let mut log = std::mem::take(&mut self.violations);
        let mut torn = Violations::default();
        for (id, process) in (0u32..).map(ProcessId).zip(&self.processes) {
            for (life, lived) in (0u32..).zip(&process.lives) {
                let is_last = life as usize + 1 == process.lives.len();
                if is_last && lived.end.is_none() {
                    for sender in &lived.senders {
                        sender.on_end(id, life, self.now_ns, self.counts_for(), &mut log);
                    }
                }
                let judged = if self.may_be_torn { &mut torn } else { &mut log };
                self.judge(id, life, lived, judged);
                self.find_untold(id, life, lived, &mut log);
            }
        }
        self.counts.torn += torn.count();
        self.violations = log;
    }

    /// Checks the reliable scatterings of one incarnation of a sender.
    fn judge(&self, id: ProcessId, number: u32, life: &Life, log: &mut Violations) {
        let fortune = life.fortune();
        if matches!(fortune, Fortune::Failed { is_exact: false, .. }) {
            return;
        }
        let sender = &life.senders[Service::Reliable as usize];
        let at_ns = self.now_ns;
        for case in sender.cases() {
            let is_correct = |to| self.is_correct_receiver(to, case.submitted_ns);
            let is_known = |to| self.is_known_receiver(to, life, case.submitted_ns);
            judge((id, number, fortune), &case, (is_correct, is_known), at_ns, log);
            let is_settled = match fortune {
                Fortune::Correct => true,
                Fortune::Failed { at, .. } => case.stamp.is_some_and(|stamp| stamp < at),
                Fortune::Gone => false,
            };
            if is_settled {
                let spans = |to| self.failed_spans(to, case.submitted_ns);
                find_gap((id, number), &case, spans, at_ns, log);
            }
        }
        let Fortune::Failed { at, .. } = fortune else { return };
        for (process, stamp, to_life) in sender.last() {
            let to = &self.processes[process.index()];
            let is_correct = to_life as usize + 1 == to.lives.len() && to.now().is_correct();
            if is_correct && stamp >= at {
                log.add(Rule::I8, at_ns, Seen::AboveFailure { process, from: id, stamp, at });
            }
        }
    }

    /// Whether the current incarnation of `to` is correct and existed when the message was
    /// submitted.
    fn is_correct_receiver(&self, to: ProcessId, submitted_ns: u64) -> bool {
        let Some(process) = self.processes.get(to.index()) else { return false };
        let now = process.now();
        let was_there = process.lives.len() == 1 || now.started_ns < submitted_ns;
        was_there && now.is_correct()
    }

    /// Whether a process in `incarnation` had received a reliable message from the current
    /// incarnation of `to` before the submission. Otherwise it may have considered `to` failed.
    fn is_known_receiver(&self, to: ProcessId, life: &Life, submitted_ns: u64) -> bool {
        let Some(process) = self.processes.get(to.index()) else { return false };
        let number = process.lives.len() as u32 - 1;
        let met = life.met.get(&(to.0, number));
        number == 0 || met.is_some_and(|met_ns| *met_ns < submitted_ns)
    }

    /// Returns the range of reliable deliveries of each ended incarnation of `process` that had
    /// started when the message was submitted. A message to one incarnation is not owed to later
    /// ones, however high its timestamp.
    fn failed_spans(&self, process: ProcessId, submitted_ns: u64) -> Vec<(Timestamp, Timestamp)> {
        let lives = self.processes.get(process.index()).map_or(&[][..], |process| &process.lives);
        let had_begun = |number: usize, life: &Life| number == 0 || life.started_ns < submitted_ns;
        let failed = lives
            .iter()
            .enumerate()
            .filter(|(number, life)| had_begun(*number, life) && !life.is_correct());
        failed.filter_map(|(_, life)| life.receiver.reliable_span()).collect()
    }

    /// Checks that every correct process that existed was notified of a failure (E).
    fn find_untold(&self, id: ProcessId, number: u32, life: &Life, log: &mut Violations) {
        let Some(failure) = life.failed else { return };
        for (place, process) in (0u32..).zip(&self.processes) {
            let now = process.now();
            let is_due = now.is_correct() && now.started_ns < failure.last_told_ns;
            // A notification of a later incarnation implies the failure of this one.
            if is_due && place != id.0 && !now.told.contains_key(&(id.0, number)) {
                let seen = Seen::NotTold { process: ProcessId(place), failed: id, life: number };
                log.add(Rule::E, self.now_ns, seen);
            }
        }
    }
}
