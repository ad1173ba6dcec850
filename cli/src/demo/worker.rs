//! Worker process of a demo: joins the fabric, scatters to all, logs what it receives, and reports
//! to its parent.

use std::io::{BufRead, Write, stdin, stdout};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use onepipe::{
    EmbeddedPipe, Event, Message, Outcome, ProcessFailed, ProcessId, Progress, Received, SendError,
    SendFailed, Service, Timestamp,
};
use onepipe_transport_clock::{Calibration, Clock, SystemClock, reduce_wakeup_latency};
use onepipe_verify_logs::{Counts, Entry, Failure, Log, Payload};

use super::PROCESSES_MAX;
use super::messages::{FabricAddress, Sample, WorkerCommand, WorkerReport, WorkerSpec};

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
/// Longer latencies are recorded as this value, in ns.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Runs a worker. Its parameters are read from standard input.
pub fn run() -> Result<()> {
    let mut first = String::new();
    stdin().lock().read_line(&mut first).context("cannot read the worker specification")?;
    let spec: WorkerSpec =
        serde_json::from_str(&first).context("malformed worker specification")?;
    let commands = read_commands();
    let pipe = join(&spec)?;
    send_report(&WorkerReport::Ready)?;
    reduce_wakeup_latency();
    Worker::new(spec, pipe)?.run(&commands)
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
        let lines = stdin().lock().lines().map_while(Result::ok);
        let commands = lines.map_while(|line| serde_json::from_str(&line).ok());
        commands.map_while(|command| sender.send(command).ok()).for_each(drop);
    });
    receiver
}

fn send_report(report: &WorkerReport) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut stdout = stdout().lock();
    stdout.write_all(&line).and_then(|()| stdout.flush()).context("cannot write to the parent")
}

struct Worker {
    spec: WorkerSpec,
    pipe: EmbeddedPipe,
    /// Destinations of scatterings.
    destinations: Vec<ProcessId>,
    payload: Vec<u8>,
    started_ns: u64,
    /// Deliveries at the last sample.
    reported: u64,
    history: History,
}

