//! `onepipe demo amcast`: a group of three members as processes, of which the leader is killed.

use std::io::{BufRead, Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe::{GroupId, Loopback, Role};
use serde::Serialize;

use super::amcast_worker::{Delivered, Sent, WorkerReport, unix_ns};
use super::children::{ChildProcess, end_all};
use crate::units::{self, readable};

/// How long a step may take that takes milliseconds.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often is told how it goes.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
const MEMBERS: usize = 3;
const REPLICAS: usize = 3;
const CLIENTS: usize = 2;
const GROUP: GroupId = GroupId(0);

const EXAMPLES: &str = "\
Examples:
  onepipe demo amcast                            the leader is killed half-way
  onepipe demo amcast --leader-timeout 20ms --window 16
  onepipe demo amcast --json | tail -n 1         for programs";

/// Start a group of three members, three replicas and two clients, kill the leader: order holds
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// How long the clients send
    #[arg(long, default_value = "4", value_parser = units::seconds)]
    seconds: f64,
    /// Bytes of a message
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(8..=1336))]
    size: u32,
    /// Messages that each client has open
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Messages a second of each client: the machine is shared by ten processes
    #[arg(long, default_value = "1000", value_parser = units::rate)]
    rate: f64,
    /// A leader that has not answered the coordinator for so long is replaced
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::time_ns)]
    leader_timeout: u64,
    /// Kill nobody
    #[arg(long)]
    no_kill: bool,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
}

/// What has come of it.
#[derive(Clone, Debug, Default, Serialize)]
struct Summary {
    members: usize,
    replicas: usize,
    clients: usize,
    seconds: f64,
    sent: u64,
    completed: u64,
    delivered: Vec<u64>,
    messages_per_s: f64,
    /// The process id of the system of the leader that was killed.
    killed_pid: Option<u32>,
    /// What the coordinator said of it.
    election: Option<String>,
    /// From the kill to the next delivery of the slowest replica, ms.
    next_delivery_ms: Option<f64>,
    /// What went wrong.
    violations: Vec<String>,
    invariants_held: bool,
}

/// What the starter hears.
enum Event {
    Report(usize, WorkerReport),
    Elected(String),
    Interrupted,
}

