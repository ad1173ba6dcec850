//! Quick runs: shorter windows, and without the longest tasks. Together with the fewer points of
//! `xs_quick` they take a minute on two cores; their verdicts are not final.

use crate::experiment::Task;
use crate::{
    Background, Disruption, Isolation, Rack, RackTraffic, ReplicaRemoval, Setup, Takeover,
};

/// Longest time before a measurement, in us.
const WARM_UP_US_MAX: u64 = 600;
/// Longest measurement, in us.
const MEASURE_US_MAX: u64 = 400;
/// Largest number of processes of a key-value store.
const PROCESSES_MAX: u32 = 32;
/// Largest number of hosts of a fat tree in which one fails.
const HOSTS_MAX: u32 = 500;
/// Number of trials where a full run takes more.
const TRIALS_MAX: u32 = 2;

impl Task {
    /// Returns the task with the windows of a quick run; `None` if a quick run leaves it out.
    pub(crate) fn quick(self) -> Option<Self> {
        Some(match self {
            Self::Order(setup) => Self::Order(shorter(setup)),
            Self::Shared(setup, background) => {
                // Queues of other capacities than the assumed one are left out.
                let is_usual = background.queue_bytes == Background::new(0, false).queue_bytes;
                is_usual.then(|| Self::Shared(shorter(setup), background))?
            }
            // Nine changes of the connections take seconds of virtual time.
            Self::Rack(Rack { traffic: RackTraffic::ComeAndGo { .. }, .. }) => return None,
            Self::Takeover(takeover) => {
                let trials = takeover.trials.min(TRIALS_MAX);
                Self::Takeover(Takeover { trials, ..takeover })
            }
            Self::Isolation(isolation) => {
                let trials = isolation.trials.min(TRIALS_MAX);
                Self::Isolation(Isolation { trials, ..isolation })
            }
            Self::Disruption(disruption) => {
                let moments = disruption.moments.min(TRIALS_MAX);
                Self::Disruption(Disruption { moments, ..disruption })
            }
            // The peak rate of a large store takes a minute of processor time and more.
            Self::KeyValue(store) if store.processes > PROCESSES_MAX => return None,
            Self::RecoveryAtScale { hosts, .. } if hosts > HOSTS_MAX => return None,
            // All items and customers take hundreds of megabytes.
            Self::ReplicaRemoval(removal) if removal.divisor == 1 => return None,
            Self::ReplicaRemoval(removal) => {
                let trials = removal.trials.min(TRIALS_MAX);
                Self::ReplicaRemoval(ReplicaRemoval { trials, ..removal })
            }
            task => task,
        })
    }
}

fn shorter(setup: Setup) -> Setup {
    let warm_up_us = setup.warm_up_us.min(WARM_UP_US_MAX);
    let measure_us = setup.measure_us.min(MEASURE_US_MAX);
    Setup { warm_up_us, measure_us, ..setup }
}

#[cfg(test)]
mod tests {
    use crate::{Task, all};

    #[test]
    fn quick_windows_are_short_and_figures_stay() {
        for experiment in all() {
            let cases = experiment.cases(true);
            // Figures of the store with 512 processes show the paper's points only.
            let has_none = ["14b", "14c"].contains(&experiment.id);
            assert_eq!(cases.is_empty(), has_none, "figure {}", experiment.id);
            for (curve, x, task) in cases {
                let (Task::Order(setup) | Task::Shared(setup, _)) = &task else { continue };
                let virtual_us = setup.warm_up_us + setup.measure_us;
                assert!(virtual_us <= 1_000, "{}, {curve} at {x}: {virtual_us}", experiment.id);
            }
        }
    }

    #[test]
    fn full_runs_are_not_shortened() {
        let mut longest_us = 0;
        for (_, _, task) in all().into_iter().flat_map(|experiment| experiment.cases(false)) {
            if let Task::Shared(setup, _) = task {
                longest_us = longest_us.max(setup.measure_us);
            }
        }
        assert!(longest_us >= 6_000, "{longest_us} us");
    }
}
