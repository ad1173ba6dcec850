//! Input and output of one process of the benchmarks of light load.

use anyhow::Result;
use hdrhistogram::Histogram;
use onepipe::Idle;
use serde::{Deserialize, Serialize};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    /// Sends at a rate and receives, with the library's blocking interface.
    Member,
    /// The software switch between members.
    Switch,
    /// Sends and receives bare datagrams.
    BareMember,
    /// Sends each datagram that it receives to all bare members: what any order through a switch
    /// or a sequencer costs at least.
    BareRelay,
}

/// What a process does with its core while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JobIdle {
    Spin,
    Yield,
    Backoff,
}

impl From<Idle> for JobIdle {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Spin => Self::Spin,
            Idle::Yield => Self::Yield,
            Idle::Backoff => Self::Backoff,
        }
    }
}

impl From<JobIdle> for Idle {
    fn from(idle: JobIdle) -> Self {
        match idle {
            JobIdle::Spin => Self::Spin,
            JobIdle::Yield => Self::Yield,
            JobIdle::Backoff => Self::Backoff,
        }
    }
}

/// Parameters of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    pub role: Role,
    pub process: u32,
    pub processes: u32,
    /// Address of the switch or relay; `None`: shared memory.
    pub switch: Option<String>,
    /// Sends beacons at the fixed interval, not on demand.
    pub has_fixed_interval: bool,
    pub idle: JobIdle,
    /// Name of the fabric in shared memory.
    pub fabric: String,
    /// Messages that a member scatters per second, each to all members. 0: none.
    pub rate: f64,
    /// Message size in bytes, at least 8.
    pub bytes: usize,
    /// Begin and end of the measurement on the machine's monotonic clock, in ns.
    pub window_ns: [u64; 2],
    /// Number of messages that process 0 scatters after the measurement, each after a pause.
    pub wakes: u32,
}

/// Result of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Length of the measurement in s, and the CPU time and voluntary context switches in it.
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub wake_ups: u64,
    /// Frames sent and received by the switch or relay in the measurement.
    pub datagrams: u64,
    /// Frames sent by the switch in the measurement, and its system calls for that.
    pub frames_sent: u64,
    pub sends: u64,
    /// Latencies in ns of the messages received in the measurement: from the time at which a
    /// message was to be sent to its delivery. Value and count.
    pub latencies: Vec<(u64, u64)>,
    /// The same of the messages after pauses.
    pub wake_latencies: Vec<(u64, u64)>,
    /// Own messages that were reported as not delivered.
    pub lost: u64,
}

/// Pause before each message after the measurement, in ns: three heartbeats.
pub(super) const PAUSE_NS: u64 = 300_000_000;

impl Job {
    /// Returns when the messages after the measurement have all arrived, if any do.
    pub(super) fn end_ns(&self) -> u64 {
        self.window_ns[1] + PAUSE_NS * (u64::from(self.wakes) + 1)
    }
}

/// Returns the counts of a histogram.
pub(crate) fn counts(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram.iter_recorded().map(|it| (it.value_iterated_to(), it.count_at_value())).collect()
}

/// Returns the histogram of several counts.
pub(crate) fn merged<'a>(all: impl Iterator<Item = &'a Vec<(u64, u64)>>) -> Result<Histogram<u64>> {
    let mut histogram = Histogram::new(3)?;
    for (value, count) in all.flatten() {
        histogram.record_n(*value, *count)?;
    }
    Ok(histogram)
}

/// Returns the machine's monotonic clock in ns: the same for all processes.
pub(crate) fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time and context switches of this process at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    at_ns: u64,
    cpu_seconds: f64,
    wake_ups: u64,
}

impl Sample {
    pub(super) fn take() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            at_ns: monotonic_ns(),
            cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            wake_ups: voluntary_switches(),
        }
    }

    /// Writes what happened since this sample into `outcome`.
    pub(super) fn finish(self, outcome: &mut Outcome) {
        let now = Self::take();
        outcome.seconds = (now.at_ns - self.at_ns) as f64 / 1e9;
        outcome.cpu_seconds = now.cpu_seconds - self.cpu_seconds;
        outcome.wake_ups = now.wake_ups - self.wake_ups;
    }
}

/// Returns how often the threads of this process have given up their core to wait.
fn voluntary_switches() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let of_task = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(of_task)
        .sum()
}
