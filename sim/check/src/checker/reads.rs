//! Linearizable reads of a process that was declared failed and does not know so yet.

use onepipe_base::ProcessId;

use super::Checker;
use crate::observation::Snapshot;
use crate::violation::{Rule, ViolationKind};

impl Checker {
    /// Checks that a read ends at no process without which others may have gone on. A read waits
    /// until the commit barrier has passed the time at which it began, and the commit barrier of
    /// that moment (`LogHandle::read_index`). The earliest read of interest begins when another
    /// process has been notified of the failure. No read begins while the process does not run, nor
    /// before it has handled the frames that have arrived.
    #[inline]
    pub(super) fn check_read(&mut self, process: ProcessId, snapshot: &Snapshot) {
        let state = self.processes[process.index()].current_mut();
        if state.failed.is_none() || state.end.is_some() {
            return;
        }
        let barrier = snapshot.commit_barrier;
        if state.read_at.is_none() {
            state.read_at = snapshot.now.map(|now| barrier.map_or(now, |barrier| now.max(barrier)));
        }
        if let (Some(read), Some(barrier)) = (state.read_at, barrier)
            && barrier > read
        {
            let kind = ViolationKind::StaleRead { process, barrier, read };
            self.violations.add(Rule::B, self.now_ns, kind);
        }
    }
}
