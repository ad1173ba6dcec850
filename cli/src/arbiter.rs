//! `onepipe arbiter`: the arbiter of scheduled transfer, until it is interrupted.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use onepipe::ProcessId;
use onepipe_arbiter::{ArbiterEvent, Core, Fabric, Policy, Role};
use onepipe_daemon_arbiter::{ArbiterDaemon, Config, Report};
use onepipe_transport_driver::Idle;

use crate::number::{self, readable};
use crate::switch::{Serving, address};

const EXAMPLES: &str = "\
Examples:
  onepipe arbiter --udp 127.0.0.1:4410                 for processes 0 to 63, as process 1000
  onepipe arbiter --udp 10.0.0.1:4410 --nodes 256 --rack-nodes 32 --paths 4 --slot 1.2us
  onepipe arbiter --udp 127.0.0.1:4410 --process 1001 --peers 1000 --secondary

Two arbiters take over from each other: each is told of the other by --peers.";

/// Run an arbiter, which gives endpoints the timeslots that they send bulk data in
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The switch that it sits behind
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_SWITCH", value_parser = address)]
    udp: SocketAddr,
    /// Its process id: none of the endpoints'
    #[arg(long, value_name = "ID", default_value_t = 1000)]
    process: u32,
    /// How many endpoints it serves: the processes below this number
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    nodes: u32,
    /// Endpoints of a rack, numbered rack by rack [default: all, up to 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    rack_nodes: Option<u32>,
    /// Ways from a rack to any other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    paths: u32,
    /// Length of a timeslot: what a full frame takes on an endpoint's link
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = number::time_ns)]
    slot: u64,
    /// How long before it begins a batch is given out
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = number::time_ns)]
    lead: u64,
    /// How many timeslots are given out together
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: u32,
    /// Whose packets go first
    #[arg(long, value_enum, default_value_t = Order::Fair)]
    policy: Order,
    /// The process ids of the other arbiters
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    peers: Vec<u32>,
    /// Begin as one that waits for another to be the primary
    #[arg(long, requires = "peers")]
    secondary: bool,
    /// How long nothing is heard of a primary before another arbiter takes over
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = number::time_ns)]
    takeover: u64,
    /// Never sleep: one core for itself
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    serving: Serving,
}

/// Whose packets go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Who was served least recently
    Fair,
    /// Who has the least left
    Shortest,
}

impl Order {
    pub const fn policy(self) -> Policy {
        match self {
            Self::Fair => Policy::MaxMinFair,
            Self::Shortest => Policy::ShortestFirst,
        }
    }
}

/// Runs an arbiter.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut daemon = ArbiterDaemon::new(&config(arguments)).context("cannot start an arbiter")?;
    let stop = crate::interrupt::stop_flag(daemon.doorbell(), arguments.serving.until_input_ends)?;
    writeln!(stdout(), "arbiter {} behind {}", arguments.process, arguments.udp)
        .context("cannot print")?;

    let began = Instant::now();
    let interval = arguments.serving.stats_interval.map(Duration::from_nanos);
    let mut next = interval.map(|interval| began + interval);
    let mut before = daemon.report();
    let mut printed = Ok(());
    onepipe_transport_clock::sharpen_timers();
    while !stop.load(Ordering::Acquire) {
        let progress = daemon.turn(|event| {
            if printed.is_ok() {
                printed = print(event);
            }
        });
        if let (Some(at), Some(interval)) = (next, interval)
            && Instant::now() >= at
        {
            next = Some(at + interval);
            before = print_interval(&daemon.report(), &before, began, interval);
        }
        daemon.rest(progress);
    }
    printed.context("cannot print")?;
    summarise(&daemon.report(), began, arguments.serving.json)?;
    Ok(ExitCode::SUCCESS)
}

fn config(arguments: &Arguments) -> Config {
    let Arguments { nodes, paths, .. } = *arguments;
    let process = ProcessId(arguments.process);
    let mut config = Config::new(arguments.udp, process, nodes, arguments.slot);
    let machine = &mut config.machine;
    let rack_nodes = arguments.rack_nodes.unwrap_or(nodes.min(64));
    machine.core = Core::Racks(Fabric { nodes, rack_nodes, paths, is_strict: false });
    machine.lead_ns = arguments.lead;
    machine.allocator.batch_slots = arguments.batch;
    machine.allocator.policy = arguments.policy.policy();
    machine.failover.peers = arguments.peers.iter().copied().map(ProcessId).collect();
    machine.failover.takeover_ns = arguments.takeover;
    machine.failover.watchdog_ns = (arguments.takeover / 10).max(1);
    if arguments.secondary {
        machine.failover.role = Role::Secondary;
    }
    if arguments.spin {
        config.idle = Idle::Spin;
    }
    config
}

/// One line for what has happened.
fn print(event: ArbiterEvent) -> std::io::Result<()> {
    let mut out = stdout().lock();
    match event {
        ArbiterEvent::Primary(from) => writeln!(out, "primary from timeslot {}", from.0)?,
        ArbiterEvent::Secondary => writeln!(out, "secondary")?,
        ArbiterEvent::Avoids(fault) => writeln!(out, "avoids {fault:?}")?,
        ArbiterEvent::Tries(fault) => writeln!(out, "tries {fault:?} again")?,
        other => writeln!(out, "{other:?}")?,
    }
    out.flush()
}

/// Prints what has happened since `before`.
fn print_interval(now: &Report, before: &Report, began: Instant, interval: Duration) -> Report {
    let rate = |now: u64, before: u64| readable((now - before) as f64 / interval.as_secs_f64());
    eprintln!(
        "{:>6.0} s  {}, {} timeslots asked for/s, {} granted/s, {} wait, {} packets/s in, {} out",
        began.elapsed().as_secs_f64(),
        if now.is_primary { "primary" } else { "secondary" },
        rate(now.slots_demanded, before.slots_demanded),
        rate(now.slots_granted, before.slots_granted),
        now.slots_waiting,
        rate(now.packets_received, before.packets_received),
        rate(now.packets_sent, before.packets_sent),
    );
    now.clone()
}

fn summarise(report: &Report, began: Instant, is_json: bool) -> Result<()> {
    let mut out = stdout().lock();
    if is_json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "ran for {:.1} s: {} timeslots asked for, {} granted, {} skipped, {} wait; {} packets \
         taken, {} sent, {} bad; {} times the primary",
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
    Ok(())
}
