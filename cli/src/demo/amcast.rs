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

/// Timeout of a step that normally takes milliseconds.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of progress lines.
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

/// Start a group of three members, three replicas and two clients, and kill the leader
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Time for which the clients send, in seconds
    #[arg(long, default_value = "4", value_parser = units::seconds)]
    seconds: f64,
    /// Bytes per message
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(8..=1336))]
    size: u32,
    /// Maximum number of messages that each client has in flight
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Messages per second of each client
    #[arg(long, default_value = "1000", value_parser = units::rate)]
    rate: f64,
    /// Replace a leader that has not replied to the coordinator for this time
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::time_ns)]
    leader_timeout: u64,
    /// Do not kill the leader
    #[arg(long)]
    no_kill: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Result of the demo, as printed.
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
    /// Pid of the killed leader.
    killed_pid: Option<u32>,
    /// The coordinator's report of the election.
    election: Option<String>,
    /// Time from the kill to the next delivery of the slowest replica, in ms.
    next_delivery_ms: Option<f64>,
    /// Violated invariants.
    violations: Vec<String>,
    invariants_held: bool,
}

enum Event {
    Report(usize, WorkerReport),
    Elected(String),
    Interrupted,
}

/// All processes with their reports; killed on drop.
struct DemoGroup {
    members: Vec<ChildProcess>,
    coordinator: Vec<ChildProcess>,
    /// Replicas, then clients.
    workers: Vec<ChildProcess>,
    store: PathBuf,
    events: Receiver<Event>,
    events_tx: Sender<Event>,
    replicas: Vec<Delivered>,
    /// Hashes of the deliveries at the checkpoints, by replica.
    checkpoints: Vec<Vec<u64>>,
    clients: Vec<Option<Sent>>,
    election: Option<String>,
    /// For each replica, the longest gap between deliveries since the kill and its end, in ns.
    gaps: Vec<(u64, u64)>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut group = DemoGroup::start(arguments)?;
    let events_tx = group.events_tx.clone();
    crate::interrupt::on_interrupt(move || {
        // Fails when the demo has ended.
        let _ = events_tx.send(Event::Interrupted);
    })?;
    let Some(summary) = run_scenario(&mut group, arguments)? else {
        eprintln!("onepipe: interrupted");
        return Ok(ExitCode::from(crate::interrupt::EXIT_STATUS));
    };
    summary.print(arguments.json).context("cannot print")?;
    Ok(if summary.invariants_held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the whole scenario. Returns `None` if it was interrupted.
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
        // An earlier election, on an overloaded machine, does not count.
        group.election = None;
        summary.killed_pid = Some(group.members[leader].kill()?);
        eprintln!("member {leader}, the leader, was killed");
    }
    if !group.run_for(half)? {
        return Ok(None);
    }
    summary.seconds = began.elapsed().as_secs_f64();
    // The clients exit when all their messages are complete.
    let deadline = Instant::now() + 2 * STEP_TIMEOUT;
    for client in &mut group.workers[REPLICAS..] {
        if !client.wait_exit(deadline) {
            summary.violations.push("a client did not exit".into());
        }
    }
    let sent =
        |group: &DemoGroup| group.clients.iter().flatten().map(|sent| sent.sent).sum::<u64>();
    // Their last reports are written by now, but not all read.
    let deadline = Instant::now() + STEP_TIMEOUT;
    let mut is_complete = false;
    while !is_complete && Instant::now() < deadline {
        group.poll_events(Duration::from_millis(100))?;
        let all = sent(group);
        let completed: u64 = group.clients.iter().flatten().map(|sent| sent.completed).sum();
        is_complete = completed == all && group.replicas.iter().all(|replica| replica.count == all);
    }
    summary.sent = sent(group);
    summary.completed = group.clients.iter().flatten().map(|sent| sent.completed).sum();
    summary.election.clone_from(&group.election);
    group.verify(&mut summary, killed_ns);
    Ok(Some(summary))
}

