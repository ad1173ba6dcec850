//! Scenario of a demo: all processes join, send, one is killed, all drain and exit.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_verify_logs::Checker;

use super::Arguments;
use super::display::ProgressDisplay;
use super::fabric::Fabric;
use super::messages::{Sample, WorkerCommand, WorkerReport, WorkerSpec};
use super::process_state::{Phase, ProcessState};
use crate::child_process::ChildProcess;
use crate::interrupt;
use crate::progress::Output;

/// Timeout of joining: a busy machine starts processes slowly.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for all messages to have an outcome.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a note says what the demo waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// Time for a process to exit before it is killed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of refreshing the display and comparing logs.
const TICK: Duration = Duration::from_millis(500);
/// Interval at which Ctrl-C is noticed.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(50);

/// What a process reports; `None` when it has exited.
type Report = (usize, Option<WorkerReport>);

/// The kill of a process.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub process: usize,
    /// Time of the kill, in ns of the parent's clock and of the timestamps' clock.
    pub at_ns: u64,
    pub timestamp_ns: u64,
}

/// A demo while it runs, and what it has found.
pub struct Scenario<'a> {
    pub arguments: &'a Arguments,
    stop: &'a AtomicBool,
    clock: SystemClock,
    workers: Vec<ChildProcess>,
    reports: Receiver<Report>,
    fabric: Fabric,
    display: ProgressDisplay,
    pub states: Vec<ProcessState>,
    /// Of best effort, and of the reliable service if it is used.
    pub checkers: Vec<Checker>,
    pub kill: Option<Kill>,
    /// Time for which the processes sent, and after that until all messages had an outcome.
    pub sent_for: Duration,
    pub drained_in: Duration,
    /// Violations found outside of the logs.
    pub problems: Vec<String>,
}

