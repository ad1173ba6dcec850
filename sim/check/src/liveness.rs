//! Whether the fabric comes back to life: I10.

use onepipe_base::{ProcessId, Timestamp};

use crate::violation::{Rule, Seen, Violations};

/// Waits for every barrier to pass what its process had promised when the last fault was healed:
/// then all that was sent until then can be delivered.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    targets: Vec<(ProcessId, Timestamp)>,
    violations: Violations,
}

impl Liveness {
    /// Nobody to wait for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything is healed; `process` promises `promise`.
    pub fn healed(&mut self, process: ProcessId, promise: Timestamp) {
        self.targets.push((process, promise));
    }

    /// The barrier of `process` is now at `barrier`. Answers whether everybody has passed.
    pub fn seen(&mut self, process: ProcessId, barrier: Option<Timestamp>) -> bool {
        let has_passed = |target: Timestamp| barrier.is_some_and(|barrier| barrier > target);
        self.targets.retain(|(who, target)| *who != process || !has_passed(*target));
        self.targets.is_empty()
    }

    /// Time is up: whoever has not passed is stuck. `barrier` answers where each is.
    pub fn finish(&mut self, at_ns: u64, barrier: impl Fn(ProcessId) -> Option<Timestamp>) {
        for (process, target) in std::mem::take(&mut self.targets) {
            let now = barrier(process);
            if now.is_none_or(|now| now <= target) {
                self.violations.add(Rule::I10, at_ns, Seen::Stuck { process, now, target });
            }
        }
    }

    /// What was wrong.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
