//! A fabric of real programs under load, on hosts of their own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use rustix::process::Signal;

use crate::copies::{Copy, Ended, Means};
use crate::group::Group;
use crate::history::{History, Id};
use crate::host::Hosts;
use crate::logged::Logged;
use crate::program::{Line, Program};
use crate::role::{Files, HOSTS, Kind, MEMBERS, PROCESSES, REPLICAS, Role};
use crate::stopwatch::Stopwatch;

/// Interval between two scatterings of a process.
const SEND_INTERVAL: Duration = Duration::from_millis(20);
/// Limit on waiting for what must happen.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A instance may end this long after a fault that permits the end.
const PERMISSION: Duration = Duration::from_secs(20);

/// Bytes of a copied file.
const COPY_LEN: usize = 512 << 10;

pub struct Fabric {
    kind: Kind,
    pub hosts: Hosts,
    pub history: History,
    group: Group,
    pub files: Files,
    programs: Vec<(Role, Option<Program>)>,
    /// Until when the instance of a process may end, or others may report its failure.
    permitted: Vec<Option<Instant>>,
    /// When the current instance of a process began.
    started: Vec<Option<Instant>>,
    /// Last scattering of each process that the process has delivered to each other.
    seen: Vec<Vec<Option<Id>>>,
    copies: Vec<Copy>,
    pub count_copied: u64,
    next_send: Instant,
    is_loaded: bool,
    is_alive: bool,
    random: SmallRng,
}

