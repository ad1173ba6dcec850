//! `onepipe arbiter`: the arbiter of scheduled transfer.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use onepipe::{Incarnation, ProcessId};
use onepipe_arbiter::{ArbiterEvent, ClientConfig, Core, Fabric, Policy, Role};
use onepipe_daemon_arbiter::{ArbiterDaemon, Config, Report};
use onepipe_transport_driver::Idle;

use crate::args::{JoinArgs, ServeArgs, address};
use crate::status::avoided_text;
use crate::units::{self, readable, readable_ns};

const EXAMPLES: &str = "\
Examples:
  onepipe arbiter --udp 127.0.0.1:4410                 for processes 0 to 63, as process 1000
  onepipe arbiter --udp 10.0.0.1:4410 --nodes 256 --rack-nodes 32 --paths 4 --slot 1.2us
  onepipe arbiter --udp 127.0.0.1:4410 --process 1001 --peers 1000 --secondary
  onepipe arbiter --udp 127.0.0.1:4410 --cores 0,2-3 --spin

Two arbiters take over from each other: --peers names the other one.";

/// Run an arbiter, which grants endpoints the timeslots in which they send bulk data
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Address of the switch
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_SWITCH", value_parser = address)]
    udp: SocketAddr,
    /// Process id of the arbiter, which must not be that of an endpoint
    #[arg(long, value_name = "ID", default_value_t = 1000)]
    process: u32,
    /// Number of endpoints: they are the processes 0 to NODES - 1
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    nodes: u32,
    /// Endpoints per rack, numbered rack by rack [default: all behind one switch]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    rack_nodes: Option<u32>,
    /// Number of paths between any two racks
    #[arg(long, requires = "rack_nodes", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    paths: u32,
    /// Length of a timeslot: the time of a full frame on an endpoint's link
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = units::timeslot_ns)]
    slot: u64,
    /// Time between granting a batch and its first timeslot
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = units::time_ns)]
    lead: u64,
    /// Number of timeslots in a batch
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: u32,
    /// Allocation policy
    #[arg(long, value_enum, default_value_t = PolicyArg::Fair)]
    policy: PolicyArg,
    /// Process ids of the other arbiters, which take over from each other
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    peers: Vec<u32>,
    /// Start as a secondary, which waits for the primary to fail
    #[arg(long, requires = "peers")]
    secondary: bool,
    /// Time without a frame of the primary after which a secondary takes over
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = units::time_ns)]
    takeover: u64,
    /// Busy-poll: takes whole cores
    #[arg(long)]
    spin: bool,
    /// Number of cores, or a list like 0,2-3: the first for I/O, the others for allocation
    /// [default: one, not pinned]
    #[arg(long, value_name = "N|LIST", value_parser = cores)]
    cores: Option<Cores>,
    /// Address of the HTTP status page, for `onepipe status --from` [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    status_listen: Option<SocketAddr>,
    #[command(flatten)]
    join_args: JoinArgs,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// The cores of an arbiter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cores {
    /// A number of cores.
    Count(usize),
    /// A list of cores.
    List(Vec<usize>),
}

/// Parses a number of cores, or a list of them.
fn cores(text: &str) -> Result<Cores, String> {
    let parse_core = |text: &str| match text.parse::<usize>() {
        Ok(core) if core < 1024 => Ok(core),
        _ => Err(format!(
            "{text:?} is not a core: write a number of cores like 2, or a list like 0,2-3"
        )),
    };
    if let Ok(count) = text.parse::<usize>() {
        let is_in_range = (1..=64).contains(&count);
        return if is_in_range {
            Ok(Cores::Count(count))
        } else {
            Err("expected 1 to 64 cores".to_owned())
        };
    }
    let mut listed = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_core(first)?, parse_core(last)?);
        if last < first || (first..=last).any(|core| listed.contains(&core)) {
            return Err(format!("{part:?} is descending or a duplicate"));
        }
        listed.extend(first..=last);
    }
    Ok(Cores::List(listed))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// Least recently served pair first
    Fair,
    /// Pair with the smallest backlog first
    Shortest,
}