impl<'a> Scenario<'a> {
    /// Starts the fabric and the worker processes.
    pub fn start(arguments: &'a Arguments, output: Output, stop: &'a AtomicBool) -> Result<Self> {
        let clock = SystemClock::calibrated();
        let fabric = Fabric::start(arguments)?;
        let processes = arguments.processes as usize;
        // A window grows with the number of processes, as the description of its senders does.
        let window_ns = 1_000_000 * u64::from(arguments.processes);
        let (reports_tx, reports) = channel();
        let mut workers = Vec::new();
        for process in 0..arguments.processes {
            let spec = WorkerSpec {
                process,
                processes: arguments.processes,
                fabric: fabric.address.clone(),
                payload_len: arguments.size as usize,
                rate_per_s: arguments.rate,
                outstanding_max: arguments.outstanding,
                is_reliable: arguments.reliable,
                window_ns,
                calibration: clock.calibration().to_words(),
                inject_fault: arguments.inject_fault.filter(|_| process == 0),
            };
            workers.push(start_worker(&spec, reports_tx.clone())?);
        }
        let checker = |service| Checker::new(service == 1, window_ns, processes);
        Ok(Self {
            arguments,
            stop,
            clock,
            workers,
            reports,
            fabric,
            display: ProgressDisplay::new(output, Duration::from_secs_f64(arguments.seconds)),
            states: (0..processes).map(|_| ProcessState::default()).collect(),
            checkers: (0..=usize::from(arguments.reliable)).map(checker).collect(),
            kill: None,
            sent_for: Duration::ZERO,
            drained_in: Duration::ZERO,
            problems: Vec::new(),
        })
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    /// A process fails, or the user interrupts ([`interrupt::Interrupted`]).
    pub fn run(&mut self) -> Result<()> {
        if let Some(unfinished) = self.wait(JOIN_TIMEOUT, Phase::Joined)? {
            bail!("process {unfinished} did not join within {JOIN_TIMEOUT:?}");
        }
        if self.arguments.reliable {
            // The workers come first, so that the segment has the size that they need.
            self.fabric.start_controller(self.arguments.processes)?;
        }
        self.display.table.print(&self.arguments.title());
        let began = Instant::now();
        self.send_all(WorkerCommand::Start);
        let length = Duration::from_secs_f64(self.arguments.seconds);
        if !self.arguments.no_kill {
            self.run_until(began, length / 2)?;
            self.kill_one()?;
        }
        self.run_until(began, length)?;
        self.sent_for = began.elapsed();
        let now_ns = self.clock.read().mono.as_ns();
        self.checkers.iter_mut().for_each(|checker| checker.on_stopped(now_ns));
        self.send_all(WorkerCommand::Stop);
        self.tick(length);
        self.display.table.print("         all processes stop sending; messages in flight arrive");
        self.wait_for_outcomes()?;
        self.drained_in = began.elapsed() - self.sent_for;
        self.send_all(WorkerCommand::Quit);
        self.wait(DRAIN_TIMEOUT, Phase::Left)?;
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        for child in self.workers.iter_mut().chain(self.fabric.children()) {
            let name = child.name.clone();
            if child.wait_exit(deadline).is_none() {
                self.problems.push(format!("{name} did not exit and was killed"));
            }
        }
        Ok(())
    }

    /// Returns the processes that were not killed.
    pub fn survivors(&self) -> impl Iterator<Item = (usize, &ProcessState)> + Clone {
        self.states.iter().enumerate().filter(|(_, state)| state.phase != Phase::Dead)
    }

    fn kill_one(&mut self) -> Result<()> {
        let process = self.states.len() - 1;
        let now = self.clock.read();
        let pid = self.workers[process].kill()?;
        self.states[process].phase = Phase::Dead;
        let (timestamp_ns, at_ns) = (now.sync.as_ns(), now.mono.as_ns());
        for checker in &mut self.checkers {
            checker.on_killed(process, timestamp_ns, at_ns);
        }
        self.kill = Some(Kill { process, at_ns, timestamp_ns });
        if !self.arguments.reliable {
            // With reliable scatterings the controller notifies the survivors.
            self.send_all(WorkerCommand::Gone(process as u32));
        }
        let text = format!("         process {process} (pid {pid}) killed; the others continue");
        self.display.table.print(&text);
        Ok(())
    }

    fn send_all(&mut self, command: WorkerCommand) {
        for (worker, state) in self.workers.iter_mut().zip(&self.states) {
            if state.phase != Phase::Dead {
                worker.write_line(&command);
            }
        }
    }

    /// Handles reports until all processes are in `phase`. Returns those that are not in time.
    fn wait(&mut self, timeout: Duration, phase: Phase) -> Result<Option<String>> {
        let deadline = Instant::now() + timeout;
        loop {
            let states = self.states.iter().enumerate();
            let unfinished = states.filter(|(_, state)| state.phase < phase);
            let unfinished: Vec<_> = unfinished.map(|(process, _)| process.to_string()).collect();
            if unfinished.is_empty() {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Ok(Some(unfinished.join(", ")));
            }
            self.handle_next_report(deadline)?;
        }
    }

    /// Waits until all messages have an outcome, and notifies the user if that takes long.
    fn wait_for_outcomes(&mut self) -> Result<()> {
        let Some(unfinished) = self.wait(NOTICE_AFTER, Phase::Drained)? else { return Ok(()) };
        let text = format!("process {unfinished} is still waiting for the outcome of its messages");
        self.display.table.print(&format!("         {text}"));
        if let Some(unfinished) = self.wait(DRAIN_TIMEOUT, Phase::Drained)? {
            let text = format!("process {unfinished} did not learn the outcome of its messages");
            self.problems.push(text);
        }
        Ok(())
    }

    /// Handles reports and refreshes the display until `length` after `began`.
    fn run_until(&mut self, began: Instant, length: Duration) -> Result<()> {
        let (until, mut tick_at) = (began + length, Instant::now() + TICK);
        while Instant::now() < until {
            if Instant::now() >= tick_at {
                tick_at += TICK;
                self.tick(began.elapsed());
            }
            self.handle_next_report(until.min(tick_at))?;
        }
        Ok(())
    }

    fn tick(&mut self, elapsed: Duration) {
        self.checkers.iter_mut().for_each(Checker::advance);
        self.display.tick(&self.states, self.checkers[0].verdict(), elapsed);
    }

    /// Handles a report, if one arrives before `until` and the user does not interrupt.
    fn handle_next_report(&mut self, until: Instant) -> Result<()> {
        interrupt::check(self.stop)?;
        let timeout = until.saturating_duration_since(Instant::now()).min(INTERRUPT_INTERVAL);
        let (process, report) = match self.reports.recv_timeout(timeout) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => bail!("all worker processes have exited"),
        };
        let state = &mut self.states[process];
        // What a process reported before it was killed may arrive afterwards.
        match report {
            Some(WorkerReport::Ready) => state.phase = state.phase.max(Phase::Joined),
            Some(WorkerReport::Drained) => state.phase = state.phase.max(Phase::Drained),
            Some(WorkerReport::Sample(sample)) => self.on_sample(process, sample),
            Some(WorkerReport::Left(sample, latencies)) => {
                (state.phase, state.latencies) = (state.phase.max(Phase::Left), latencies);
                self.on_sample(process, sample);
            }
            None if state.phase >= Phase::Left => {}
            None => {
                let reason = self.workers[process].failure_reason();
                bail!("process {process} has failed: {reason}");
            }
        }
        Ok(())
    }

    fn on_sample(&mut self, process: usize, mut sample: Sample) {
        for (checker, log) in self.checkers.iter_mut().zip(sample.logs.drain(..)) {
            checker.add(process, log, sample.at_ns);
        }
        self.states[process].sample = sample;
    }
}

/// Starts a worker, whose reports go to `reports`.
fn start_worker(spec: &WorkerSpec, reports: Sender<Report>) -> Result<ChildProcess> {
    let process = spec.process as usize;
    let mut worker = ChildProcess::start(format!("process {process}"), &["demo-worker"])?;
    let lines = worker.lines()?.map_while(Result::ok);
    std::thread::spawn(move || {
        // A line that was cut short by a kill is ignored.
        let parsed = lines.map_while(|line| serde_json::from_str(&line).ok().map(Some));
        // Fails when the demo has ended.
        parsed
            .chain([None])
            .map_while(|report| reports.send((process, report)).ok())
            .for_each(drop);
    });
    worker.write_line(spec);
    Ok(worker)
}
