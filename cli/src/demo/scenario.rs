//! Scenario of a demo: all processes join, send, one is killed, all drain and exit.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use onepipe_transport_clock::{Clock, SystemClock};

use super::atomicity::AtomicityChecker;
use super::check::Checker;
use super::children::{ChildEvent, Children};
use super::display::ProgressDisplay;
use super::log::StreamFaults;
use super::messages::{FabricAddress, FinalReport, Sample, WorkerCommand, WorkerReport};
use super::process_state::ProcessState;
use super::summary::{Kill, ProcessSummary, Summary};
use super::{Arguments, window_ns};

/// Timeout of joining: a busy machine starts processes slowly.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for all messages to have an outcome.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a note says what the demo waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// Interval of refreshing the display and comparing logs.
const TICK: Duration = Duration::from_millis(500);

pub struct Scenario<'a> {
    arguments: &'a Arguments,
    fabric: FabricAddress,
    clock: SystemClock,
    children: Children,
    events: Receiver<ChildEvent>,
    display: ProgressDisplay,
    states: Vec<ProcessState>,
    checker: Checker,
    atomicity: Option<AtomicityChecker>,
    kill: Option<Kill>,
    /// When sending stopped, in ns of this program's clock; `u64::MAX` before.
    stopped_ns: u64,
    /// Violations found outside of the logs.
    problems: Vec<String>,
}

/// Why waiting ended.
enum Wait {
    Done,
    TimedOut,
    Interrupted,
}

impl<'a> Scenario<'a> {
    /// Creates the scenario for processes that have been started.
    pub fn new(
        arguments: &'a Arguments,
        fabric: FabricAddress,
        clock: SystemClock,
        children: Children,
        events: Receiver<ChildEvent>,
        display: ProgressDisplay,
    ) -> Self {
        let processes = arguments.processes as usize;
        Self {
            arguments,
            fabric,
            clock,
            children,
            events,
            display,
            states: (0..processes).map(|_| ProcessState::default()).collect(),
            checker: Checker::new(window_ns(arguments.processes), processes),
            atomicity: arguments.reliable.then(|| AtomicityChecker::new(processes)),
            kill: None,
            stopped_ns: u64::MAX,
            problems: Vec::new(),
        }
    }

    /// Runs the scenario to its end. Returns `None` if the user interrupted it.
    pub fn run(mut self) -> Result<Option<Summary>> {
        match self.wait(JOIN_TIMEOUT, |state| state.has_joined)? {
            Wait::Done => {}
            Wait::Interrupted => return Ok(None),
            Wait::TimedOut => {
                let unfinished = self.list_processes(|state| !state.has_joined);
                bail!("process {unfinished} did not join within {JOIN_TIMEOUT:?}");
            }
        }
        if self.arguments.reliable {
            // The workers come first, so that the segment has the size that they need.
            self.children.start_controller(&self.fabric, self.arguments.processes)?;
        }
        self.display.begin();
        let began = Instant::now();
        self.send_all(WorkerCommand::Start);
        let length = Duration::from_secs_f64(self.arguments.seconds);
        if !self.arguments.no_kill {
            if let Wait::Interrupted = self.wait_until(began, began + length / 2, length)? {
                return Ok(None);
            }
            self.kill_one()?;
        }
        if let Wait::Interrupted = self.wait_until(began, began + length, length)? {
            return Ok(None);
        }
        let (stopped, sent_for) = (Instant::now(), began.elapsed());
        self.stopped_ns = self.clock.read().mono.as_ns();
        self.send_all(WorkerCommand::Stop);
        self.tick(sent_for, length);
        self.display.note("all processes stop sending; messages in flight arrive");
        if let Wait::Interrupted = self.wait_for_outcomes()? {
            return Ok(None);
        }
        let drained_in = stopped.elapsed();
        self.send_all(WorkerCommand::Quit);
        if let Wait::Interrupted =
            self.wait(DRAIN_TIMEOUT, |state| state.has_left || state.is_dead)?
        {
            return Ok(None);
        }
        let unfinished = self.children.shut_down();
        if !unfinished.is_empty() {
            self.problems.push(format!("{} did not exit and was killed", unfinished.join(", ")));
        }
        self.display.end();
        self.summary(sent_for, drained_in).map(Some)
    }

    fn kill_one(&mut self) -> Result<()> {
        let process = self.states.len() - 1;
        let now = self.clock.read();
        let pid = self.children.kill(process)?;
        self.states[process].is_dead = true;
        self.checker.on_killed(process, now.sync.as_ns());
        self.kill = Some(Kill {
            process,
            at_ns: now.mono.as_ns(),
            timestamp_ns: now.sync.as_ns(),
            recovered_in_ns: 0,
            senders_recovered_in_ns: 0,
            detected_in_ns: None,
        });
        match &mut self.atomicity {
            // With reliable scatterings the controller notifies the survivors.
            Some(atomicity) => atomicity.on_killed(process),
            None => self.send_all(WorkerCommand::Gone(process as u32)),
        }
        self.display.note(&format!("process {process} (pid {pid}) killed; the others continue"));
        Ok(())
    }

