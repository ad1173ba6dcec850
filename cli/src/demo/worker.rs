//! Worker process of a demo: scatters, receives, logs, and reports to its parent.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use onepipe::{
    EmbeddedPipe, Event, Message, Outcome, ProcessId, Received, SendError, SendFailed, Service,
    Timestamp,
};
use onepipe_transport_clock::{Calibration, Clock, SystemClock, reduce_wakeup_latency};

use super::log::{Entry, Log};
use super::messages::{
    FabricAddress, FinalReport, InjectedFault, Latency, Sample, WorkerCommand, WorkerReport,
    WorkerSpec,
};
use super::pauses::PauseRecorder;
use super::payload::{self, Payload};
use super::reliable::{Reliable, is_reliable};
use super::unsent::Unsent;

/// Number of unanswered probes after which the endpoint gives up a process behind a switch. Only
/// needed without controllers: these detect dead processes, as the kernel does in shared memory.
///
/// A probe takes up to eight round trips, some milliseconds while all processes saturate two cores.
/// A dead process was then probed for about a second; with the default of 128 for 5 to 15 s
/// (measured). Without load it takes 0.11 s.
const PROBES_MAX: u32 = 16;
/// Interval of samples, in ns.
const SAMPLE_INTERVAL_NS: u64 = 100_000_000;
/// A stream without own messages in flight has ended when it was idle for this long, in ns. The
/// parent waits for all streams to end before it stops a worker.
const QUIET_NS: u64 = 200_000_000;
/// Maximum time to wait for the last deliveries.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum sleep of a worker with a rate limit, in ns: messages may arrive meanwhile.
const SLEEP_NS_MAX: u64 = 50_000;
/// An injected fault concerns each message whose number is a multiple of this.
const FAULT_EVERY: u64 = 10_000;

/// Runs a worker. Its parameters are read from standard input.
pub fn run() -> Result<()> {
    let mut first = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut first)
        .context("cannot read the worker specification")?;
    let spec: WorkerSpec =
        serde_json::from_str(&first).context("malformed worker specification")?;
    let commands = read_commands();
    let pipe = join(&spec)?;
    send_report(&WorkerReport::Ready)?;
    let worker = Worker::new(spec, pipe)?;
    reduce_wakeup_latency();
    worker.run(&commands)
}

fn join(spec: &WorkerSpec) -> Result<EmbeddedPipe> {
    let mut builder = EmbeddedPipe::builder().process(spec.process).processes(spec.processes);
    if spec.is_reliable {
        builder = builder.processes(spec.processes + 1).controllers(spec.processes, 1);
    }
    let builder = match &spec.fabric {
        FabricAddress::SharedMemory(name) => builder.fabric(name),
        FabricAddress::Switch(address) if spec.is_reliable => builder.udp(address),
        FabricAddress::Switch(address) => builder.udp(address).tune(|config| {
            config.probes_max = PROBES_MAX;
            config.unknown_after_ns = 0;
        }),
    };
    builder.embedded().with_context(|| format!("process {} cannot join", spec.process))
}

/// Reads commands in a separate thread. The end of the input means that the parent is gone.
fn read_commands() -> Receiver<WorkerCommand> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let command = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(command) = command else { break };
            if sender.send(command).is_err() {
                break;
            }
        }
    });
    receiver
}

fn send_report(report: &WorkerReport) -> Result<()> {
    let mut line = serde_json::to_vec(report).context("cannot write a line of JSON")?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(&line)
        .and_then(|()| stdout.flush())
        .context("cannot write to the parent process")
}

struct Worker {
    spec: WorkerSpec,
    pipe: EmbeddedPipe,
    clock: SystemClock,
    /// Destinations of scatterings.
    destinations: Vec<ProcessId>,
    payload: Vec<u8>,
    /// Scatterings submitted, of both services.
    submitted: u64,
    started_ns: u64,
    stream: Stream,
    /// Time of the last sample, in ns of the parent's clock.
    sampled_ns: u64,
}

/// State of the received stream.
struct Stream {
    process: u32,
    log: Log,
    clock: SystemClock,
    delivered: u64,
    /// Own scatterings that have come back.
    returned: u64,
    lost: u64,
    unknown: u64,
    /// Failed messages of scatterings that were not sent when the failure was reported.
    unsent: Unsent,
    /// Highest timestamp delivered, in ns.
    seen_ns: u64,
    /// Pauses between deliveries of all messages, and of own ones.
    pauses: PauseRecorder,
    own_pauses: PauseRecorder,
    /// Latencies of all earlier samples, and those since the last sample.
    latencies: Histogram<u64>,
    recent: Histogram<u64>,
    inject_fault: Option<InjectedFault>,
    /// Delivery that an injected fault withholds from the log until the next one.
    withheld: Option<Entry>,
    reliable: Option<Reliable>,
    /// Failed processes, to be removed from the destinations.
    failed: Vec<ProcessId>,
    /// Whether this process is done. Others may leave from now on, which counts as a failure.
    has_drained: bool,
    is_excluded: bool,
}

