//! Active controllers: at most one per epoch. E.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;

use crate::violation::{Rule, ViolationKind, Violations};

/// Checks which controllers are active.
#[derive(Clone, Debug, Default)]
pub struct ControllerEpochs {
    by_epoch: BTreeMap<u32, ProcessId>,
    violations: Violations,
}

impl ControllerEpochs {
    /// Creates a checker without any epoch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `controller` considers itself active in `epoch`, or acts as such.
    pub fn observe(&mut self, epoch: u32, controller: ProcessId, at_ns: u64) {
        let before = *self.by_epoch.entry(epoch).or_insert(controller);
        if before != controller {
            let kind = ViolationKind::TwoActive { epoch, before, now: controller };
            self.violations.add(Rule::E, at_ns, kind);
        }
    }

    /// Forgets which epochs were given: another store gives them again.
    pub fn restart(&mut self) {
        self.by_epoch.clear();
    }

    /// Records whether `controller` is still active in `epoch` after it was notified that the epoch
    /// has ended and had time to step down.
    pub fn epoch_ended(
        &mut self,
        epoch: u32,
        controller: ProcessId,
        is_still_active: bool,
        at_ns: u64,
    ) {
        if is_still_active {
            self.violations.add(
                Rule::E,
                at_ns,
                ViolationKind::ActiveAfterEnd { epoch, controller },
            );
        }
    }

    /// Records that `controller` has refused the latest store.
    pub fn refused_without_reason(&mut self, epoch: u32, controller: ProcessId, at_ns: u64) {
        self.violations.add(Rule::E, at_ns, ViolationKind::StoreRefused { epoch, controller });
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