    fn send_all(&mut self, command: WorkerCommand) {
        for process in 0..self.states.len() {
            if !self.states[process].is_dead {
                self.children.send_command(process, command);
            }
        }
    }

    /// Formats the ids of the processes that satisfy `is_listed`.
    fn list_processes(&self, is_listed: impl Fn(&ProcessState) -> bool) -> String {
        let processes = self.states.iter().enumerate().filter(|(_, state)| is_listed(state));
        processes.map(|(process, _)| process.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Handles events until all processes satisfy `is_done`.
    fn wait(&mut self, timeout: Duration, is_done: impl Fn(&ProcessState) -> bool) -> Result<Wait> {
        let deadline = Instant::now() + timeout;
        while !self.states.iter().all(&is_done) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Ok(Wait::TimedOut);
            };
            if self.handle_next_event(left)? {
                return Ok(Wait::Interrupted);
            }
        }
        Ok(Wait::Done)
    }

    /// Handles events until all messages have an outcome, and notifies the user if that takes long.
    fn wait_for_outcomes(&mut self) -> Result<Wait> {
        let has_drained = |state: &ProcessState| state.has_drained || state.is_dead;
        match self.wait(NOTICE_AFTER, has_drained)? {
            Wait::TimedOut => {}
            wait => return Ok(wait),
        }
        let unfinished = self.list_processes(|state| !has_drained(state));
        self.display.note(&format!(
            "process {unfinished} is still waiting for the outcome of its messages"
        ));
        match self.wait(DRAIN_TIMEOUT, has_drained)? {
            Wait::TimedOut => {
                let unfinished = self.list_processes(|state| !has_drained(state));
                self.problems.push(format!(
                    "process {unfinished} did not learn the outcome of its messages within \
                     {DRAIN_TIMEOUT:?}"
                ));
                Ok(Wait::Done)
            }
            wait => Ok(wait),
        }
    }

