//! Active controllers: at most one per epoch. E.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;

use crate::violation::{Rule, Seen, Violations};

/// Checks which controllers are active.
#[derive(Clone, Debug, Default)]
pub struct Reigns {
    by_epoch: BTreeMap<u32, ProcessId>,
    violations: Violations,
}

impl Reigns {
    /// Creates a checker without any epoch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `controller` considers itself active in `epoch`, or acts as such.
    pub fn seen(&mut self, epoch: u32, controller: ProcessId, at_ns: u64) {
        let before = *self.by_epoch.entry(epoch).or_insert(controller);
        if before != controller {
            let seen = Seen::TwoActive { epoch, before, now: controller };
            self.violations.add(Rule::E, at_ns, seen);
        }
    }

    /// Records whether `controller` is still active in `epoch` after it was notified that the epoch
    /// has ended and had time to step down.
    pub fn told_over(&mut self, epoch: u32, controller: ProcessId, goes_on: bool, at_ns: u64) {
        if goes_on {
            self.violations.add(Rule::E, at_ns, Seen::GoesOn { epoch, controller });
        }
    }

    /// Returns the number of epochs.
    pub fn epochs(&self) -> u64 {
        self.by_epoch.len() as u64
    }

    /// Returns the violations.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
