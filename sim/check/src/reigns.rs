//! Who decides: at most one controller in every epoch. E.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;

use crate::violation::{Rule, Seen, Violations};

/// Watches which controllers are active.
#[derive(Clone, Debug, Default)]
pub struct Reigns {
    by_epoch: BTreeMap<u32, ProcessId>,
    violations: Violations,
}

impl Reigns {
    /// Nobody was active yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `controller` takes itself for the active one of `epoch`, or acts as such.
    pub fn seen(&mut self, epoch: u32, controller: ProcessId, at_ns: u64) {
        let before = *self.by_epoch.entry(epoch).or_insert(controller);
        if before != controller {
            let seen = Seen::TwoActive { epoch, before, now: controller };
            self.violations.add(Rule::E, at_ns, seen);
        }
    }

    /// `controller` was told that `epoch` is over, and has had the time to step down; whether it
    /// still takes itself for the active one of it.
    pub fn told_over(&mut self, epoch: u32, controller: ProcessId, goes_on: bool, at_ns: u64) {
        if goes_on {
            self.violations.add(Rule::E, at_ns, Seen::GoesOn { epoch, controller });
        }
    }

    /// How many epochs there were.
    pub fn epochs(&self) -> u64 {
        self.by_epoch.len() as u64
    }

    /// What was wrong.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