    /// Handles events and refreshes the display until `until`, at which it returns
    /// [`Wait::TimedOut`].
    fn wait_until(&mut self, began: Instant, until: Instant, length: Duration) -> Result<Wait> {
        let mut tick_at = Instant::now() + TICK;
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(Wait::TimedOut);
            }
            if now >= tick_at {
                tick_at = now + TICK;
                self.tick(began.elapsed(), length);
            }
            if self.handle_next_event(until.min(tick_at).saturating_duration_since(now))? {
                return Ok(Wait::Interrupted);
            }
        }
    }

    fn tick(&mut self, elapsed: Duration, length: Duration) {
        for state in &mut self.states {
            let now = (state.last_sample.at_ns, state.last_sample.delivered);
            if let Some(before) = state.previous_tick.replace(now).filter(|before| before.0 < now.0)
            {
                state.rate_per_s = (now.1 - before.1) as f64 / (now.0 - before.0) as f64 * 1e9;
            }
        }
        if let Some(atomicity) = &mut self.atomicity {
            atomicity.advance();
        }
        let verdict = self.checker.advance();
        self.display.tick(&self.states, verdict, elapsed, length);
    }

    /// Handles one event, if one arrives within `timeout`. Returns whether the user interrupted.
    fn handle_next_event(&mut self, timeout: Duration) -> Result<bool> {
        match self.events.recv_timeout(timeout) {
            Ok(ChildEvent::Report(process, report)) => self.on_report(process, *report),
            Ok(ChildEvent::Exited(process)) => {
                let state = &self.states[process];
                if !state.is_dead && !state.has_left {
                    let failure_reason = self.children.failure_reason(process);
                    bail!("process {process} has failed: {failure_reason}");
                }
            }
            Ok(ChildEvent::Interrupted) => return Ok(true),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("all worker processes have exited"),
        }
        Ok(false)
    }

    fn on_report(&mut self, process: usize, report: WorkerReport) {
        let state = &mut self.states[process];
        match report {
            WorkerReport::Ready => state.has_joined = true,
            WorkerReport::Drained => state.has_drained = true,
            WorkerReport::Sample(sample) => self.on_sample(process, sample),
            WorkerReport::FinalReport(FinalReport { sample, latencies }) => {
                state.has_left = true;
                state.latencies = latencies;
                self.on_sample(process, sample);
            }
        }
    }

    fn on_sample(&mut self, process: usize, mut sample: Sample) {
        let windows = std::mem::take(&mut sample.windows);
        let failures = std::mem::take(&mut sample.failures);
        self.checker.add(process, windows, failures, sample.closed_below);
        let reliable = sample.reliable.take();
        let state = &mut self.states[process];
        state.latency_max_ns = state.latency_max_ns.max(sample.latency.max_ns);
        let killed_ns = self.kill.as_ref().map(|kill| kill.at_ns);
        let now_ns = sample.at_ns;
        state.pauses.add(&mut sample.pauses, now_ns, killed_ns, self.stopped_ns);
        state.own_pauses.add(&mut sample.own_pauses, now_ns, killed_ns, self.stopped_ns);
        if let (Some(mut reliable), Some(atomicity)) = (reliable, &mut self.atomicity) {
            let stopped_ns = self.stopped_ns;
            state.reliable_pauses.add(&mut reliable.pauses, now_ns, killed_ns, stopped_ns);
            state.reliable_faults = reliable.faults;
            atomicity.add(process, reliable);
        }
        state.last_sample = sample;
    }

    /// Computes the result. A pause counts as caused by the kill only at a survivor; at the killed
    /// process, and in a demo without a kill, every pause is unrelated to one.
    fn summary(mut self, sent_for: Duration, drained_in: Duration) -> Result<Summary> {
        let mut latencies = Histogram::new(2).context("cannot make a histogram")?;
        let mut per_process = Vec::new();
        let mut pause_max_ns = 0;
        let (mut reliable_recovered_in_ns, mut reliable_pause_max_ns) = (0, 0);
        if let (Some(atomicity), Some(kill)) = (&self.atomicity, &mut self.kill) {
            let first_ns = atomicity.notified_ns(kill.process).min();
            kill.detected_in_ns = first_ns.map(|first_ns| first_ns.saturating_sub(kill.at_ns));
        }
        let mut faults = StreamFaults::default();
        for state in &mut self.states {
            let mut own_latencies = Histogram::<u64>::new(2).context("cannot make a histogram")?;
            for &(value, count) in &state.latencies {
                own_latencies.record_n(value, count).context("cannot grow a histogram")?;
            }
            latencies.add(&own_latencies).context("cannot add a histogram")?;
            let (longest, own_longest) = (state.pauses.longest(), state.own_pauses.longest());
            match self.kill.as_mut().filter(|_| !state.is_dead) {
                Some(kill) => {
                    kill.recovered_in_ns = kill.recovered_in_ns.max(longest.kill_pause_ns);
                    kill.senders_recovered_in_ns =
                        kill.senders_recovered_in_ns.max(own_longest.kill_pause_ns);
                    pause_max_ns = pause_max_ns.max(longest.other_ns);
                    let reliable = state.reliable_pauses.longest();
                    reliable_recovered_in_ns = reliable_recovered_in_ns.max(reliable.kill_pause_ns);
                    reliable_pause_max_ns = reliable_pause_max_ns.max(reliable.other_ns);
                }
                None => {
                    let reliable = state.reliable_pauses.longest();
                    pause_max_ns = pause_max_ns.max(longest.other_ns.max(longest.kill_pause_ns));
                    reliable_pause_max_ns =
                        reliable_pause_max_ns.max(reliable.other_ns.max(reliable.kill_pause_ns));
                }
            }
            for stream_faults in [state.last_sample.faults, state.reliable_faults] {
                faults.order += stream_faults.order;
                faults.causality += stream_faults.causality;
                faults.payload += stream_faults.payload;
            }
            per_process.push(ProcessSummary::new(state, &own_latencies));
        }
        for (process, state) in self.states.iter().enumerate() {
            // A killed process may not have reported anything.
            if state.last_sample.delivered == 0 && !state.is_dead {
                self.problems.push(format!("process {process} delivered nothing"));
            } else if let Some(kill) = self.kill.as_ref().filter(|_| !state.is_dead)
                && state.last_sample.timestamp_ns <= kill.timestamp_ns
            {
                self.problems.push(format!(
                    "process {process} delivered nothing that was sent after process {} was killed",
                    kill.process
                ));
            }
        }
        let kill = self.kill.as_ref();
        if self.atomicity.is_some() && kill.is_some_and(|kill| kill.detected_in_ns.is_none()) {
            self.problems.push("no survivor was notified of the failure".to_string());
        }
        Ok(Summary {
            atomicity_report: self.atomicity.map(AtomicityChecker::finish),
            reliable_recovered_in_ns,
            processes: self.arguments.processes,
            transport: self.arguments.transport.name(),
            payload_len: self.arguments.size,
            seconds: sent_for.as_secs_f64(),
            drain_seconds: drained_in.as_secs_f64(),
            per_process,
            latencies,
            verdict: self.checker.finish(),
            faults,
            problems: self.problems,
            kill: self.kill,
            pause_max_ns,
            reliable_pause_max_ns,
        })
    }
}
