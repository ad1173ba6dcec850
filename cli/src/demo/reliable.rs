//! Reliable stream of a worker: its log, and the failures that were reported to it.

use onepipe::{ProcessFailed, Received, SendFailed};
use serde::{Deserialize, Serialize};

use super::log::{Entry, Log, StreamFaults, Window};
use super::pauses::PauseRecorder;

/// A failure as reported to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The failed process.
    pub process: u32,
    /// Its failure timestamp, in ns.
    pub failed_ns: u64,
    /// Time of the report, in ns of the parent's clock.
    pub notified_ns: u64,
}

/// The reliable stream since the previous sample, unless stated otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReliableSample {
    /// Complete windows of its log.
    pub windows: Vec<Window>,
    /// All windows below this are complete.
    pub closed_below: u64,
    /// Pauses between deliveries, as in `Sample` (messages.rs).
    pub pauses: Vec<(u64, u64)>,
    /// Faults of its stream, since the start.
    pub faults: StreamFaults,
    /// Deliveries from failed processes at or above their failure timestamps, since the start.
    pub after_failure: u64,
    /// Failures reported to it, since the start.
    pub failures: Vec<Failure>,
    /// Its own scatterings since the start: submitted, delivered to itself, recalled.
    pub own: [u64; 3],
}

/// The reliable stream of one worker.
#[derive(Debug)]
pub struct Reliable {
    process: u32,
    pub log: Log,
    pub recorder: PauseRecorder,
    /// Highest timestamp delivered from each sender, in ns.
    highest_ns: Vec<u64>,
    failures: Vec<Failure>,
    after_failure: u64,
    pub submitted: u64,
    delivered: u64,
    recalled: u64,
}

impl Reliable {
    /// Creates the state of worker `process`.
    pub fn new(process: u32, processes: usize, window_ns: u64, now_ns: u64) -> Self {
        Self {
            process,
            log: Log::new(window_ns, processes),
            recorder: PauseRecorder::new(now_ns),
            highest_ns: vec![0; processes],
            failures: Vec::new(),
            after_failure: 0,
            submitted: 0,
            delivered: 0,
            recalled: 0,
        }
    }

    /// Records the next message of the stream.
    #[inline]
    pub fn on_delivered(&mut self, now_ns: u64, entry: Entry) {
        self.recorder.on_delivered(now_ns);
        self.delivered += u64::from(entry.from == self.process);
        let is_failed = |failure: &Failure| {
            failure.process == entry.from && entry.timestamp_ns >= failure.failed_ns
        };
        self.after_failure += u64::from(self.failures.iter().any(is_failed));
        if let Some(highest_ns) = self.highest_ns.get_mut(entry.from as usize) {
            *highest_ns = entry.timestamp_ns.max(*highest_ns);
        }
        self.log.on_delivered(entry);
    }

    /// Records that a message of this worker was recalled with its whole scattering. Returns
    /// whether it is the message to itself, which each scattering has once.
    pub fn on_recalled(&mut self, failed: &SendFailed) -> bool {
        let is_own = failed.to.0 == self.process;
        self.recalled += u64::from(is_own);
        is_own
    }

    /// Records that a process has failed.
    pub fn on_process_failed(&mut self, now_ns: u64, failed: &ProcessFailed) {
        let (process, failed_ns) = (failed.process.0, failed.at.as_ns());
        self.failures.push(Failure { process, failed_ns, notified_ns: now_ns });
        let highest_ns = self.highest_ns.get(process as usize);
        self.after_failure +=
            u64::from(highest_ns.is_some_and(|highest_ns| *highest_ns >= failed_ns));
    }

    /// Returns a sample; everything below the barrier has been delivered.
    pub fn sample(&mut self, barrier_ns: Option<u64>) -> ReliableSample {
        if let Some(barrier_ns) = barrier_ns {
            self.log.on_barrier(barrier_ns);
        }
        ReliableSample {
            windows: self.log.take().0,
            closed_below: self.log.closed_below(),
            pauses: self.recorder.take(),
            faults: self.log.faults,
            after_failure: self.after_failure,
            failures: self.failures.clone(),
            own: [self.submitted, self.delivered, self.recalled],
        }
    }
}

/// Returns whether a message belongs to this stream.
pub fn is_reliable<P>(message: &Received<P>) -> bool {
    message.service == onepipe::Service::Reliable
}