impl Fabric {
    /// Starts a fabric, and waits until all of its processes exchange messages.
    pub fn start(kind: Kind, files: Files, random: SmallRng) -> Result<Self> {
        let all = Role::all();
        for folder in all.iter().map(|role| files.received(*role)) {
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(files.group(), Role::group_file()).context("cannot write the group file")?;
        let mut fabric = Self {
            kind,
            hosts: Hosts::new(HOSTS)?,
            history: History::new(PROCESSES),
            group: Group::new(REPLICAS),
            files,
            programs: all.iter().map(|role| (*role, None)).collect(),
            permitted: vec![None; PROCESSES],
            started: vec![None; PROCESSES],
            seen: vec![vec![None; PROCESSES]; PROCESSES],
            copies: Vec::new(),
            count_copied: 0,
            next_send: Instant::now(),
            is_loaded: false,
            is_alive: true,
            random,
        };
        for role in all {
            fabric.run_first(role, true)?;
        }
        fabric.converge()?;
        Ok(fabric)
    }

    /// Starts a program again.
    pub fn run(&mut self, role: Role) -> Result<()> {
        self.run_first(role, false)
    }

    /// Runs a program that must refuse to work: records a violation unless it ends with status 1
    /// and prints `reason`.
    pub fn run_refused(&mut self, role: Role, reason: &str) -> Result<()> {
        let mut program = self.start_program(role, false)?;
        let mut watch = Stopwatch::start();
        let (mut is_named, mut last) = (false, String::new());
        // What a program has printed may be read only after it has ended.
        let status = loop {
            self.turn()?;
            let has_ended = program.is_read();
            while let Some(Line::Out(line) | Line::Error(line)) = program.read() {
                is_named |= line.contains(reason);
                last = line;
            }
            let status = program.exit_status().filter(|_| has_ended);
            if status.is_some() || watch.elapsed() > WAIT_MAX {
                break status;
            }
        };
        if status.and_then(|status| status.code()) != Some(1) || !is_named {
            let text = format!(
                "{role:?} was to end with status 1 and name {reason:?}, but ended with {status:?}: \
                 {last}"
            );
            self.history.violate(text);
        }
        Ok(())
    }

    fn run_first(&mut self, role: Role, is_first: bool) -> Result<()> {
        let started = self.start_program(role, is_first)?;
        *self.slot(role) = Some(started);
        if let Role::Process(process) = role {
            self.history.start(process);
            self.started[process] = Some(Instant::now());
            self.seen[process] = vec![None; PROCESSES];
        }
        Ok(())
    }

    fn start_program(&self, role: Role, is_first: bool) -> Result<Program> {
        let arguments = role.arguments(self.kind, &self.files, is_first);
        let program = role.program(&self.files);
        let program = program.to_str().context("the path of the program is no text")?;
        let mut command = self.hosts.command(role.host(), program);
        command.args(arguments.split(' '));
        Program::start(&role.name(), command, &self.files.folder.join("logs"))
    }

    fn slot(&mut self, role: Role) -> &mut Option<Program> {
        let position = self.programs.iter().position(|(other, _)| *other == role);
        &mut self.programs[position.expect("all roles are listed")].1
    }

    /// Returns whether no member of the group has died yet.
    pub fn are_members_alive(&mut self) -> bool {
        (0..MEMBERS).all(|member| self.slot(Role::Member(member)).is_some())
    }

    pub fn signal(&mut self, role: Role, signal: Signal) {
        if let Some(program) = self.slot(role) {
            program.signal(signal);
        }
    }

    /// Kills a program, or interrupts it and waits until it has ended.
    pub fn end(&mut self, role: Role, signal: Signal) -> Result<()> {
        self.read();
        if let Role::Process(process) = role {
            // What the process prints until its end is judged; nothing more is expected of it.
            self.permit(process);
        }
        self.signal(role, signal);
        let Some(mut program) = self.slot(role).take() else { return Ok(()) };
        let status = program.wait(WAIT_MAX);
        if let Role::Process(process) = role {
            self.print_of(role, &program);
            self.history.end(process);
        }
        ensure!(status.is_some(), "{role:?} does not end after {signal:?}");
        Ok(())
    }

    /// Permits that the instance of a process ends, now or within [`PERMISSION`].
    pub fn permit(&mut self, process: usize) {
        self.permitted[process] = Some(Instant::now() + PERMISSION);
    }

    fn is_permitted(&self, process: usize) -> bool {
        self.permitted[process].is_some_and(|until| Instant::now() < until)
    }

    /// Returns whether a process has started within the last [`PERMISSION`].
    fn is_joiner(&self, process: usize) -> bool {
        self.started[process].is_none_or(|at| at.elapsed() < PERMISSION)
    }

    /// Starts or ends the load.
    pub fn load(&mut self, is_loaded: bool) {
        self.is_loaded = is_loaded;
        self.next_send = Instant::now();
    }

    /// Starts to copy a file.
    fn copy(&mut self, means: Means) -> Result<()> {
        let name = format!("{}-{}", means.name(), self.random.random_range(0..u64::MAX));
        let file = self.files.folder.join(name);
        let mut bytes = vec![0; COPY_LEN];
        self.random.fill_bytes(&mut bytes);
        std::fs::write(&file, bytes).context("cannot write a file to copy")?;
        let path = file.to_str().context("the path is no text")?;
        let program = self.files.program.to_str().context("the path is no text")?;
        let mut command = self.hosts.command(means.host(), program);
        command.args(means.arguments(path).split(' '));
        let logs = self.files.folder.join("logs");
        let sender = Program::start(&format!("{}-send", means.name()), command, &logs)?;
        self.copies.push(Copy::new(means, sender, file));
        Ok(())
    }

    /// Verifies the copies that have ended. Returns by which means a copy was equal.
    fn poll_copies(&mut self) -> Result<Vec<Means>> {
        let mut equal = Vec::new();
        for mut copy in std::mem::take(&mut self.copies) {
            let means = copy.means;
            match copy.poll(&self.files)? {
                None => {
                    self.copies.push(copy);
                    continue;
                }
                Some(Ended::Equal) => equal.push(means),
                // A fault may be the reason; `verify_copies` repeats the copy.
                Some(Ended::Failed(_)) => {}
                Some(Ended::Different(text)) => {
                    self.history.violate(format!("copy by {}: {text}", means.name()));
                }
            }
            copy.remove(&self.files);
        }
        self.count_copied += equal.len() as u64;
        Ok(equal)
    }

    /// Copies a file by each means, again and again until the copy is equal.
    fn verify_copies(&mut self) -> Result<()> {
        let mut watch = Stopwatch::start();
        let mut missing = Means::ALL.to_vec();
        while !missing.is_empty() {
            for means in self.poll_copies()? {
                missing.retain(|other| *other != means);
            }
            for means in &missing {
                if self.copies.iter().all(|copy| copy.means != *means) {
                    self.copy(*means)?;
                }
            }
            self.turn()?;
            if watch.elapsed() > 2 * WAIT_MAX {
                for means in missing {
                    let text = format!("liveness: no copy by {} succeeds", means.name());
                    self.history.violate(text);
                }
                self.is_alive = false;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Lets the fabric run for a time under load.
    pub fn run_for(&mut self, time: Duration) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < time {
            self.turn()?;
        }
        Ok(())
    }

    /// Reads what was printed, restarts processes that ended, sends what is due.
    pub fn turn(&mut self) -> Result<()> {
        self.read();
        self.restart_ended()?;
        if self.is_loaded && Instant::now() >= self.next_send {
            self.next_send += SEND_INTERVAL;
            for process in 0..PROCESSES {
                let share = self.random.random_range(1..=PROCESSES);
                let first = self.random.random_range(0..PROCESSES);
                let to = (first..first + share).map(|to| to % PROCESSES);
                self.send(process, &to.collect::<Vec<_>>());
            }
            let line = self.group.send();
            if let Some(client) = self.slot(Role::Client) {
                client.write(&line);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    fn send(&mut self, process: usize, to: &[usize]) -> Option<Id> {
        let program = self.slot(Role::Process(process)).is_some();
        if !program {
            return None;
        }
        let (id, line) = self.history.send(process, to, Role::is_reliable(process));
        if let Some(program) = self.slot(Role::Process(process)) {
            program.write(&line);
        }
        Some(id)
    }

    fn read(&mut self) {
        for index in 0..self.programs.len() {
            let (role, program) = &mut self.programs[index];
            let (role, Some(program)) = (*role, program.take()) else { continue };
            self.print_of(role, &program);
            self.programs[index].1 = Some(program);
        }
    }

    /// Verifies what a program has printed.
    fn print_of(&mut self, role: Role, program: &Program) {
        while let Some(line) = program.read() {
            match (role, line) {
                (Role::Process(process), Line::Out(line)) => {
                    if let Some(id) = self.history.deliver(process, &line) {
                        self.seen[process][id.from.process] = Some(id);
                    }
                }
                (Role::Process(process), Line::Error(line)) => self.on_error(process, &line),
                (Role::Client, Line::Out(line)) => self.group.complete(&line),
                (Role::Replica(replica), Line::Out(line)) => {
                    if let Some(violation) = self.group.deliver(replica, &line) {
                        self.history.violate(violation);
                    }
                }
                _ => {}
            }
        }
    }

    /// Verifies a line that a process has printed to standard error.
    fn on_error(&mut self, process: usize, line: &str) {
        match Logged::parse(line) {
            Some(Logged::Outcome { to }) => self.history.report(process, to),
            Some(Logged::Failed(failed)) => self.on_reported_failure(process, failed, line),
            None => {}
        }
    }

    fn on_reported_failure(&mut self, process: usize, failed: usize, line: &str) {
        if failed < PROCESSES
            && !self.is_permitted(failed)
            // A joining process is notified of the failures of earlier instances.
            && !(self.is_joiner(process) && self.history.has_restarted(failed))
        {
            let violation = format!("false failure: process {process} printed {line:?}");
            self.history.violate(violation);
        }
    }

    fn restart_ended(&mut self) -> Result<()> {
        for index in 0..self.programs.len() {
            let (role, program) = &mut self.programs[index];
            let role = *role;
            let Some(status) = program.as_mut().and_then(Program::exit_status) else { continue };
            let program = program.take();
            if let (Role::Process(process), Some(program)) = (role, &program) {
                self.print_of(role, program);
                self.history.end(process);
                if !self.is_permitted(process) {
                    let text = format!("false failure: process {process} ended with {status}");
                    self.history.violate(text);
                }
                // Others may report its failure later than its own end.
                self.permit(process);
            } else {
                self.history.violate(format!("{role:?} ended with {status}"));
                if !role.is_restartable() {
                    self.is_alive = false;
                    continue;
                }
            }
            self.run(role)?;
        }
        Ok(())
    }

    /// Waits until every process has delivered new messages of every other.
    pub fn converge(&mut self) -> Result<()> {
        let mut watch = Stopwatch::start();
        let mut first = vec![None; PROCESSES];
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                next += Duration::from_millis(250);
                for (process, first) in first.iter_mut().enumerate() {
                    let id = self.send(process, &(0..PROCESSES).collect::<Vec<_>>());
                    let is_new = |first: &Id| id.is_some_and(|id| id.from != first.from);
                    if first.as_ref().is_none_or(is_new) {
                        *first = id;
                    }
                }
            }
            self.turn()?;
            let unmet = self.unmet(&first);
            if unmet.is_empty() {
                return Ok(());
            }
            if watch.elapsed() > WAIT_MAX {
                let text = format!("liveness: for {WAIT_MAX:?} {}", unmet.join(", "));
                self.history.violate(text);
                self.is_alive = false;
                return Ok(());
            }
        }
    }

    /// Returns the number of complete messages of the group.
    pub fn count_multicast(&self) -> u64 {
        self.group.count_completed()
    }

    /// Returns whether all processes exchanged messages again after each fault.
    pub fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// Returns which processes have not delivered the scattering `first` of which other, or a later
    /// one.
    fn unmet(&self, first: &[Option<Id>]) -> Vec<String> {
        let mut unmet = Vec::new();
        for (process, seen) in self.seen.iter().enumerate() {
            for (from, first) in first.iter().enumerate() {
                let is_met = first.is_some() && seen[from] >= *first;
                if !is_met {
                    unmet.push(format!("process {process} delivers nothing of process {from}"));
                }
            }
        }
        unmet
    }

    fn missing(&self) -> Vec<String> {
        let mut missing = self.history.missing();
        missing.extend(self.group.missing());
        missing
    }

    /// Starts one copy by each means.
    pub fn start_copies(&mut self) -> Result<()> {
        Means::ALL.into_iter().try_for_each(|means| self.copy(means))
    }

    /// Ends the load, and verifies everything that was sent. Returns the violations.
    pub fn verify(&mut self) -> Result<Vec<String>> {
        let was_loaded = self.is_loaded;
        self.load(false);
        self.converge()?;
        let mut watch = Stopwatch::start();
        let mut missing = self.missing();
        while self.is_alive && !missing.is_empty() && watch.elapsed() < WAIT_MAX {
            self.run_for(Duration::from_millis(100))?;
            missing = self.missing();
        }
        self.verify_copies()?;
        missing.into_iter().for_each(|text| self.history.violate(text));
        self.history.complete();
        self.load(was_loaded);
        Ok(self.history.take_violations())
    }
}