impl PolicyArg {
    pub const fn policy(self) -> Policy {
        match self {
            Self::Fair => Policy::MaxMinFair,
            Self::Shortest => Policy::ShortestFirst,
        }
    }
}

/// Exits with a usage error if the arguments contradict each other.
fn check(arguments: &Arguments) {
    let Arguments { process, nodes, lead, ref peers, .. } = *arguments;
    let endpoints = || format!("endpoints are 0 to {} with --nodes {nodes}", nodes - 1);
    if process < nodes {
        crate::usage_error(&format!(
            "--process {process} is the id of an endpoint: {}",
            endpoints()
        ));
    }
    for (index, peer) in peers.iter().enumerate() {
        if *peer == process {
            crate::usage_error(&format!("--peers names {peer}, which is this arbiter itself"));
        }
        if *peer < nodes {
            crate::usage_error(&format!(
                "--peers {peer} is the id of an endpoint: {}",
                endpoints()
            ));
        }
        if peers[..index].contains(peer) {
            crate::usage_error(&format!("--peers names {peer} twice"));
        }
    }
    if lead > ClientConfig::LEAD_NS_MAX {
        crate::usage_error(&format!(
            "--lead {} is too long: endpoints reject timeslots that begin more than {} ahead",
            readable_ns(lead),
            readable_ns(ClientConfig::LEAD_NS_MAX)
        ));
    }
}

/// Runs an arbiter until it is interrupted or replaced.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    check(arguments);
    let mut daemon = ArbiterDaemon::new(&config(arguments)?).context("cannot start an arbiter")?;
    let stop =
        crate::interrupt::stop_flag(daemon.doorbell(), arguments.serve_args.exit_on_stdin_eof)?;
    writeln!(stdout(), "arbiter {} behind {}", arguments.process, arguments.udp)
        .context("cannot print")?;
    if let Some(addr) = daemon.status_addr() {
        writeln!(stdout(), "status at http://{addr}/status").context("cannot print")?;
    }

    let began = Instant::now();
    let interval = arguments.serve_args.stats_interval.map(Duration::from_nanos);
    let mut next_print = interval.map(|interval| began + interval);
    let mut before = daemon.report();
    let mut print_result = Ok(());
    let mut replaced = None;
    daemon.prepare_thread();
    let mut refusal = None;
    while !stop.load(Ordering::Acquire) && replaced.is_none() && refusal.is_none() {
        let progress = daemon.turn(|event| {
            if let ArbiterEvent::Replaced { by } = event {
                replaced = Some(by);
            }
            if print_result.is_ok() {
                print_result = print(event);
            }
        });
        if let (Some(at), Some(interval)) = (next_print, interval)
            && Instant::now() >= at
        {
            next_print = Some(at + interval);
            before = print_interval(&daemon.report(), &before, began, interval);
        }
        refusal = daemon.refusal();
        daemon.rest(progress);
    }
    print_result.context("cannot print")?;
    let report = daemon.report();
    print_summary(&report, began, arguments.serve_args.json)?;
    if let Some(refusal) = refusal {
        return Err(refusal.into());
    }
    match replaced {
        None => Ok(ExitCode::SUCCESS),
        Some(by) => Err(replaced_error(&report, by)),
    }
}

fn config(arguments: &Arguments) -> Result<Config> {
    let Arguments { nodes, paths, .. } = *arguments;
    let process = ProcessId(arguments.process);
    let mut config = Config::new(arguments.udp, process, nodes, arguments.slot);
    let machine = &mut config.machine;
    if let Some(rack_nodes) = arguments.rack_nodes {
        machine.core = Core::Racks(Fabric { nodes, rack_nodes, paths, is_strict: false });
    }
    machine.lead_ns = arguments.lead;
    machine.allocator.batch_slots = arguments.batch;
    machine.allocator.policy = arguments.policy.policy();
    machine.failover.peers = arguments.peers.iter().copied().map(ProcessId).collect();
    machine.failover.takeover_ns = arguments.takeover;
    // Ten heartbeats fit into the takeover time, so the loss of one is no takeover.
    machine.failover.watchdog_ns = (arguments.takeover / 10).max(1);
    if arguments.secondary {
        machine.failover.role = Role::Secondary;
    }
    if arguments.spin {
        config.idle = Idle::Spin;
    }
    config.cores = match &arguments.cores {
        None => Vec::new(),
        Some(Cores::List(list)) => list.clone(),
        Some(Cores::Count(count)) => {
            let available = onepipe_transport_clock::cores().context("cannot list the cores")?;
            // With fewer cores, several threads share one.
            available.into_iter().cycle().take(*count).collect()
        }
    };
    config.status_listen = arguments.status_listen;
    config.wait = arguments.join_args.wait();
    Ok(config)
}

