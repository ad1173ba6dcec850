//! `onepipe demo amcast`: a group of three members as processes, of which the leader is killed.
//!
//! The clients (`send`) and the replicas (`deliver`) are threads of this program; each is what a
//! program over the crate `onepipe` would do.

use std::fmt;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use onepipe::{Amcast, AmcastReplica, Directory, GroupId, Loopback, Role};
use serde::Serialize;

use crate::child_process::{ChildProcess, TemporaryStore};
use crate::interrupt;
use crate::units::{self, readable};

/// Timeout for all messages to be complete and delivered.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of progress lines.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which replicas and the demo itself look around.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Sleep of an idle client.
const IDLE_SLEEP: Duration = Duration::from_micros(200);
/// Deliveries between two checkpoints of the order.
const CHECKPOINT: u64 = 256;
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
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(8..=1350))]
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

/// The group's processes, killed on drop.
struct DemoGroup {
    directory: Directory,
    members: Vec<ChildProcess>,
    /// The coordinator's report of the last election.
    election: Arc<Mutex<Option<String>>>,
    _coordinator: ChildProcess,
    _store: TemporaryStore,
}

/// State that the threads of the demo share.
#[derive(Default)]
struct Shared {
    must_stop_sending: AtomicBool,
    must_stop: AtomicBool,
    /// Messages that the clients have sent, and those that are complete.
    sent: AtomicU64,
    completed: AtomicU64,
    replicas: [Mutex<Delivered>; REPLICAS],
}

/// Deliveries of a replica.
#[derive(Clone, Default)]
struct Delivered {
    count: u64,
    /// Hash of all deliveries in order, and that after every [`CHECKPOINT`] of them.
    hash: u64,
    checkpoints: Vec<u64>,
    last: Option<Instant>,
    /// Longest gap between deliveries since the kill, and its end.
    gap: Option<(Duration, Instant)>,
    /// Whether it missed more messages than members retain.
    is_behind: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let summary = run_demo(arguments, &*interrupt::flag()?)?;
    super::conclude(&summary, arguments.json, summary.invariants_held)
}

fn run_demo(arguments: &Arguments, stop: &AtomicBool) -> Result<Summary> {
    let mut group = DemoGroup::start(arguments)?;
    let shared = Shared::default();
    let open_replica = |at| AmcastReplica::open(&group.directory, at).context("cannot start");
    let replicas = group.directory.of(Role::Replica(GROUP)).into_iter().map(open_replica);
    let replicas = replicas.collect::<Result<Vec<_>>>()?;
    let open_client = |at| Amcast::open(&group.directory, at).context("cannot start");
    let clients = group.directory.of(Role::Client).into_iter().map(open_client);
    let clients = clients.collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        for (replica, delivered) in replicas.into_iter().zip(&shared.replicas) {
            scope.spawn(|| deliver(replica, delivered, &shared.must_stop));
        }
        for client in clients {
            scope.spawn(|| send(client, arguments, &shared));
        }
        let summary = run_scenario(arguments, &mut group, &shared, stop);
        shared.must_stop.store(true, Ordering::Release);
        summary
    })
}

/// Sends at the given rate as the window permits, until all messages are complete.
fn send(mut client: Amcast, arguments: &Arguments, shared: &Shared) {
    let (began, mut sent) = (Instant::now(), 0u64);
    let mut message = vec![0; arguments.size as usize];
    while !shared.must_stop.load(Ordering::Acquire) {
        let due = (began.elapsed().as_secs_f64() * arguments.rate) as u64;
        let has_stopped = || shared.must_stop_sending.load(Ordering::Acquire);
        message[..8].copy_from_slice(&sent.to_be_bytes());
        // Fails when the window is full.
        while sent < due && !has_stopped() && client.amcast(&[GROUP.0], &message).is_ok() {
            sent += 1;
            shared.sent.fetch_add(1, Ordering::AcqRel);
            message[..8].copy_from_slice(&sent.to_be_bytes());
        }
        let mut completed = 0;
        client.poll(|_| completed += 1);
        shared.completed.fetch_add(completed, Ordering::AcqRel);
        if completed == 0 {
            std::thread::sleep(IDLE_SLEEP);
        }
    }
}