/// What happened at this process so far.
struct History {
    clock: SystemClock,
    /// Logs of best effort and, if it is used, of the reliable service. Each service numbers its
    /// scatterings from 0, and has an order of its own.
    logs: Vec<Log>,
    /// The last sample, with the counters of now.
    sample: Sample,
    latencies: Histogram<u64>,
    /// Processes that have failed.
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
        let log = |_| Log::new(spec.process, spec.processes as usize, spec.window_ns, now_ns);
        let mut logs: Vec<Log> = (0..=usize::from(spec.is_reliable)).map(log).collect();
        if let Some(fault) = spec.inject_fault {
            logs[0].inject(fault);
        }
        let history = History {
            clock,
            logs,
            sample: Sample { at_ns: now_ns, ..Sample::default() },
            latencies: Histogram::new_with_max(LATENCY_NS_MAX, 2)?,
            failed: Vec::new(),
            has_drained: false,
            is_excluded: false,
        };
        let destinations = (0..spec.processes).map(ProcessId).collect();
        let payload = vec![0; spec.payload_len];
        Ok(Self { spec, pipe, destinations, payload, started_ns: now_ns, reported: 0, history })
    }

    /// Runs until the parent quits.
    ///
    /// Each turn submits first and polls then, so that the poll sends what was submitted. A sample
    /// comes after the poll, which has drained all events: everything below the barrier is logged.
    fn run(mut self, commands: &Receiver<WorkerCommand>) -> Result<()> {
        let (mut is_sending, mut stopped_ns) = (false, None);
        loop {
            let now_ns = self.history.now_ns();
            match commands.try_recv() {
                Ok(WorkerCommand::Start) => {
                    (is_sending, self.started_ns) = (true, now_ns);
                    self.history.logs.iter_mut().for_each(|log| log.start_pauses(now_ns));
                }
                Ok(WorkerCommand::Gone(process)) => self.destinations.retain(|to| to.0 != process),
                Ok(WorkerCommand::Stop) => (is_sending, stopped_ns) = (false, Some(now_ns)),
                Ok(WorkerCommand::Quit) => return self.finish(),
                Err(TryRecvError::Empty) => {}
                // The report has no reader, and the switch ends as well: what is in flight has no
                // outcome for which to wait.
                Err(TryRecvError::Disconnected) => bail!("the parent process has ended"),
            }
            let sent = if is_sending { self.submit(now_ns)? } else { 0 };
            let progress = self.poll();
            let History { sample, failed, is_excluded, .. } = &self.history;
            ensure!(!is_excluded, "this process was declared failed while it was running");
            self.destinations.retain(|to| !failed.contains(to));
            if now_ns - sample.at_ns >= SAMPLE_INTERVAL_NS {
                let sample = self.sample(now_ns);
                send_report(&WorkerReport::Sample(sample))?;
            }
            if let Some(since_ns) = stopped_ns {
                let last_ns = self.history.logs.iter().map(Log::delivered_ns).max().unwrap_or(0);
                if now_ns.saturating_sub(last_ns.max(since_ns)) >= QUIET_NS && self.is_resolved() {
                    stopped_ns = None;
                    self.history.has_drained = true;
                    send_report(&WorkerReport::Drained)?;
                }
            }
            if sent == 0 && progress.is_idle() {
                self.rest(progress, is_sending, now_ns);
            }
        }
    }

    fn poll(&mut self) -> Progress {
        let history = &mut self.history;
        self.pipe.poll(|event| history.on_event(event))
    }

    /// Whether nothing is in flight at this process: all outcomes are known, everything received is
    /// delivered, and the window of the last delivery is closed. The barrier of the last process in
    /// shared memory rises only while it sends, and its windows are compared with none.
    fn is_resolved(&self) -> bool {
        let (sample, window_ns) = (&self.history.sample, self.spec.window_ns);
        let is_beyond = |barrier: Option<Timestamp>| {
            barrier.is_some_and(|at| at.as_ns() >= sample.seen_ns + window_ns)
        };
        let is_closed = is_beyond(self.pipe.barrier())
            && (!self.spec.is_reliable || is_beyond(self.pipe.commit_barrier()));
        let has_peers = sample.delivered > 0 && self.destinations.len() > 1;
        self.pipe.is_drained() && self.pipe.pending() == 0 && (is_closed || !has_peers)
    }

    /// Submits the scatterings that are due. Returns their number.
    fn submit(&mut self, now_ns: u64) -> Result<u64> {
        let Self { spec, pipe, destinations, payload, started_ns, history, .. } = self;
        let submitted = history.submitted();
        let free = spec.outstanding_max.saturating_sub(history.in_flight());
        let due = spec.rate_per_s.map_or(free, |rate| {
            let due_by_now = ((now_ns - *started_ns) as f64 / 1e9 * rate) as u64;
            free.min(due_by_now.saturating_sub(submitted))
        });
        for done in 0..due {
            // With both services, scatterings alternate.
            let service = (submitted + done) as usize % history.logs.len();
            let log = &mut history.logs[service];
            let sequence = log.counts().submitted;
            let seen_ns = history.sample.seen_ns;
            let header = Payload { sequence, submitted_ns: now_ns, seen_ns };
            header.write(spec.process, payload);
            let mut messages = [Message { to: ProcessId(0), payload: &payload[..] }; PROCESSES_MAX];
            for (message, to) in messages.iter_mut().zip(&*destinations) {
                message.to = *to;
            }
            let messages = &messages[..destinations.len()];
            let scattered = match service {
                0 => pipe.scatter(messages),
                _ => pipe.scatter_reliably(messages),
            };
            match scattered {
                Ok(id) => ensure!(id.0 == sequence, "scatterings are numbered from 0"),
                Err(SendError::BufferFull { .. }) => return Ok(done),
                Err(error) => bail!(error),
            }
            log.on_submitted();
        }
        Ok(due)
    }

    fn rest(&mut self, progress: Progress, is_sending: bool, now_ns: u64) {
        let can_send = is_sending && self.history.in_flight() < self.spec.outstanding_max;
        let next = (self.history.submitted() + 1) as f64;
        match self.spec.rate_per_s.filter(|_| can_send) {
            // The next scattering is due by time, for which the endpoint has no timer.
            Some(rate) => {
                let due_ns = self.started_ns + (next / rate * 1e9) as u64;
                let wait_ns = due_ns.saturating_sub(now_ns).min(SLEEP_NS_MAX);
                std::thread::sleep(Duration::from_nanos(wait_ns));
            }
            None => self.pipe.rest(progress),
        }
    }

    fn sample(&mut self, now_ns: u64) -> Sample {
        let (fabric_now, barrier) = (self.pipe.now(), self.pipe.barrier());
        let barriers = [barrier, self.pipe.commit_barrier()];
        let submitted = self.history.submitted();
        let History { logs, sample, latencies, .. } = &mut self.history;
        let delivered = (sample.delivered - self.reported) as f64;
        sample.rate_per_s = delivered / (now_ns - sample.at_ns).max(1) as f64 * 1e9;
        self.reported = sample.delivered;
        (sample.at_ns, sample.submitted) = (now_ns, submitted);
        sample.best_effort = logs[0].counts();
        sample.barrier_lag_ns = barrier.map_or(0, |barrier| fabric_now.since_ns(barrier));
        sample.latency_ns = super::quantiles(latencies);
        let logs = logs.iter_mut().zip(barriers);
        let logs = logs.map(|(log, barrier)| log.take(barrier.map(|barrier| barrier.as_ns())));
        Sample { logs: logs.collect(), ..sample.clone() }
    }

    /// Delivers what others had sent when this process was done itself, leaves, and sends the last
    /// report.
    fn finish(mut self) -> Result<()> {
        let begin = Instant::now();
        while !self.is_resolved() && begin.elapsed() < RESOLVE_TIMEOUT {
            let progress = self.poll();
            self.pipe.rest(progress);
        }
        let now_ns = self.history.now_ns();
        let sample = self.sample(now_ns);
        let recorded = self.history.latencies.iter_recorded();
        let latencies =
            recorded.map(|value| (value.value_iterated_to(), value.count_since_last_iteration()));
        let report = WorkerReport::Left(sample, latencies.collect());
        let process = self.spec.process;
        self.pipe.leave(|_| {}).with_context(|| format!("process {process} cannot leave"))?;
        send_report(&report)
    }
}