/// Explains why an arbiter was replaced by another one with its id.
fn replaced_error(report: &Report, by: Incarnation) -> anyhow::Error {
    let Report { process, incarnation, attachment, .. } = report;
    // An incarnation counts eighths of a second, unless an id is started more often.
    let later_s = f64::from(by.0.wrapping_sub(*incarnation)) / 8.0;
    anyhow!(
        "another arbiter started as process {process} {later_s:.0} s after this one, and endpoints \
         use it (its incarnation {}, this one's {incarnation}, behind {attachment}): give each arbiter \
         its own --process, and name the others with --peers",
        by.0
    )
}

/// Prints the role of the arbiter, and logs other events.
fn print(event: ArbiterEvent) -> std::io::Result<()> {
    let mut out = stdout().lock();
    match event {
        ArbiterEvent::Primary(from) => writeln!(out, "primary from timeslot {}", from.0)?,
        ArbiterEvent::Secondary => writeln!(out, "secondary")?,
        ArbiterEvent::Avoided(fault) => tracing::warn!("avoids {fault}"),
        ArbiterEvent::Retried(fault) => tracing::info!("retries {fault}"),
        ArbiterEvent::Replaced { .. } => tracing::error!("replaced"),
        other => tracing::info!("{other:?}"),
    }
    out.flush()
}

/// Prints the changes since `before`. Returns the present report.
fn print_interval(now: &Report, before: &Report, began: Instant, interval: Duration) -> Report {
    let rate = |now: u64, before: u64| readable((now - before) as f64 / interval.as_secs_f64());
    eprintln!(
        "{:>6.0} s  {}, {} timeslots requested/s, {} granted/s, {} waiting, {} packets/s in, {} out",
        began.elapsed().as_secs_f64(),
        if now.is_primary { "primary" } else { "secondary" },
        rate(now.slots_demanded, before.slots_demanded),
        rate(now.slots_granted, before.slots_granted),
        now.slots_waiting,
        rate(now.packets_received, before.packets_received),
        rate(now.packets_sent, before.packets_sent),
    );
    if !now.avoided.is_empty() {
        eprintln!("          avoids {}", avoided_text(now));
    }
    now.clone()
}

fn print_summary(report: &Report, began: Instant, is_json: bool) -> Result<()> {
    let mut out = stdout().lock();
    if is_json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "ran for {:.1} s: {} timeslots requested, {} granted, {} skipped, {} waiting; {} packets \
         received, {} sent, {} invalid; {} takeovers",
        began.elapsed().as_secs_f64(),
        report.slots_demanded,
        report.slots_granted,
        report.slots_skipped,
        report.slots_waiting,
        report.packets_received,
        report.packets_sent,
        report.packets_bad,
        report.takeovers,
    )?;
    if report.faults_found > 0 {
        let Report { packets_lost, faults_found, faults_retried, .. } = report;
        let avoided = avoided_text(report);
        writeln!(
            out,
            "{packets_lost} packets reported lost; {faults_found} faults located, \
             {faults_retried} retried; avoids {avoided}"
        )?;
    }
    if report.packets_unknown > 0 {
        let endpoints = report.endpoints;
        let packets = report.packets_unknown;
        writeln!(
            out,
            "{packets} packets from processes that are not among its {endpoints} endpoints"
        )?;
    }
    if report.packets_mismatched > 0 {
        let (packets, slot_ns) = (report.packets_mismatched, report.slot_ns);
        let endpoints = report.endpoints;
        writeln!(
            out,
            "{packets} packets from endpoints with other settings than timeslots of {slot_ns} ns \
             and {endpoints} endpoints"
        )?;
    }
    Ok(())
}