/// Delivers until `must_stop` is set.
fn deliver(mut replica: AmcastReplica, delivered: &Mutex<Delivered>, must_stop: &AtomicBool) {
    while !must_stop.load(Ordering::Acquire) {
        let waited = replica.wait(POLL_INTERVAL, |message, id, position| {
            let number = message.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
            let id = u64::from(id.client) << 32 | u64::from(id.sequence);
            lock(delivered).record([id, position.0, number]);
        });
        if waited.is_err() {
            lock(delivered).is_behind = true;
            return;
        }
    }
}

impl Delivered {
    /// Adds a delivery to the count, the hash and the gaps.
    fn record(&mut self, words: [u64; 3]) {
        for word in words {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.count += 1;
        if self.count.is_multiple_of(CHECKPOINT) {
            self.checkpoints.push(self.hash);
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.gap = self.gap.max(Some((now - last, now)));
        }
    }
}

/// Runs the whole scenario.
fn run_scenario(
    arguments: &Arguments,
    group: &mut DemoGroup,
    shared: &Shared,
    stop: &AtomicBool,
) -> Result<Summary> {
    let (began, half) = (Instant::now(), Duration::from_secs_f64(arguments.seconds / 2.0));
    let mut summary =
        Summary { members: MEMBERS, replicas: REPLICAS, clients: CLIENTS, ..Summary::default() };
    shared.run_for(half, stop)?;
    let mut killed = None;
    if !arguments.no_kill {
        killed = Some(Instant::now());
        shared.replicas.iter().for_each(|replica| lock(replica).gap = None);
        let leader = group.leader();
        // An earlier election, on an overloaded machine, does not count.
        *lock(&group.election) = None;
        summary.killed_pid = Some(group.members[leader].kill()?);
        eprintln!("member {leader}, the leader, was killed");
    }
    shared.run_for(half, stop)?;
    summary.seconds = began.elapsed().as_secs_f64();
    shared.must_stop_sending.store(true, Ordering::Release);
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    loop {
        // A client may send until it has seen the flag.
        std::thread::sleep(POLL_INTERVAL);
        let sent = shared.sent.load(Ordering::Acquire);
        let completed = shared.completed.load(Ordering::Acquire);
        let is_complete = completed == sent && shared.slowest_count() == sent;
        if is_complete || Instant::now() >= deadline {
            break;
        }
        interrupt::check(stop)?;
    }
    summary.election.clone_from(&lock(&group.election));
    shared.verify(&mut summary, killed);
    Ok(summary)
}

impl Shared {
    /// Prints progress for `time`.
    fn run_for(&self, time: Duration, stop: &AtomicBool) -> Result<()> {
        let (until, mut before) = (Instant::now() + time, self.slowest_count());
        let mut next_report = Instant::now() + REPORT_INTERVAL;
        while Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
            interrupt::check(stop)?;
            if Instant::now() >= next_report {
                next_report += REPORT_INTERVAL;
                let now = self.slowest_count();
                let rate = (now - before) as f64 / REPORT_INTERVAL.as_secs_f64();
                eprintln!("{:>8} delivered, {:>7}/s", readable(now as f64), readable(rate));
                before = now;
            }
        }
        Ok(())
    }

    /// Returns the number of deliveries of the slowest replica.
    fn slowest_count(&self) -> u64 {
        self.replicas.iter().map(|replica| lock(replica).count).min().unwrap_or_default()
    }

