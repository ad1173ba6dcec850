//! A process that uses the library as its users do: it blocks until a message arrives or its next
//! one is due.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onepipe::{Event, Message, Pipe, ProcessId};

use super::job::{Job, Outcome, monotonic_ns};
use super::schedule::{self, Latencies, Member};

/// Time in which all processes must have joined.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a member.
pub(super) fn run(job: &Job) -> Result<Outcome> {
    let builder = Pipe::builder().process(job.process).idle(job.idle.into());
    let builder = match &job.switch {
        Some(switch) => builder.udp(switch),
        None => builder.fabric(&job.fabric).processes(job.processes),
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
    let mut member = PipeMember::new(job, &mut pipe)?;
    let outcome = schedule::run(job, &mut member)?;
    let outcome = member.latencies.complete(Outcome { lost: member.lost, ..outcome });
    pipe.leave().context("leaving the fabric")?;
    Ok(outcome)
}

struct PipeMember<'j> {
    pipe: &'j mut Pipe,
    processes: u32,
    payload: Vec<u8>,
    latencies: Latencies,
    lost: u64,
}

impl<'j> PipeMember<'j> {
    fn new(job: &Job, pipe: &'j mut Pipe) -> Result<Self> {
        let (payload, latencies) = (vec![0; job.bytes.max(8)], Latencies::new(job)?);
        Ok(Self { pipe, processes: job.processes, payload, latencies, lost: 0 })
    }
}

impl Member for PipeMember<'_> {
    fn send(&mut self, due_ns: u64) -> Result<()> {
        self.payload[..8].copy_from_slice(&due_ns.to_le_bytes());
        let messages: Vec<Message<'_>> = (0..self.processes)
            .map(|to| Message { to: ProcessId(to), payload: &self.payload })
            .collect();
        self.pipe.scatter(&messages).context("scattering")?;
        Ok(())
    }

    fn receive_until(&mut self, until_ns: u64) -> Result<()> {
        loop {
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return Ok(());
            }
            match self.pipe.recv_timeout(Duration::from_nanos(left_ns)) {
                Some(Event::Message(message)) => self.latencies.record(&message.payload)?,
                Some(Event::SendFailed(_)) => self.lost += 1,
                Some(_) | None => {}
            }
        }
    }

    fn on_begin(&mut self) {
        self.lost = 0;
    }
}