impl DemoGroup {
    /// Starts all processes. The members listen before the coordinator, which would replace a
    /// leader that does not reply; the clients, which send at once, come last.
    fn start(arguments: &Arguments) -> Result<Self> {
        let layout = Loopback {
            groups: 1,
            members: MEMBERS,
            replicas: REPLICAS,
            clients: CLIENTS,
            coordinators: 1,
        };
        let directory = layout.directory().context("no free ports")?;
        let join_addresses =
            |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let addresses_of = |role| directory.of(role);
        let (members, replicas) =
            (addresses_of(Role::Member(GROUP)), addresses_of(Role::Replica(GROUP)));
        let (clients, coordinator) = (addresses_of(Role::Client), addresses_of(Role::Coordinator));
        let group_options = [
            ("--group", format!("0={}", join_addresses(&members))),
            ("--replicas", format!("0={}", join_addresses(&replicas))),
            ("--clients", join_addresses(&clients)),
            ("--coordinators", join_addresses(&coordinator)),
            ("--window", arguments.window.to_string()),
        ];
        let start = |name: String, command: &str, address: SocketAddr, options: &[&str]| {
            let address = address.to_string();
            let group_options =
                group_options.iter().flat_map(|(key, value)| [*key, value.as_str()]);
            let arguments = [command, "--listen", &address].into_iter().chain(group_options);
            let arguments = arguments.chain(options.iter().copied());
            ChildProcess::start(name, &arguments.collect::<Vec<_>>())
        };
        // In memory if possible; no decision outlives the demo.
        let shared_memory = Path::new("/dev/shm");
        let store_dir =
            if shared_memory.is_dir() { shared_memory.to_path_buf() } else { std::env::temp_dir() };
        let store = store_dir.join(format!("onepipe-amcast-{}.redb", std::process::id()));
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
        for (number, address) in members.iter().enumerate() {
            let member =
                start(format!("member {number}"), "member", *address, &["--exit-on-stdin-eof"])?;
            group.members.push(member);
        }
        for member in &mut group.members {
            wait_for_line(member, "member")?;
        }
        let (path, leader_timeout) =
            (group.store.to_string_lossy().into_owned(), format!("{}ns", arguments.leader_timeout));
        let options = [
            "--store",
            &path,
            "--leader-timeout",
            &leader_timeout,
            "--exit-on-stdin-eof",
            "--remove-store",
        ];
        let coordinator = start("the coordinator".into(), "coordinator", coordinator[0], &options)?;
        group.coordinator.push(coordinator);
        let events_tx = group.events_tx.clone();
        let lines = wait_for_line(&mut group.coordinator[0], "active")?;
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Fails when the demo has ended.
                let _ = events_tx.send(Event::Elected(line));
            }
        });
        let (bytes, rate) = (arguments.size.to_string(), arguments.rate.to_string());
        for (number, address) in replicas.iter().enumerate() {
            group.start_worker(start(
                format!("replica {number}"),
                "amcast-worker",
                *address,
                &[],
            )?)?;
        }
        for (number, address) in clients.iter().enumerate() {
            let options = ["--sends", "--size", &bytes, "--rate", &rate];
            group.start_worker(start(
                format!("client {number}"),
                "amcast-worker",
                *address,
                &options,
            )?)?;
        }
        Ok(group)
    }

    fn start_worker(&mut self, mut worker: ChildProcess) -> Result<()> {
        let (number, events_tx, output) =
            (self.workers.len(), self.events_tx.clone(), worker.output()?);
        self.workers.push(worker);
        std::thread::spawn(move || {
            for line in output.lines() {
                // A line that was cut short by a kill is ignored.
                let report = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                let Some(report) = report else { break };
                if events_tx.send(Event::Report(number, report)).is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Handles events for `time` at most, until one arrives. Returns false when interrupted.
    fn poll_events(&mut self, time: Duration) -> Result<bool> {
        let mut next = self.events.recv_timeout(time).ok();
        while let Some(event) = next {
            match event {
                Event::Interrupted => return Ok(false),
                Event::Elected(line) => {
                    eprintln!("coordinator: {line}");
                    self.election = Some(line);
                }
                Event::Report(worker, WorkerReport::Replica(report)) => {
                    self.checkpoints[worker].extend_from_slice(&report.checkpoints);
                    self.gaps[worker] = self.gaps[worker].max((report.gap_ns, report.gap_until_ns));
                    self.replicas[worker] = report;
                }
                Event::Report(worker, WorkerReport::Client(sent)) => {
                    self.clients[worker - REPLICAS] = Some(sent)
                }
            }
            next = self.events.try_recv().ok();
        }
        Ok(true)
    }

    /// Runs for `time` and prints progress. Returns false when interrupted.
    fn run_for(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        let (mut next_report, mut before) =
            (Instant::now() + REPORT_INTERVAL, self.slowest_count());
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
                let now = self.slowest_count();
                let rate = (now - before) as f64 / REPORT_INTERVAL.as_secs_f64();
                eprintln!("{:>8} delivered, {:>7}/s", readable(now as f64), readable(rate));
                before = now;
            }
        }
    }

    /// Returns the index of the leader: of the last one elected, initially 0.
    fn leader(&self) -> usize {
        // "process 1 leads …": members have the first ids.
        let word = self.election.as_deref().and_then(|line| line.split(' ').nth(1));
        let process = word.and_then(|word| word.parse().ok());
        process.filter(|process| *process < MEMBERS).unwrap_or_default()
    }

    /// Returns the number of deliveries of the slowest replica.
    fn slowest_count(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.count).min().unwrap_or_default()
    }

    /// Verifies all invariants.
    fn verify(&mut self, summary: &mut Summary, killed_ns: Option<u64>) {
        let Self { replicas, checkpoints, .. } = self;
        let mut add_violation = |violation: String| summary.violations.push(violation);
        for (number, replica) in replicas.iter().enumerate() {
            if replica.is_behind {
                add_violation(format!("replica {number} fell behind"));
            }
            if replica.count != summary.sent {
                add_violation(format!(
                    "replica {number} has delivered {} of {}",
                    replica.count, summary.sent
                ));
            }
            if replica.hash != replicas[0].hash || checkpoints[number] != checkpoints[0] {
                add_violation(format!(
                    "replicas 0 and {number} have delivered in different orders"
                ));
            }
        }
        if summary.completed != summary.sent {
            add_violation(format!("{} of {} messages completed", summary.completed, summary.sent));
        }
        if summary.sent == 0 {
            add_violation("nothing was sent".into());
        }
        if killed_ns.is_some() && summary.election.is_none() {
            add_violation("no leader was elected".into());
        }
        summary.delivered = replicas.iter().map(|replica| replica.count).collect();
        summary.messages_per_s = summary.sent as f64 / summary.seconds.max(1e-3);
        summary.next_delivery_ms = killed_ns.and_then(|killed| {
            // The longest gap of each replica since the kill began with it.
            let after = self.gaps.iter().map(|(_, until)| until.checked_sub(killed));
            let slowest = after.collect::<Option<Vec<_>>>()?.into_iter().max();
            slowest.map(|ns| ns as f64 / 1e6)
        });
        summary.invariants_held = summary.violations.is_empty();
    }
}

/// Waits until `member` has printed a line that begins with `word`.
fn wait_for_line(
    process: &mut ChildProcess,
    word: &str,
) -> Result<std::io::Lines<std::io::BufReader<std::process::ChildStdout>>> {
    let mut lines = process.output()?.lines();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.starts_with(word) => return Ok(lines),
            Some(Ok(_)) => {}
            _ => bail!("a process did not start: {}", process.failure_reason()),
        }
    }
}

impl Drop for DemoGroup {
    fn drop(&mut self) {
        let all = self.members.iter_mut().chain(&mut self.coordinator).chain(&mut self.workers);
        end_all(all);
        // The file does not exist if the coordinator decided nothing.
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
        for violation in &self.violations {
            writeln!(out, "VIOLATION  {violation}")?;
        }
        Ok(())
    }
}