    /// Verifies all invariants.
    fn verify(&self, summary: &mut Summary, killed: Option<Instant>) {
        let replicas = self.replicas.each_ref().map(|replica| lock(replica).clone());
        let counts = [&self.sent, &self.completed];
        let [sent, completed] = counts.map(|count| count.load(Ordering::Acquire));
        let mut require = |holds: bool, otherwise: String| {
            if !holds {
                summary.violations.push(otherwise);
            }
        };
        for (number, replica) in replicas.iter().enumerate() {
            let count = replica.count;
            require(!replica.is_behind, format!("replica {number} fell behind"));
            require(count == sent, format!("replica {number} has delivered {count} of {sent}"));
            let [one, other] = [replica, &replicas[0]].map(|one| (one.hash, &one.checkpoints));
            let different = format!("replicas 0 and {number} have delivered in different orders");
            require(one == other, different);
        }
        require(completed == sent, format!("{completed} of {sent} messages completed"));
        require(sent > 0, "nothing was sent".into());
        let is_replaced = killed.is_none() || summary.election.is_some();
        require(is_replaced, "no leader was elected".into());
        (summary.sent, summary.completed) = (sent, completed);
        summary.delivered = replicas.iter().map(|replica| replica.count).collect();
        summary.messages_per_s = sent as f64 / summary.seconds.max(1e-3);
        summary.next_delivery_ms = killed.and_then(|killed| {
            // The longest gap of each replica since the kill began with it.
            let ends = replicas.iter().map(|replica| replica.gap.map(|(_, end)| end - killed));
            let slowest = ends.collect::<Option<Vec<_>>>()?.into_iter().max();
            slowest.map(|time| time.as_secs_f64() * 1e3)
        });
        summary.invariants_held = summary.violations.is_empty();
    }
}

impl DemoGroup {
    /// Starts the members and the coordinator. The members come first, as the coordinator would
    /// replace a leader that does not reply.
    fn start(arguments: &Arguments) -> Result<Self> {
        let layout = Loopback {
            groups: 1,
            members: MEMBERS,
            replicas: REPLICAS,
            clients: CLIENTS,
            coordinators: 1,
        };
        let mut directory = layout.directory().context("no free ports")?;
        directory.set_window(arguments.window);
        let listed = |role| {
            let addresses = directory.of(role);
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let group_options = [
            ("--group", format!("0={}", listed(Role::Member(GROUP)))),
            ("--replicas", format!("0={}", listed(Role::Replica(GROUP)))),
            ("--clients", listed(Role::Client)),
            ("--coordinators", listed(Role::Coordinator)),
            ("--window", arguments.window.to_string()),
        ];
        let start = |name: String, command: &str, address: SocketAddr, options: &[&str]| {
            let address = address.to_string();
            let mut arguments = vec![command, "--listen", &address, "--exit-on-stdin-eof"];
            for (key, value) in &group_options {
                arguments.extend([*key, value]);
            }
            arguments.extend(options);
            ChildProcess::start(name, &arguments)
        };
        let mut members = Vec::new();
        for (number, address) in directory.of(Role::Member(GROUP)).into_iter().enumerate() {
            members.push(start(format!("member {number}"), "member", address, &[])?);
        }
        for member in &mut members {
            member.wait_for_line("member", drop)?;
        }
        let store = TemporaryStore::new("onepipe-amcast-");
        let (path, timeout) = (store.path(), format!("{}ns", arguments.leader_timeout));
        let options = ["--store", &path, "--leader-timeout", &timeout, "--remove-store"];
        let address = directory.of(Role::Coordinator)[0];
        let mut coordinator = start("the coordinator".into(), "coordinator", address, &options)?;
        let election: Arc<Mutex<Option<String>>> = Arc::default();
        let last = Arc::clone(&election);
        coordinator.wait_for_line("active", move |line| {
            eprintln!("coordinator: {line}");
            *lock(&last) = Some(line);
        })?;
        Ok(Self { directory, members, election, _coordinator: coordinator, _store: store })
    }

    /// Returns the index of the leader: of the last one elected, initially 0.
    fn leader(&self) -> usize {
        // "process 1 leads …": members have the first ids.
        let election = lock(&self.election);
        let word = election.as_deref().and_then(|line| line.split(' ').nth(1));
        let process = word.and_then(|word| word.parse().ok());
        process.filter(|process| *process < MEMBERS).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} messages in {:.1} s ({}/s), all delivered by {} replicas in one order: {}",
            self.sent,
            self.seconds,
            readable(self.messages_per_s),
            self.replicas,
            if self.invariants_held { "yes" } else { "NO" },
        )?;
        if let Some(ms) = self.next_delivery_ms {
            writeln!(f, "the leader was killed; {ms:.1} ms later the next message was delivered")?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "VIOLATION  {violation}"))
    }
}