impl Worker {
    fn new(spec: WorkerSpec, pipe: EmbeddedPipe) -> Result<Self> {
        let calibration = Calibration::from_words(spec.calibration)
            .context("the clock of the parent process is not available here")?;
        let mut clock = SystemClock::with_calibration(calibration);
        let now_ns = clock.read().mono.as_ns();
        let histogram = || Histogram::new(2).context("cannot make a histogram");
        let stream = Stream {
            process: spec.process,
            log: Log::new(spec.window_ns, spec.processes as usize),
            clock: clock.clone(),
            delivered: 0,
            returned: 0,
            lost: 0,
            unknown: 0,
            unsent: Unsent::default(),
            seen_ns: 0,
            pauses: PauseRecorder::new(now_ns),
            own_pauses: PauseRecorder::new(now_ns),
            latencies: histogram()?,
            recent: histogram()?,
            inject_fault: spec.inject_fault,
            withheld: None,
            reliable: spec.is_reliable.then(|| {
                let processes = spec.processes as usize;
                Reliable::new(spec.process, processes, spec.window_ns, now_ns)
            }),
            failed: Vec::new(),
            has_drained: false,
            is_excluded: false,
        };
        Ok(Self {
            destinations: (0..spec.processes).map(ProcessId).collect(),
            payload: vec![0; spec.payload_len],
            spec,
            pipe,
            clock,
            submitted: 0,
            started_ns: now_ns,
            stream,
            sampled_ns: now_ns,
        })
    }

    /// Runs until the parent quits.
    ///
    /// Each turn submits first and polls then, so that the poll sends what was submitted. A sample
    /// comes after the poll, which has drained all events: everything below the barrier is logged.
    fn run(mut self, commands: &Receiver<WorkerCommand>) -> Result<()> {
        let mut is_sending = false;
        let mut stopped_ns = None;
        loop {
            match commands.try_recv() {
                Ok(WorkerCommand::Start) => {
                    is_sending = true;
                    self.started_ns = self.clock.read().mono.as_ns();
                    self.stream.pauses = PauseRecorder::new(self.started_ns);
                    self.stream.own_pauses = PauseRecorder::new(self.started_ns);
                    if let Some(reliable) = &mut self.stream.reliable {
                        reliable.recorder = PauseRecorder::new(self.started_ns);
                    }
                }
                Ok(WorkerCommand::Gone(process)) => self.destinations.retain(|to| to.0 != process),
                Ok(WorkerCommand::Stop) => {
                    is_sending = false;
                    stopped_ns = Some(self.clock.read().mono.as_ns());
                }
                Ok(WorkerCommand::Quit) => return self.finish(),
                Err(TryRecvError::Empty) => {}
                // The report has no reader, and the switch ends as well: what is in flight has no
                // outcome for which to wait.
                Err(TryRecvError::Disconnected) => bail!("the parent process has ended"),
            }
            let now_ns = self.clock.read().mono.as_ns();
            let sent = if is_sending { self.submit(now_ns)? } else { 0 };
            let stream = &mut self.stream;
            let progress = self.pipe.poll(|event| stream.on_event(event));
            ensure!(!stream.is_excluded, "this process was declared failed while it was running");
            for failed in stream.failed.drain(..) {
                self.destinations.retain(|to| *to != failed);
            }
            if now_ns - self.sampled_ns >= SAMPLE_INTERVAL_NS {
                let sample = self.sample(now_ns);
                send_report(&WorkerReport::Sample(sample))?;
            }
            if let Some(since_ns) = stopped_ns {
                let reliable = self.stream.reliable.as_ref();
                let reliable_ns = reliable.map_or(0, |reliable| reliable.recorder.last_ns());
                let last_ns = self.stream.pauses.last_ns().max(reliable_ns);
                let quiet_ns = now_ns.saturating_sub(last_ns.max(since_ns));
                if quiet_ns >= QUIET_NS && self.is_resolved() {
                    stopped_ns = None;
                    self.stream.has_drained = true;
                    send_report(&WorkerReport::Drained)?;
                }
            }
            if sent == 0 && progress.is_idle() {
                self.rest(progress, is_sending, now_ns);
            }
        }
    }

