//! The course of a demo: everybody joins, all send, one is killed, all settle, all leave.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use onepipe_transport_clock::{Clock, SystemClock};

use super::atomicity::Atomicity;
use super::check::Checker;
use super::crew::{Crew, Told};
use super::log::Faults;
use super::pauses::Pauses;
use super::show::Show;
use super::summary::{Kill, Line, Summary};
use super::words::{Farewell, Order, Place, Sample, Word};
use super::{Arguments, window_ns};

/// How long everybody may take to join: a busy machine starts processes slowly.
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long everybody may take to learn the fate of what it sent.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this people are told what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the display is renewed and what all agree on is forgotten.
const TICK: Duration = Duration::from_millis(500);

/// What is known of one process.
#[derive(Debug, Default)]
pub struct Known {
    /// What it said last.
    pub last: Sample,
    /// What it said last at the tick before, to compute rates.
    pub before: Option<(u64, u64)>,
    /// Messages delivered a second, lately.
    pub rate_per_s: f64,
    /// The longest latency so far.
    pub latency_max_ns: u64,
    /// All its latencies, once it has left.
    latencies: Vec<(u64, u64)>,
    /// Pauses in its deliveries.
    any: Pauses,
    /// Pauses in the deliveries of its own messages to itself: in its sending.
    own: Pauses,
    /// Pauses in its reliable deliveries.
    reliable: Pauses,
    /// What is wrong with its reliable stream.
    reliable_faults: Faults,
    /// Whether it is dead.
    pub is_dead: bool,
    has_joined: bool,
    has_settled: bool,
    has_left: bool,
}

/// A demo under way.
pub struct Course<'a> {
    arguments: &'a Arguments,
    place: Place,
    clock: SystemClock,
    crew: Crew,
    told: Receiver<Told>,
    show: Show,
    known: Vec<Known>,
    checker: Checker,
    atomicity: Option<Atomicity>,
    kill: Option<Kill>,
    /// When sending stopped, in ns of this program's clock; never yet, if the highest number.
    stopped_ns: u64,
    /// What did not hold, beside the logs.
    broken: Vec<String>,
}

/// Why waiting ended.
enum Wait {
    Done,
    TimedOut,
    Interrupted,
}

impl<'a> Course<'a> {
    /// A demo whose processes have been started.
    pub fn new(
        arguments: &'a Arguments,
        place: Place,
        clock: SystemClock,
        crew: Crew,
        told: Receiver<Told>,
        show: Show,
    ) -> Self {
        let processes = arguments.processes as usize;
        Self {
            arguments,
            place,
            clock,
            crew,
            told,
            show,
            known: (0..processes).map(|_| Known::default()).collect(),
            checker: Checker::new(window_ns(arguments.processes), processes),
            atomicity: arguments.reliable.then(|| Atomicity::new(processes)),
            kill: None,
            stopped_ns: u64::MAX,
            broken: Vec::new(),
        }
    }

    /// Runs it to its end. `None` if the user interrupted it.
    pub fn run(mut self) -> Result<Option<Summary>> {
        match self.wait(JOIN_TIMEOUT, |known| known.has_joined)? {
            Wait::Done => {}
            Wait::Interrupted => return Ok(None),
            Wait::TimedOut => {
                let late = self.who(|known| !known.has_joined);
                bail!("process {late} did not join within {JOIN_TIMEOUT:?}");
            }
        }
        if self.arguments.reliable {
            // The segment has the size that the workers need: they were first.
            self.crew.start_controller(&self.place, self.arguments.processes)?;
        }
        self.show.begin();
        let began = Instant::now();
        self.tell_all(Order::Start);
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
        self.tell_all(Order::Stop);
        self.tick(sent_for, length);
        self.show.note("everybody stops sending; what is under way arrives");
        if let Wait::Interrupted = self.wait_for_fates()? {
            return Ok(None);
        }
        let settled_in = stopped.elapsed();
        self.tell_all(Order::Quit);
        if let Wait::Interrupted =
            self.wait(SETTLE_TIMEOUT, |known| known.has_left || known.is_dead)?
        {
            return Ok(None);
        }
        let late = self.crew.dismiss();
        if !late.is_empty() {
            self.broken.push(format!("{} did not end and had to be killed", late.join(", ")));
        }
        self.show.end();
        self.summary(sent_for, settled_in).map(Some)
    }