impl History {
    /// Returns the number of own scatterings.
    fn submitted(&self) -> u64 {
        self.logs.iter().map(|log| log.counts().submitted).sum()
    }

    /// Returns the number of own scatterings without an outcome.
    fn in_flight(&self) -> u64 {
        let resolved = |Counts { returned, failed, .. }| returned + failed;
        let resolved: u64 = self.logs.iter().map(|log| resolved(log.counts())).sum();
        self.submitted().saturating_sub(resolved)
    }

    fn now_ns(&mut self) -> u64 {
        self.clock.read().mono.as_ns()
    }

    #[inline]
    fn on_event(&mut self, event: Event<&[u8]>) {
        match event {
            Event::Message(message) => self.on_message(&message),
            Event::SendFailed(failed) => self.on_send_failed(&failed),
            Event::ProcessFailed(failed) if !self.has_drained => self.on_process_failed(&failed),
            Event::Excluded { .. } => self.is_excluded = true,
            // Lost links show in the deliveries and in the counters.
            _ => {}
        }
    }

    #[inline]
    fn on_message(&mut self, message: &Received<&[u8]>) {
        let (now_ns, timestamp_ns, from) =
            (self.now_ns(), message.timestamp.as_ns(), message.from.0);
        let service = usize::from(message.service == Service::Reliable);
        let sample = &mut self.sample;
        sample.delivered += 1;
        sample.seen_ns = sample.seen_ns.max(timestamp_ns);
        let Some(payload) = Payload::read(from, message.payload) else {
            return self.logs[service].on_corrupted();
        };
        let Payload { sequence, submitted_ns, seen_ns } = payload;
        self.latencies.saturating_record(now_ns.saturating_sub(submitted_ns));
        let entry = Entry { timestamp_ns, from, index: message.index, sequence, seen_ns };
        self.logs[service].on_delivered(now_ns, entry);
    }

    fn on_send_failed(&mut self, failed: &SendFailed) {
        match (failed.service, &mut self.logs[..]) {
            (Service::Reliable, [_, reliable]) => reliable.on_recalled(failed.to.0),
            (_, logs) => {
                let timestamp_ns = failed.timestamp.map(|at| at.as_ns());
                let is_lost = failed.outcome == Outcome::Lost;
                logs[0].on_failed(failed.to.0, timestamp_ns, failed.scattering.0, is_lost);
            }
        }
    }

    fn on_process_failed(&mut self, failed: &ProcessFailed) {
        self.failed.push(failed.process);
        let (process, failed_ns) = (failed.process.0, failed.at.as_ns());
        let notified_ns = self.now_ns();
        // Best effort promises nothing about it.
        if let [_, reliable] = &mut self.logs[..] {
            reliable.on_process_failed(Failure { process, failed_ns, notified_ns });
        }
    }
}