    /// Whether nothing is in flight at this process: all outcomes are known, everything received is
    /// delivered, and the window of the last delivery is closed. The barrier of the last process in
    /// shared memory rises only while it sends, and its windows are compared with none.
    fn is_resolved(&self) -> bool {
        let closed_ns = self.stream.seen_ns + self.spec.window_ns;
        let is_beyond =
            |barrier: Option<Timestamp>| barrier.is_some_and(|at| at.as_ns() >= closed_ns);
        self.pipe.is_drained()
            && self.pipe.pending() == 0
            && (self.stream.delivered == 0
                || self.destinations.len() == 1
                || (is_beyond(self.pipe.barrier())
                    && (!self.spec.is_reliable || is_beyond(self.pipe.commit_barrier()))))
    }

    /// Submits the scatterings that are due. Returns their number.
    fn submit(&mut self, now_ns: u64) -> Result<u64> {
        let free = self.spec.outstanding_max.saturating_sub(self.submitted - self.stream.returned);
        let due = match self.spec.rate_per_s {
            None => free,
            Some(rate) => {
                let due_by_now = (now_ns - self.started_ns) as f64 / 1e9 * rate;
                free.min((due_by_now as u64).saturating_sub(self.submitted))
            }
        };
        // With both services, scatterings alternate: those with odd numbers are reliable. Each
        // service numbers its scatterings from 0.
        for done in 0..due {
            let reliable = self.stream.reliable.as_mut().filter(|_| self.submitted % 2 == 1);
            let reliable_before = reliable.as_ref().map(|reliable| reliable.submitted);
            let best_effort_before = match self.spec.is_reliable {
                true => self.submitted.div_ceil(2),
                false => self.submitted,
            };
            let sequence = reliable_before.unwrap_or(best_effort_before);
            let header = Payload { sequence, submitted_ns: now_ns, seen_ns: self.stream.seen_ns };
            payload::write(self.stream.process, header, &mut self.payload);
            let payload = &self.payload[..];
            let mut messages = [Message { to: ProcessId(0), payload }; super::PROCESSES_MAX];
            for (message, to) in messages.iter_mut().zip(&self.destinations) {
                message.to = *to;
            }
            let messages = &messages[..self.destinations.len()];
            let scattered = match &reliable {
                Some(_) => self.pipe.scatter_reliably(messages),
                None => self.pipe.scatter(messages),
            };
            match scattered {
                Ok(id) => ensure!(id.0 == sequence, "scatterings are numbered from 0"),
                Err(SendError::BufferFull { .. }) => return Ok(done),
                Err(error) => bail!(error),
            }
            self.submitted += 1;
            if let Some(reliable) = reliable {
                reliable.submitted += 1;
            }
        }
        Ok(due)
    }

    fn rest(&mut self, progress: onepipe::Progress, is_sending: bool, now_ns: u64) {
        let can_send = self.submitted - self.stream.returned < self.spec.outstanding_max;
        match self.spec.rate_per_s {
            // The next scattering is due by time, for which the endpoint has no timer.
            Some(rate) if is_sending && can_send => {
                let due_ns = self.started_ns as f64 + (self.submitted + 1) as f64 / rate * 1e9;
                let wait_ns = (due_ns as u64).saturating_sub(now_ns).min(SLEEP_NS_MAX);
                std::thread::sleep(Duration::from_nanos(wait_ns));
            }
            _ => self.pipe.rest(progress),
        }
    }

    fn sample(&mut self, now_ns: u64) -> Sample {
        self.sampled_ns = now_ns;
        let fabric_now = self.pipe.now();
        let barrier = self.pipe.barrier();
        let commit_ns = self.pipe.commit_barrier().map(|commit| commit.as_ns());
        let stream = &mut self.stream;
        if let Some(barrier) = barrier {
            // Everything below was delivered: the preceding poll drained all events.
            stream.log.on_barrier(barrier.as_ns());
        }
        let (windows, failures) = stream.log.take();
        let recent = &mut stream.recent;
        let latency = Latency {
            p50_ns: recent.value_at_quantile(0.5),
            p99_ns: recent.value_at_quantile(0.99),
            max_ns: recent.max(),
        };
        let is_added = stream.latencies.add(&*recent).is_ok();
        debug_assert!(is_added, "a histogram that does not grow");
        recent.reset();
        Sample {
            at_ns: now_ns,
            delivered: stream.delivered,
            submitted: self.submitted,
            lost: stream.lost,
            unknown: stream.unknown,
            barrier_lag_ns: barrier.map_or(0, |barrier| fabric_now.since_ns(barrier)),
            latency,
            timestamp_ns: stream.seen_ns,
            pauses: stream.pauses.take(),
            own_pauses: stream.own_pauses.take(),
            faults: stream.log.faults,
            windows,
            failures,
            closed_below: stream.log.closed_below(),
            reliable: stream.reliable.as_mut().map(|reliable| reliable.sample(commit_ns)),
        }
    }

