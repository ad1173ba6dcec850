//! Recovery of the fabric after healing: I10.

use onepipe_base::{ProcessId, Timestamp};

use crate::violation::{Rule, ViolationKind, Violations};

//= spec/ordering.md#R37
/// Waits until every barrier has passed what its process had promised when the last fault was
/// healed: then everything sent before can be delivered.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    targets: Vec<(ProcessId, Timestamp)>,
    violations: Violations,
}

impl Liveness {
    /// Creates a checker without targets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires the barrier of `process` to pass `promise`.
    pub fn expect_above(&mut self, process: ProcessId, promise: Timestamp) {
        self.targets.push((process, promise));
    }

    /// Records the barrier of `process`. Returns whether all targets are passed.
    pub fn observe(&mut self, process: ProcessId, barrier: Option<Timestamp>) -> bool {
        let has_passed = |target: Timestamp| barrier.is_some_and(|barrier| barrier > target);
        self.targets.retain(|(id, target)| *id != process || !has_passed(*target));
        self.targets.is_empty()
    }

    /// Ends the wait: reports every process that has not passed its target as stuck. `barrier`
    /// returns the current barriers.
    pub fn finish(&mut self, at_ns: u64, barrier: impl Fn(ProcessId) -> Option<Timestamp>) {
        for (process, target) in std::mem::take(&mut self.targets) {
            let now = barrier(process);
            if now.is_none_or(|now| now <= target) {
                self.violations.add(
                    Rule::I10,
                    at_ns,
                    ViolationKind::Stuck { process, now, target },
                );
            }
        }
    }

    /// Returns the violations.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
