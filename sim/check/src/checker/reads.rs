//! Linearizable reads of a process that was declared failed and does not know so yet.

use onepipe_base::ProcessId;

use super::Checker;
use crate::observation::Snapshot;
use crate::violation::{Rule, ViolationKind};

impl Checker {
    /// Checks that a read ends at no process without which others may have gone on. A read waits
    /// until the commit barrier has passed the time at which it began, and the commit barrier of
    /// that moment (`LogHandle::read_index`). The earliest read of interest begins when another
    /// process has been notified of the failure.
    #[inline]
    pub(super) fn check_read(&mut self, process: ProcessId, snapshot: &Snapshot) {
        let state = self.processes[process.index()].current_mut();
        if state.failed.is_none() || state.end.is_some() {
            return;
        }
        let barrier = snapshot.commit_barrier;
        let read = *state.read_at.get_or_insert(snapshot.now.max(barrier));
        if let (Some(read), Some(barrier)) = (read, barrier)
            && barrier > read
        {
            let kind = ViolationKind::StaleRead { process, barrier, read };
            self.violations.add(Rule::B, self.now_ns, kind);
        }
    }
}