    /// Delivers what others had sent when this process was done itself, sends the final report, and
    /// leaves.
    fn finish(mut self) -> Result<()> {
        let begin = Instant::now();
        while !self.is_resolved() && begin.elapsed() < RESOLVE_TIMEOUT {
            let stream = &mut self.stream;
            let progress = self.pipe.poll(|event| stream.on_event(event));
            self.pipe.rest(progress);
        }
        let now_ns = self.clock.read().mono.as_ns();
        let sample = self.sample(now_ns);
        let recorded = self.stream.latencies.iter_recorded();
        let latencies =
            recorded.map(|value| (value.value_iterated_to(), value.count_since_last_iteration()));
        let final_report = FinalReport { sample, latencies: latencies.collect() };
        let process = self.stream.process;
        self.pipe.leave(|_| {}).with_context(|| format!("process {process} cannot leave"))?;
        send_report(&WorkerReport::FinalReport(final_report))
    }
}

impl Stream {
    #[inline]
    fn on_event(&mut self, event: Event<&[u8]>) {
        match event {
            Event::Message(message) => self.on_message(&message),
            Event::SendFailed(failed) => self.on_failed(&failed),
            Event::ProcessFailed(_) if self.has_drained => {}
            Event::ProcessFailed(failed) => {
                let now_ns = self.clock.read().mono.as_ns();
                self.failed.push(failed.process);
                if let Some(reliable) = &mut self.reliable {
                    reliable.on_process_failed(now_ns, &failed);
                }
            }
            Event::Excluded { .. } => self.is_excluded = true,
            // Lost links show in the deliveries and in the counters.
            _ => {}
        }
    }

    #[inline]
    fn on_message(&mut self, message: &Received<&[u8]>) {
        let now_ns = self.clock.read().mono.as_ns();
        let (timestamp_ns, from) = (message.timestamp.as_ns(), message.from.0);
        self.delivered += 1;
        self.seen_ns = self.seen_ns.max(timestamp_ns);
        let is_reliable = is_reliable(message);
        if !is_reliable {
            self.pauses.on_delivered(now_ns);
        }
        let Some(payload) = payload::read(from, message.payload) else {
            self.log.faults.payload += 1;
            return;
        };
        if from == self.process {
            self.returned += 1;
            if !is_reliable {
                self.own_pauses.on_delivered(now_ns);
            }
        }
        let is_recorded = self.recent.record(now_ns.saturating_sub(payload.submitted_ns)).is_ok();
        debug_assert!(is_recorded, "a histogram that does not grow");
        let Payload { sequence, seen_ns, .. } = payload;
        let entry = Entry { timestamp_ns, from, index: message.index, sequence, seen_ns };
        if let Some(reliable) = self.reliable.as_mut().filter(|_| is_reliable) {
            return reliable.on_delivered(now_ns, entry);
        }
        if from == self.process {
            self.unsent.on_returned(&mut self.log, from, sequence, timestamp_ns);
        }
        match self.inject_fault {
            None => self.log.on_delivered(entry),
            Some(fault) => self.log_with_fault(fault, entry),
        }
    }

    fn on_failed(&mut self, failed: &SendFailed) {
        if failed.service == Service::Reliable {
            let reliable = self.reliable.as_mut();
            let is_own = reliable.is_some_and(|reliable| reliable.on_recalled(failed));
            self.returned += u64::from(is_own);
            return;
        }
        let is_lost = failed.outcome == Outcome::Lost;
        self.lost += u64::from(is_lost);
        self.unknown += u64::from(!is_lost);
        let (from, to, sequence) = (self.process, failed.to.0, failed.scattering.0);
        match failed.timestamp {
            Some(at) => self.log.on_failed(from, to, at.as_ns(), sequence, is_lost),
            // The rest of its scattering may still be sent.
            None => self.unsent.on_failed(from, to, sequence),
        }
    }

    /// Logs with an injected fault at every [`FAULT_EVERY`]th message.
    fn log_with_fault(&mut self, fault: InjectedFault, mut entry: Entry) {
        if let Some(mut withheld) = self.withheld.take() {
            if fault == InjectedFault::Swap {
                std::mem::swap(&mut withheld.sequence, &mut entry.sequence);
                self.log.on_delivered(withheld);
                self.log.on_delivered(entry);
            } else {
                self.log.on_delivered(entry);
                self.log.on_delivered(withheld);
            }
        } else if !self.delivered.is_multiple_of(FAULT_EVERY) {
            self.log.on_delivered(entry);
        } else if fault != InjectedFault::Loss {
            self.withheld = Some(entry);
        }
    }
}
