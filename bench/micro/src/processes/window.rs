//! A process that uses the library as its users do, with a bounded number of scatterings in flight.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use onepipe::{
    EmbeddedPipe, Event, Message, Outcome as SendOutcome, Pipe, ProcessId, ScatteringId, SendError,
};

use super::delivery_log::{DeliveryLog, END, HELLO, TIMEOUT, cpu_seconds};
use super::job::Api;
use super::{Fabric, Job};
use crate::children::release_flag;

/// Longest single wait for an event.
const WAIT: Duration = Duration::from_millis(10);

/// Runs a process that keeps `window` scatterings in flight: it sends the next one when it has
/// delivered one of its own.
pub(super) fn work(job: &Job, window: u32, api: Api) -> Result<()> {
    let builder = Pipe::builder().process(job.process);
    let builder = match &job.fabric {
        Fabric::Shm(name) => builder.fabric(name).processes(job.processes),
        Fabric::Udp { switch, .. } => builder.udp(switch),
    };
    let pipe = match api {
        Api::Pipe => Handle::Pipe(builder.join().context("joining the fabric")?),
        Api::Embedded => Handle::Embedded(builder.embedded().context("joining the fabric")?),
    };
    let payload = vec![0; job.bytes.max(8)];
    let mut member =
        Member { job, pipe, delivery_log: DeliveryLog::new(job), payload, in_flight: 0 };
    member.rendezvous()?;
    let cpu = cpu_seconds();
    member.flood(window)?;
    member.delivery_log.outcome.cpu_seconds = cpu_seconds() - cpu;
    super::report(&member.delivery_log.finish())?;
    // The others may still wait for acknowledgements.
    let is_released = release_flag();
    while !is_released.load(Ordering::Relaxed) {
        member.receive()?;
    }
    Ok(())
}

#[allow(clippy::large_enum_variant, reason = "one value per process")]
enum Handle {
    Pipe(Pipe),
    Embedded(EmbeddedPipe),
}

impl Handle {
    #[inline]
    fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        match self {
            Self::Pipe(pipe) => pipe.scatter(messages),
            Self::Embedded(pipe) => pipe.scatter(messages),
        }
    }

    /// Waits for events, for a limited time, and passes all that there are to `on_event`.
    #[inline]
    fn receive(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) {
        match self {
            Self::Pipe(pipe) => pipe.recv_batch_timeout(WAIT).for_each(on_event),
            Self::Embedded(pipe) => {
                let progress = pipe.poll(&mut on_event);
                if progress.is_idle() {
                    pipe.rest(progress);
                }
            }
        }
    }
}

struct Member<'j> {
    job: &'j Job,
    pipe: Handle,
    delivery_log: DeliveryLog,
    payload: Vec<u8>,
    /// Own scatterings whose message to this process itself is not delivered yet.
    in_flight: u32,
}

impl Member<'_> {
    /// Sends hello until all members have sent theirs.
    fn rendezvous(&mut self) -> Result<()> {
        let start = Instant::now();
        let mut sent_at = None::<Instant>;
        while !self.delivery_log.have_all_joined() {
            let joined = &self.delivery_log.joined;
            ensure!(start.elapsed() < TIMEOUT, "the others did not arrive: {joined:?}");
            if sent_at.is_none_or(|sent_at| sent_at.elapsed() > Duration::from_millis(20)) {
                self.hello()?;
                sent_at = Some(Instant::now());
            }
            self.receive()?;
        }
        self.hello()
    }

    fn hello(&mut self) -> Result<()> {
        for process in (0..self.job.processes).filter(|process| *process != self.job.process) {
            self.scatter(&[process], HELLO)?;
        }
        Ok(())
    }

    fn flood(&mut self, window: u32) -> Result<()> {
        let everyone: Vec<u32> = (0..self.job.processes).collect();
        let (start, stop) = (Instant::now(), Duration::from_secs_f64(self.job.seconds));
        let mut number: u64 = 0;
        while start.elapsed() < stop {
            while self.in_flight < window {
                self.scatter(&everyone, number)?;
                self.in_flight += 1;
                number += 1;
            }
            self.receive()?;
        }
        let end = self.scatter(&everyone, END)?;
        self.delivery_log.ends.push(end);
        let deadline = Instant::now() + TIMEOUT;
        while self.delivery_log.ends_received < self.job.processes {
            ensure!(Instant::now() < deadline, "the end of all members did not arrive");
            self.receive()?;
            while let Some(to) = self.delivery_log.undelivered_ends.pop() {
                let end = self.scatter(&[to], END)?;
                self.delivery_log.ends.push(end);
            }
        }
        Ok(())
    }

    /// Scatters a message that begins with `word` to `targets`.
    fn scatter(&mut self, targets: &[u32], word: u64) -> Result<ScatteringId> {
        self.payload[..8].copy_from_slice(&word.to_le_bytes());
        let mut messages = [Message { to: ProcessId(0), payload: &self.payload }; 64];
        let messages = messages.get_mut(..targets.len()).context("at most 64 processes")?;
        for (message, to) in messages.iter_mut().zip(targets) {
            message.to = ProcessId(*to);
        }
        self.pipe.scatter(messages).context("scattering")
    }

    fn receive(&mut self) -> Result<()> {
        let Self { job, pipe, delivery_log, in_flight, .. } = self;
        pipe.receive(|event| match event {
            Event::Message(message) => {
                let word =
                    message.payload.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                let from = message.from.0;
                *in_flight -= u32::from(from == job.process && word < END);
                delivery_log.deliver((message.timestamp.as_ns(), from, message.index), word);
            }
            Event::SendFailed(failed) => {
                match failed.outcome {
                    SendOutcome::Lost => delivery_log.outcome.lost += 1,
                    SendOutcome::Unknown => delivery_log.outcome.unknown += 1,
                }
                let is_end = delivery_log.ends.contains(&failed.scattering);
                if failed.to.0 == job.process && !is_end {
                    *in_flight -= 1;
                }
                if is_end && failed.outcome == SendOutcome::Lost {
                    delivery_log.undelivered_ends.push(failed.to.0);
                }
            }
            _ => {}
        });
        match delivery_log.error.take() {
            Some(error) => bail!("process {}: {error}", job.process),
            None => Ok(()),
        }
    }
}
