//! A process that uses the library as its users do: it blocks until a message arrives or its next
//! one is due.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use onepipe::{Event, Message, Pipe, ProcessId};

use super::job::{Job, Outcome, PAUSE_NS, Sample, counts, monotonic_ns};

/// Time in which all processes must have joined.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a member.
pub(super) fn run(job: &Job) -> Result<Outcome> {
    let builder = Pipe::builder().process(job.process).processes(job.processes);
    let builder = match &job.switch {
        Some(switch) => builder.udp(switch),
        None => builder.fabric(&job.fabric),
    };
    let has_fixed_interval = job.has_fixed_interval;
    let builder = builder.tune(move |config| {
        if has_fixed_interval {
            config.heartbeat_interval_ns = 0;
        }
    });
    let mut pipe = builder.join().context("joining the fabric")?;
    if job.switch.is_none() {
        let others = job.processes as usize - 1;
        ensure!(pipe.wait_for_peers(others, JOIN_TIMEOUT), "the other processes did not join");
    }
    let mut member = Member::new(job, &mut pipe)?;
    member.open_connections()?;
    member.measure()?;
    member.wake()?;
    let outcome = member.outcome()?;
    pipe.leave().context("leaving the fabric")?;
    Ok(outcome)
}

struct Member<'j> {
    job: &'j Job,
    pipe: &'j mut Pipe,
    payload: Vec<u8>,
    outcome: Outcome,
    steady: Histogram<u64>,
    woken: Histogram<u64>,
}

impl<'j> Member<'j> {
    fn new(job: &'j Job, pipe: &'j mut Pipe) -> Result<Self> {
        Ok(Self {
            job,
            pipe,
            payload: vec![0; job.bytes.max(8)],
            outcome: Outcome::default(),
            steady: Histogram::new(3)?,
            woken: Histogram::new(3)?,
        })
    }

    /// Scatters until the measurement begins, at the rate of the job: all connections are open by
    /// then, and caches and idle strategies are warm. Without a rate, until shortly before.
    fn open_connections(&mut self) -> Result<()> {
        let begin_ns = self.job.window_ns[0];
        let (interval_ns, end_ns) = match self.job.rate > 0.0 {
            true => ((1e9 / self.job.rate) as u64, begin_ns),
            false => (50_000_000, begin_ns.saturating_sub(200_000_000)),
        };
        let mut next_ns = monotonic_ns();
        while next_ns < end_ns {
            self.scatter(0)?;
            next_ns += interval_ns;
            self.receive_until(next_ns.min(end_ns))?;
        }
        self.receive_until(begin_ns)?;
        // What was lost while some had not joined does not count.
        self.outcome.lost = 0;
        Ok(())
    }

    /// Scatters at the rate of the job during the measurement, and receives.
    fn measure(&mut self) -> Result<()> {
        let [begin_ns, end_ns] = self.job.window_ns;
        let sample = Sample::take();
        if self.job.rate > 0.0 {
            let interval_ns = 1e9 / self.job.rate;
            let phase = f64::from(self.job.process) / f64::from(self.job.processes);
            for number in 0.. {
                let due_ns = begin_ns + ((f64::from(number) + phase) * interval_ns) as u64;
                if due_ns >= end_ns {
                    break;
                }
                self.receive_until(due_ns)?;
                self.scatter(due_ns)?;
            }
        }
        self.receive_until(end_ns)?;
        sample.finish(&mut self.outcome);
        Ok(())
    }

    /// Process 0 scatters after pauses; all receive.
    fn wake(&mut self) -> Result<()> {
        for wake in 0..u64::from(self.job.wakes) {
            let due_ns = self.job.window_ns[1] + (wake + 1) * PAUSE_NS;
            if self.job.process == 0 {
                self.receive_until(due_ns)?;
                self.scatter(monotonic_ns())?;
            }
        }
        self.receive_until(self.job.end_ns())
    }

    /// Scatters a message that was due at `due_ns` to all members.
    fn scatter(&mut self, due_ns: u64) -> Result<()> {
        self.payload[..8].copy_from_slice(&due_ns.to_le_bytes());
        let messages: Vec<Message<'_>> = (0..self.job.processes)
            .map(|to| Message { to: ProcessId(to), payload: &self.payload })
            .collect();
        self.pipe.scatter(&messages).context("scattering")?;
        Ok(())
    }

    /// Receives until `until_ns` on the monotonic clock.
    fn receive_until(&mut self, until_ns: u64) -> Result<()> {
        loop {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return Ok(());
            }
            match self.pipe.recv_timeout(Duration::from_nanos(left_ns)) {
                Some(Event::Message(message)) => self.on_message(&message.payload)?,
                Some(Event::SendFailed(_)) => self.outcome.lost += 1,
                Some(_) | None => {}
            }
        }
    }

    fn on_message(&mut self, payload: &[u8]) -> Result<()> {
        let word = payload.first_chunk().context("a message of this benchmark has 8 bytes")?;
        let due_ns = u64::from_le_bytes(*word);
        let latency_ns = monotonic_ns().saturating_sub(due_ns);
        let [begin_ns, end_ns] = self.job.window_ns;
        match due_ns {
            0 => {}
            _ if (begin_ns..end_ns).contains(&due_ns) => self.steady.record(latency_ns)?,
            _ => self.woken.record(latency_ns)?,
        }
        Ok(())
    }

    fn outcome(self) -> Result<Outcome> {
        let (latencies, wake_latencies) = (counts(&self.steady), counts(&self.woken));
        Ok(Outcome { latencies, wake_latencies, ..self.outcome })
    }
}
