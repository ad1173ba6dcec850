//! A fabric of real programs: switches, controllers and processes, on hosts of their own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use rand::rngs::SmallRng;
use rustix::process::Signal;

use crate::history::{History, Id};
use crate::host::{Hosts, address};
use crate::program::{Line, Program};

/// How processes of the fabric reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every frame passes a tree of software switches.
    Switches,
    /// Frames go directly; aggregators hand on the barriers.
    Overlay,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Overlay => "overlay",
        }
    }
}

/// A program of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// 0 is the root of the tree.
    Switch(usize),
    Controller(usize),
    Process(usize),
}

pub const PROCESSES: usize = 6;
pub const SWITCHES: usize = 2;
pub const CONTROLLERS: usize = 3;
/// Hosts: one a switch, one for the controllers, three for the processes.
pub const HOSTS: usize = SWITCHES + 1 + PROCESSES / 2;
/// Process id of the first controller.
const CONTROLLERS_FIRST: usize = 1000;
/// Interval between two scatterings of a process.
const SEND_INTERVAL: Duration = Duration::from_millis(20);
/// Limit on waiting for what must happen.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A instance may end this long after a fault that permits the end.
const PERMISSION: Duration = Duration::from_secs(20);

pub struct Fabric {
    pub kind: Kind,
    pub hosts: Hosts,
    pub history: History,
    /// Folder of the controllers' store.
    pub store: PathBuf,
    program: PathBuf,
    logs: PathBuf,
    programs: Vec<(Role, Option<Program>)>,
    /// Until when the instance of a process may end, or others may report its failure.
    permitted: Vec<Option<Instant>>,
    /// When the current instance of a process began.
    started: Vec<Option<Instant>>,
    /// Last scattering of each process that the process has delivered to each other.
    seen: Vec<Vec<Option<Id>>>,
    next_send: Instant,
    is_loaded: bool,
    is_alive: bool,
    random: SmallRng,
}