    fn kill_one(&mut self) -> Result<()> {
        let process = self.known.len() - 1;
        let now = self.clock.read();
        let pid = self.crew.kill(process)?;
        self.known[process].is_dead = true;
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
            // The survivors are told by the controller.
            Some(atomicity) => atomicity.on_killed(process),
            None => self.tell_all(Order::Gone(process as u32)),
        }
        self.show.note(&format!("process {process} (pid {pid}) killed; the others go on"));
        Ok(())
    }

    fn tell_all(&mut self, order: Order) {
        for process in 0..self.known.len() {
            if !self.known[process].is_dead {
                self.crew.tell(process, order);
            }
        }
    }

    /// The processes of which `is_it` is true, as text.
    fn who(&self, is_it: impl Fn(&Known) -> bool) -> String {
        let who = self.known.iter().enumerate().filter(|(_, known)| is_it(known));
        who.map(|(process, _)| process.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Listens until `is_done` is true of everybody.
    fn wait(&mut self, timeout: Duration, is_done: impl Fn(&Known) -> bool) -> Result<Wait> {
        let deadline = Instant::now() + timeout;
        while !self.known.iter().all(&is_done) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Ok(Wait::TimedOut);
            };
            if self.listen(left)? {
                return Ok(Wait::Interrupted);
            }
        }
        Ok(Wait::Done)
    }

    /// Listens until everybody knows the fate of everything that it sent, and says so if that takes
    /// long.
    fn wait_for_fates(&mut self) -> Result<Wait> {
        let has_settled = |known: &Known| known.has_settled || known.is_dead;
        match self.wait(PATIENCE, has_settled)? {
            Wait::TimedOut => {}
            wait => return Ok(wait),
        }
        let late = self.who(|known| !has_settled(known));
        self.show.note(&format!("process {late} still asks what became of its messages"));
        match self.wait(SETTLE_TIMEOUT, has_settled)? {
            Wait::TimedOut => {
                let late = self.who(|known| !has_settled(known));
                self.broken.push(format!(
                    "process {late} did not learn the fate of its messages within \
                     {SETTLE_TIMEOUT:?}"
                ));
                Ok(Wait::Done)
            }
            wait => Ok(wait),
        }
    }

    /// Listens until `until`, and shows how it goes.
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
            if self.listen(until.min(tick_at).saturating_duration_since(now))? {
                return Ok(Wait::Interrupted);
            }
        }
    }

    fn tick(&mut self, elapsed: Duration, length: Duration) {
        for known in &mut self.known {
            let now = (known.last.at_ns, known.last.delivered);
            if let Some(before) = known.before.replace(now).filter(|before| before.0 < now.0) {
                known.rate_per_s = (now.1 - before.1) as f64 / (now.0 - before.0) as f64 * 1e9;
            }
        }
        if let Some(atomicity) = &mut self.atomicity {
            atomicity.settle();
        }
        let verdict = self.checker.settle();
        self.show.tick(&self.known, verdict, elapsed, length);
    }

    /// Takes one thing that is told, if anything is within `timeout`. Answers whether it is the
    /// user's wish to end.
    fn listen(&mut self, timeout: Duration) -> Result<bool> {
        match self.told.recv_timeout(timeout) {
            Ok(Told::Said(process, word)) => self.hear(process, *word),
            Ok(Told::Ended(process)) => {
                let known = &self.known[process];
                if !known.is_dead && !known.has_left {
                    let complaint = self.crew.complaint(process);
                    bail!("process {process} has failed: {complaint}");
                }
            }
            Ok(Told::Interrupted) => return Ok(true),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("nobody is left to listen to"),
        }
        Ok(false)
    }

    fn hear(&mut self, process: usize, word: Word) {
        let known = &mut self.known[process];
        match word {
            Word::Ready => known.has_joined = true,
            Word::Settled => known.has_settled = true,
            Word::Sample(sample) => self.take(process, sample),
            Word::Farewell(Farewell { sample, latencies }) => {
                known.has_left = true;
                known.latencies = latencies;
                self.take(process, sample);
            }
        }
    }

    fn take(&mut self, process: usize, mut sample: Sample) {
        let windows = std::mem::take(&mut sample.windows);
        let failures = std::mem::take(&mut sample.failures);
        self.checker.hear(process, windows, failures, sample.closed_below);
        let reliable = sample.reliable.take();
        let known = &mut self.known[process];
        known.latency_max_ns = known.latency_max_ns.max(sample.latency.max_ns);
        let killed_ns = self.kill.as_ref().map(|kill| kill.at_ns);
        let now_ns = sample.at_ns;
        known.any.take(&mut sample.pauses, now_ns, killed_ns, self.stopped_ns);
        known.own.take(&mut sample.own_pauses, now_ns, killed_ns, self.stopped_ns);
        if let (Some(mut reliable), Some(atomicity)) = (reliable, &mut self.atomicity) {
            let stopped_ns = self.stopped_ns;
            known.reliable.take(&mut reliable.pauses, now_ns, killed_ns, stopped_ns);
            known.reliable_faults = reliable.faults;
            atomicity.hear(process, reliable);
        }
        known.last = sample;
    }

    fn summary(mut self, sent_for: Duration, settled_in: Duration) -> Result<Summary> {
        let mut latencies = Histogram::new(2).context("cannot make a histogram")?;
        let mut lines = Vec::new();
        let mut pause_max_ns = 0;
        let (mut reliable_ns, mut reliable_pause_max_ns) = (0, 0);
        if let (Some(atomicity), Some(kill)) = (&self.atomicity, &mut self.kill) {
            let first_ns = atomicity.told_ns(kill.process).min();
            kill.detected_in_ns = first_ns.map(|first_ns| first_ns.saturating_sub(kill.at_ns));
        }
        let mut faults = Faults::default();
        for known in &mut self.known {
            let mut own = Histogram::<u64>::new(2).context("cannot make a histogram")?;
            for &(value, count) in &known.latencies {
                own.record_n(value, count).context("cannot grow a histogram")?;
            }
            latencies.add(&own).context("cannot add a histogram")?;
            let (any, of_own) = (known.any.longest(), known.own.longest());
            match self.kill.as_mut().filter(|_| !known.is_dead) {
                Some(kill) => {
                    kill.recovered_in_ns = kill.recovered_in_ns.max(any.echo_ns);
                    kill.senders_recovered_in_ns = kill.senders_recovered_in_ns.max(of_own.echo_ns);
                    pause_max_ns = pause_max_ns.max(any.other_ns);
                    let reliable = known.reliable.longest();
                    reliable_ns = reliable_ns.max(reliable.echo_ns);
                    reliable_pause_max_ns = reliable_pause_max_ns.max(reliable.other_ns);
                }
                None => {
                    let reliable = known.reliable.longest();
                    pause_max_ns = pause_max_ns.max(any.other_ns.max(any.echo_ns));
                    reliable_pause_max_ns =
                        reliable_pause_max_ns.max(reliable.other_ns.max(reliable.echo_ns));
                }
            }
            for of_one in [known.last.faults, known.reliable_faults] {
                faults.order += of_one.order;
                faults.causality += of_one.causality;
                faults.payload += of_one.payload;
            }
            lines.push(Line::new(known, &own));
        }
        for (process, known) in self.known.iter().enumerate() {
            // One that was killed may not have come to say anything.
            if known.last.delivered == 0 && !known.is_dead {
                self.broken.push(format!("process {process} delivered nothing"));
            } else if let Some(kill) = self.kill.as_ref().filter(|_| !known.is_dead)
                && known.last.timestamp_ns <= kill.timestamp_ns
            {
                self.broken.push(format!(
                    "process {process} delivered nothing that was sent after process {} was killed",
                    kill.process
                ));
            }
        }
        let kill = self.kill.as_ref();
        if self.atomicity.is_some() && kill.is_some_and(|kill| kill.detected_in_ns.is_none()) {
            self.broken.push("nobody was told of the failure".to_string());
        }
        Ok(Summary {
            finding: self.atomicity.map(Atomicity::finish),
            reliable_recovered_in_ns: reliable_ns,
            processes: self.arguments.processes,
            transport: self.arguments.transport.name(),
            payload_len: self.arguments.size,
            seconds: sent_for.as_secs_f64(),
            settled_in_seconds: settled_in.as_secs_f64(),
            lines,
            latencies,
            verdict: self.checker.finish(),
            faults,
            broken: self.broken,
            kill: self.kill,
            pause_max_ns,
            reliable_pause_max_ns,
        })
    }
}
