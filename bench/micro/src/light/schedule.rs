//! When a member sends, and what it measures: the same for ours and for the yardstick.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::job::{Job, Outcome, PAUSE_NS, Sample, counts, monotonic_ns};

/// A member that sends and receives as the schedule says.
pub(super) trait Member {
    /// Sends a message that was due at `due_ns` to all members; 0: one that is not measured.
    fn send(&mut self, due_ns: u64) -> Result<()>;

    /// Receives until `until_ns` on the monotonic clock.
    fn receive_until(&mut self, until_ns: u64) -> Result<()>;

    /// Handles the begin of the measurement: what was lost until now does not count.
    fn on_begin(&mut self) {}
}

/// Runs the schedule of a job. Until the measurement begins, a member sends at the rate of the job:
/// all connections are open by then, and caches and idle strategies are warm. Without a rate, it
/// sends every 50 ms until shortly before. In the measurement it sends at the rate. After it,
/// process 0 sends after pauses.
pub(super) fn run(job: &Job, member: &mut impl Member) -> Result<Outcome> {
    let [begin_ns, end_ns] = job.window_ns;
    let (warm_up_interval_ns, warm_up_end_ns) = match job.rate > 0.0 {
        true => ((1e9 / job.rate) as u64, begin_ns),
        false => (50_000_000, begin_ns.saturating_sub(200_000_000)),
    };
    let mut next_ns = monotonic_ns();
    while next_ns < warm_up_end_ns {
        member.send(0)?;
        next_ns += warm_up_interval_ns;
        member.receive_until(next_ns.min(warm_up_end_ns))?;
    }
    member.receive_until(begin_ns)?;
    member.on_begin();

    let (sample, mut outcome) = (Sample::take(), Outcome::default());
    if job.rate > 0.0 {
        // Members are out of phase with each other.
        let phase = f64::from(job.process) / f64::from(job.processes);
        for number in 0.. {
            let due_ns = begin_ns + ((f64::from(number) + phase) * 1e9 / job.rate) as u64;
            if due_ns >= end_ns {
                break;
            }
            member.receive_until(due_ns)?;
            member.send(due_ns)?;
        }
    }
    member.receive_until(end_ns)?;
    sample.finish(&mut outcome);
    for wake in 0..u64::from(job.wakes) {
        if job.process == 0 {
            member.receive_until(end_ns + (wake + 1) * PAUSE_NS)?;
            member.send(monotonic_ns())?;
        }
    }
    member.receive_until(job.end_ns())?;
    Ok(outcome)
}

/// Latencies of received messages, from the time at which each was due.
pub(super) struct Latencies {
    window_ns: [u64; 2],
    steady: Histogram<u64>,
    woken: Histogram<u64>,
}

impl Latencies {
    pub(super) fn new(job: &Job) -> Result<Self> {
        let (steady, woken) = (Histogram::new(3)?, Histogram::new(3)?);
        Ok(Self { window_ns: job.window_ns, steady, woken })
    }

    /// Records a received message, which begins with the time at which it was due.
    pub(super) fn record(&mut self, payload: &[u8]) -> Result<()> {
        let word = payload.first_chunk().context("a message of this benchmark has 8 bytes")?;
        let due_ns = u64::from_le_bytes(*word);
        let latency_ns = monotonic_ns().saturating_sub(due_ns);
        let [begin_ns, end_ns] = self.window_ns;
        match due_ns {
            0 => {}
            _ if (begin_ns..end_ns).contains(&due_ns) => self.steady.record(latency_ns)?,
            _ => self.woken.record(latency_ns)?,
        }
        Ok(())
    }

    /// Returns `outcome` with the latencies.
    pub(super) fn complete(self, outcome: Outcome) -> Outcome {
        let (latencies, wake_latencies) = (counts(&self.steady), counts(&self.woken));
        Outcome { latencies, wake_latencies, ..outcome }
    }
}