impl Fabric {
    /// Starts a fabric, and waits until all of its processes exchange messages.
    pub fn start(kind: Kind, program: &Path, folder: &Path, random: SmallRng) -> Result<Self> {
        let store = folder.join("store");
        let logs = folder.join(kind.name());
        for folder in [&store, &logs] {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let mut fabric = Self {
            kind,
            hosts: Hosts::new(HOSTS)?,
            history: History::new(PROCESSES),
            store,
            program: program.to_owned(),
            logs,
            programs: Self::roles().map(|role| (role, None)).collect(),
            permitted: vec![None; PROCESSES],
            started: vec![None; PROCESSES],
            seen: vec![vec![None; PROCESSES]; PROCESSES],
            next_send: Instant::now(),
            is_loaded: false,
            is_alive: true,
            random,
        };
        for role in Self::roles() {
            fabric.run(role)?;
        }
        fabric.converge()?;
        Ok(fabric)
    }

    /// Returns all roles, in the order in which they start.
    pub fn roles() -> impl Iterator<Item = Role> {
        let switches = (0..SWITCHES).map(Role::Switch);
        let controllers = (0..CONTROLLERS).map(Role::Controller);
        switches.chain(controllers).chain((0..PROCESSES).map(Role::Process))
    }

    /// Returns the host of a program.
    pub fn host(role: Role) -> usize {
        match role {
            Role::Switch(switch) => switch,
            Role::Controller(_) => SWITCHES,
            Role::Process(process) => SWITCHES + 1 + process / 2,
        }
    }

    /// Returns the switch that a process or controller is attached to.
    fn switch_of(role: Role) -> usize {
        match role {
            Role::Process(process) if process >= 2 => 1,
            _ => 0,
        }
    }

    /// Returns the processes that run on a host or behind the switch there.
    pub fn processes_of(host: usize) -> impl Iterator<Item = usize> {
        (0..PROCESSES).filter(move |process| {
            let role = Role::Process(*process);
            Self::host(role) == host || Self::switch_of(role) == host
        })
    }

    fn arguments(&self, role: Role) -> Vec<String> {
        let listen = |switch: usize| format!("{}:4410", address(switch));
        let controllers = format!("{CONTROLLERS_FIRST}:{CONTROLLERS}");
        let up = listen(Self::switch_of(role));
        let text = match role {
            Role::Switch(switch) => {
                let command = if self.kind == Kind::Switches { "switch" } else { "aggregator" };
                let parent =
                    if switch == 0 { String::new() } else { format!(" --parent {}", listen(0)) };
                let id = switch + 1;
                format!(
                    "{command} --listen {} --id {id} --controllers {controllers}{parent}",
                    listen(switch)
                )
            }
            Role::Controller(controller) => format!(
                "controller --udp {up} --controllers {controllers} --process {} --store {} \
                 --status-listen 127.0.0.1:{}",
                CONTROLLERS_FIRST + controller,
                self.store.join("decisions.redb").display(),
                4480 + controller
            ),
            Role::Process(process) => {
                let link = if self.kind == Kind::Switches { "udp" } else { "overlay" };
                let reliable = if Self::is_reliable(process) { " --reliable" } else { "" };
                format!(
                    "node --{link} {up} --process {process} --controllers {controllers} --stay{reliable}"
                )
            }
        };
        text.split(' ').map(str::to_owned).collect()
    }

    /// Returns whether a process sends reliably. Two of three do.
    fn is_reliable(process: usize) -> bool {
        process % 3 != 2
    }

    /// Starts a program.
    pub fn run(&mut self, role: Role) -> Result<()> {
        let program = self.program.to_str().context("the path of the program is no text")?;
        let mut command = self.hosts.command(Self::host(role), program);
        command.args(self.arguments(role));
        let name = format!("{role:?}").replace(['(', ')'], "-");
        let started = Program::start(name.trim_end_matches('-'), command, &self.logs)?;
        *self.slot(role) = Some(started);
        if let Role::Process(process) = role {
            self.history.start(process);
            self.started[process] = Some(Instant::now());
            self.seen[process] = vec![None; PROCESSES];
        }
        Ok(())
    }

    fn slot(&mut self, role: Role) -> &mut Option<Program> {
        let position = self.programs.iter().position(|(other, _)| *other == role);
        &mut self.programs[position.expect("all roles are listed")].1
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
            self.print_of(process, &program);
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
        }
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    fn send(&mut self, process: usize, to: &[usize]) -> Option<Id> {
        let program = self.slot(Role::Process(process)).is_some();
        if !program {
            return None;
        }
        let (id, line) = self.history.send(process, to, Self::is_reliable(process));
        if let Some(program) = self.slot(Role::Process(process)) {
            program.write(&line);
        }
        Some(id)
    }

    fn read(&mut self) {
        for process in 0..PROCESSES {
            if let Some(program) = self.slot(Role::Process(process)).take() {
                self.print_of(process, &program);
                *self.slot(Role::Process(process)) = Some(program);
            }
        }
    }

    /// Judges what a process has printed.
    fn print_of(&mut self, process: usize, program: &Program) {
        while let Some(line) = program.read() {
            match line {
                Line::Out(line) => {
                    if let Some(id) = self.history.deliver(process, &line) {
                        self.seen[process][id.from.process] = Some(id);
                    }
                }
                Line::Error(line) => self.on_error(process, &line),
            }
        }
    }

    /// Judges a line that a process has printed to standard error.
    fn on_error(&mut self, process: usize, line: &str) {
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..digits].parse::<usize>().ok()
        };
        let Some(line) = line.strip_prefix("onepipe: ") else { return };
        if let Some(to) = line.strip_prefix("message to process ").and_then(number) {
            self.history.report(process, to);
        } else if let Some(failed) = line.strip_prefix("process ").and_then(number)
            && line.ends_with("has failed")
            && failed < PROCESSES
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
                self.print_of(process, program);
                self.history.end(process);
                if !self.is_permitted(process) {
                    let text = format!("false failure: process {process} ended with {status}");
                    self.history.violate(text);
                }
                // Others may report its failure later than its own end.
                self.permit(process);
            } else {
                self.history.violate(format!("{role:?} ended with {status}"));
            }
            self.run(role)?;
        }
        Ok(())
    }

    /// Waits until every process has delivered new messages of every other.
    pub fn converge(&mut self) -> Result<()> {
        let began = Instant::now();
        let mut first = vec![None; PROCESSES];
        let mut next = began;
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
            if began.elapsed() > WAIT_MAX {
                let text = format!("liveness: for {WAIT_MAX:?} {}", unmet.join(", "));
                self.history.violate(text);
                self.is_alive = false;
                return Ok(());
            }
        }
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

    /// Ends the load, and judges everything that was sent. Returns the violations.
    pub fn verify(&mut self) -> Result<Vec<String>> {
        let was_loaded = self.is_loaded;
        self.load(false);
        self.converge()?;
        let began = Instant::now();
        let mut missing = self.history.missing();
        while self.is_alive && !missing.is_empty() && began.elapsed() < WAIT_MAX {
            self.run_for(Duration::from_millis(100))?;
            missing = self.history.missing();
        }
        missing.into_iter().for_each(|text| self.history.violate(text));
        self.history.complete();
        self.load(was_loaded);
        Ok(self.history.take_violations())
    }
}