/// All processes, and what each has said. Dropping it ends them.
struct DemoGroup {
    members: Vec<ChildProcess>,
    coordinator: Vec<ChildProcess>,
    /// Replicas, then clients.
    workers: Vec<ChildProcess>,
    store: PathBuf,
    events: Receiver<Event>,
    events_tx: Sender<Event>,
    replicas: Vec<Delivered>,
    checkpoints: Vec<Vec<u64>>,
    clients: Vec<Option<Sent>>,
    election: Option<String>,
    /// The longest time without a delivery of each replica since the kill, and when it ended, ns.
    gaps: Vec<(u64, u64)>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut group = DemoGroup::start(arguments)?;
    let events_tx = group.events_tx.clone();
    crate::interrupt::on_interrupt(move || {
        // Nobody listens any more: fine.
        let _ = events_tx.send(Event::Interrupted);
    })?;
    let Some(summary) = run_scenario(&mut group, arguments)? else {
        eprintln!("onepipe: interrupted");
        return Ok(ExitCode::from(crate::interrupt::EXIT_STATUS));
    };
    summary.print(arguments.json).context("cannot print")?;
    Ok(if summary.invariants_held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The whole course. `None` if it was interrupted.
fn run_scenario(group: &mut DemoGroup, arguments: &Arguments) -> Result<Option<Summary>> {
    let began = Instant::now();
    let half = Duration::from_secs_f64(arguments.seconds / 2.0);
    let mut summary =
        Summary { members: MEMBERS, replicas: REPLICAS, clients: CLIENTS, ..Summary::default() };
    if !group.run_for(half)? {
        return Ok(None);
    }
    let mut killed_ns = None;
    if !arguments.no_kill {
        killed_ns = Some(unix_ns());
        group.gaps = vec![(0, 0); REPLICAS];
        let leader = group.leader();
        // Who was named before, where the machine was too busy for its first leader, is no answer.
        group.election = None;
        summary.killed_pid = Some(group.members[leader].kill()?);
        eprintln!("member {leader}, the leader, was killed");
    }
    if !group.run_for(half)? {
        return Ok(None);
    }
    summary.seconds = began.elapsed().as_secs_f64();
    // The clients end when all that they have sent is over.
    let deadline = Instant::now() + 2 * STEP_TIMEOUT;
    for client in &mut group.workers[REPLICAS..] {
        if !client.wait_exit(deadline) {
            summary.violations.push("a client did not exit".into());
        }
    }
    let sent =
        |group: &DemoGroup| group.clients.iter().flatten().map(|sent| sent.sent).sum::<u64>();
    // What the last lines of the clients say has been said by now, and is on its way.
    let until = Instant::now() + STEP_TIMEOUT;
    let mut is_through = false;
    while !is_through && Instant::now() < until {
        group.poll_events(Duration::from_millis(100))?;
        let all = sent(group);
        let completed: u64 = group.clients.iter().flatten().map(|sent| sent.completed).sum();
        is_through = completed == all && group.replicas.iter().all(|replica| replica.count == all);
    }
    summary.sent = sent(group);
    summary.completed = group.clients.iter().flatten().map(|sent| sent.completed).sum();
    summary.election.clone_from(&group.election);
    group.verify(&mut summary, killed_ns);
    Ok(Some(summary))
}

impl DemoGroup {
    fn start(arguments: &Arguments) -> Result<Self> {
        let layout = Loopback {
            groups: 1,
            members: MEMBERS,
            replicas: REPLICAS,
            clients: CLIENTS,
            coordinators: 1,
        };
        let directory = layout.directory().context("no free ports")?;
        let list =
            |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let of = |role| directory.of(role);
        let (members, replicas) = (of(Role::Member(GROUP)), of(Role::Replica(GROUP)));
        let (clients, coordinator) = (of(Role::Client), of(Role::Coordinator));
        let map = [
            ("--group", format!("0={}", list(&members))),
            ("--replicas", format!("0={}", list(&replicas))),
            ("--clients", list(&clients)),
            ("--coordinators", list(&coordinator)),
            ("--window", arguments.window.to_string()),
        ];
        let start = |name: String, command: &str, at: SocketAddr, more: &[&str]| {
            let at = at.to_string();
            let map = map.iter().flat_map(|(key, value)| [*key, value.as_str()]);
            let words =
                [command, "--listen", &at].into_iter().chain(map).chain(more.iter().copied());
            ChildProcess::start(name, &words.collect::<Vec<_>>())
        };
        // Memory that has a name, where there is such: no decision outlives the demo.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let store = directory.join(format!("onepipe-amcast-{}.redb", std::process::id()));
        let (events_tx, events) = channel();
        let mut group = Self {
            members: Vec::new(),
            coordinator: Vec::new(),
            workers: Vec::new(),
            store,
            events,
            events_tx,
            replicas: vec![Delivered::default(); REPLICAS],
            checkpoints: vec![Vec::new(); REPLICAS],
            clients: vec![None; CLIENTS],
            election: None,
            gaps: vec![(0, 0); REPLICAS],
        };
        for (number, at) in members.iter().enumerate() {
            let member =
                start(format!("member {number}"), "member", *at, &["--exit-on-stdin-eof"])?;
            group.members.push(member);
        }
        for member in &mut group.members {
            wait_for_line(member, "member")?;
        }
        let (path, leader_timeout) =
            (group.store.to_string_lossy().into_owned(), format!("{}ns", arguments.leader_timeout));
        let more = [
            "--store",
            &path,
            "--leader-timeout",
            &leader_timeout,
            "--exit-on-stdin-eof",
            "--remove-store",
        ];
        let coordinator = start("the coordinator".into(), "coordinator", coordinator[0], &more)?;
        group.coordinator.push(coordinator);
        let events_tx = group.events_tx.clone();
        let lines = wait_for_line(&mut group.coordinator[0], "active")?;
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Nobody listens any more: fine.
                let _ = events_tx.send(Event::Elected(line));
            }
        });
        let (bytes, rate) = (arguments.size.to_string(), arguments.rate.to_string());
        for (number, at) in replicas.iter().enumerate() {
            group.start_worker(start(format!("replica {number}"), "amcast-worker", *at, &[])?)?;
        }
        for (number, at) in clients.iter().enumerate() {
            let more = ["--sends", "--size", &bytes, "--rate", &rate];
            group.start_worker(start(format!("client {number}"), "amcast-worker", *at, &more)?)?;
        }
        Ok(group)
    }

    fn start_worker(&mut self, mut worker: ChildProcess) -> Result<()> {
        let (number, events_tx, output) =
            (self.workers.len(), self.events_tx.clone(), worker.output()?);
        self.workers.push(worker);
        std::thread::spawn(move || {
            for line in output.lines() {
                // A line cut short by a kill is no line.
                let word = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                let Some(word) = word else { break };
                if events_tx.send(Event::Report(number, word)).is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Listens for `time` at most, until something is said. Answers false when interrupted.
    fn poll_events(&mut self, time: Duration) -> Result<bool> {
        let mut next = self.events.recv_timeout(time).ok();
        while let Some(events) = next {
            match events {
                Event::Interrupted => return Ok(false),
                Event::Elected(line) => {
                    eprintln!("coordinator: {line}");
                    self.election = Some(line);
                }
                Event::Report(at, WorkerReport::Replica(said)) => {
                    self.checkpoints[at].extend_from_slice(&said.checkpoints);
                    self.gaps[at] = self.gaps[at].max((said.gap_ns, said.gap_until_ns));
                    self.replicas[at] = said;
                }
                Event::Report(at, WorkerReport::Client(sent)) => {
                    self.clients[at - REPLICAS] = Some(sent)
                }
            }
            next = self.events.try_recv().ok();
        }
        Ok(true)
    }

    /// Lets them work for `time`. Answers false when interrupted.
    fn run_for(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        let (mut next_report, mut before) = (Instant::now() + REPORT_INTERVAL, self.slowest());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if !self.poll_events(left.min(REPORT_INTERVAL))? {
                return Ok(false);
            }
            if Instant::now() >= next_report {
                next_report += REPORT_INTERVAL;
                let now = self.slowest();
                let rate = (now - before) as f64 / REPORT_INTERVAL.as_secs_f64();
                eprintln!("{:>8} delivered, {:>7}/s", readable(now as f64), readable(rate));
                before = now;
            }
        }
    }

    /// Which of the members leads, as the coordinator has said last; at first the first.
    fn leader(&self) -> usize {
        // "process 1 leads …": members have the first ids.
        let word = self.election.as_deref().and_then(|line| line.split(' ').nth(1));
        let process = word.and_then(|word| word.parse().ok());
        process.filter(|process| *process < MEMBERS).unwrap_or_default()
    }

    fn slowest(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.count).min().unwrap_or_default()
    }

    /// Whether everything held.
    fn verify(&mut self, summary: &mut Summary, killed_ns: Option<u64>) {
        let Self { replicas, checkpoints, .. } = self;
        let mut violations = |what: String| summary.violations.push(what);
        for (at, replica) in replicas.iter().enumerate() {
            if replica.is_behind {
                violations(format!("replica {at}fell behind"));
            }
            if replica.count != summary.sent {
                violations(format!(
                    "replica {at} has delivered {} of {}",
                    replica.count, summary.sent
                ));
            }
            if replica.hash != replicas[0].hash || checkpoints[at] != checkpoints[0] {
                violations(format!("replicas 0 and {at} have delivered in different orders"));
            }
        }
        if summary.completed != summary.sent {
            violations(format!("{} of {}messages completed", summary.completed, summary.sent));
        }
        if summary.sent == 0 {
            violations("nothing was sent".into());
        }
        if killed_ns.is_some() && summary.election.is_none() {
            violations("no leader was elected".into());
        }
        summary.delivered = replicas.iter().map(|replica| replica.count).collect();
        summary.messages_per_s = summary.sent as f64 / summary.seconds.max(1e-3);
        summary.next_delivery_ms = killed_ns.and_then(|killed| {
            // The longest silence of each since then began with the kill.
            let after = self.gaps.iter().map(|(_, until)| until.checked_sub(killed));
            let slowest = after.collect::<Option<Vec<_>>>()?.into_iter().max();
            slowest.map(|ns| ns as f64 / 1e6)
        });
        summary.invariants_held = summary.violations.is_empty();
    }
}

/// Waits until `member` has said a line that begins with `word`.
fn wait_for_line(
    member: &mut ChildProcess,
    word: &str,
) -> Result<std::io::Lines<std::io::BufReader<std::process::ChildStdout>>> {
    let mut lines = member.output()?.lines();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.starts_with(word) => return Ok(lines),
            Some(Ok(_)) => {}
            _ => bail!("a process did not start: {}", member.failure_reason()),
        }
    }
}

impl Drop for DemoGroup {
    fn drop(&mut self) {
        let all = self.members.iter_mut().chain(&mut self.coordinator).chain(&mut self.workers);
        end_all(all);
        // It was not created if the coordinator did not come that far.
        let _ = std::fs::remove_file(&self.store);
    }
}

impl Summary {
    fn print(&self, is_json: bool) -> Result<()> {
        let mut out = stdout().lock();
        if is_json {
            serde_json::to_writer(&mut out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(
            out,
            "{} messages in {:.1} s ({}/s), all delivered by {} replicas in one order: {}",
            self.sent,
            self.seconds,
            readable(self.messages_per_s),
            self.replicas,
            if self.invariants_held { "yes" } else { "NO" },
        )?;
        if let Some(ms) = self.next_delivery_ms {
            writeln!(
                out,
                "the leader was killed; {ms:.1} ms later the next message was delivered"
            )?;
        }
        for violations in &self.violations {
            writeln!(out, "VIOLATION  {violations}")?;
        }
        Ok(())
    }
}
