//! `onepipe sim`: simulates a whole fabric in virtual time and checks every invariant.

mod amcast;
mod failover;
mod fuzz;
mod pause;
mod session;
mod totals;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use onepipe_sim_network::{ClockConfig, Load, SendPattern, Workload};
use onepipe_sim_scenarios::{Options, Placement, Report};
use onepipe_topology::Shape;
use serde::Serialize;

use crate::progress::Progress;
use crate::units::{self, readable, readable_ns};

const EXAMPLES: &str = "\
Examples:
  onepipe sim                                          the testbed of the paper, 32 processes
  onepipe sim --topology leaf-spine:4x2x8 --processes 64 --loss 1%
  onepipe sim --topology fat-tree:4 --seed 7 --duration 20ms --json | tail -n 1
  onepipe sim --form delegate                          switches that cannot rewrite packets
  onepipe sim --seed 7 --trace history.txt             the last events, as text
  onepipe sim fuzz --seeds 10000                       fabrics, loads and faults at random
  onepipe sim totals docs/results/fuzz.json            what all recorded seeds have checked
  onepipe sim fail-over                                leaders of agreed multicast that die
  onepipe sim pause                                    a message after a pause: beacons on demand

One seed is one history: the same arguments print the same trace hash, on every machine.";

/// Simulate a fabric in virtual time; exit status 1 if an invariant was violated
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Topology: testbed, star:HOSTS, leaf-spine:LEAVESxSPINESxHOSTS or fat-tree:PORTS
    #[arg(long, default_value = "testbed", value_parser = shape)]
    topology: Shape,
    /// Number of processes; rounded up to a multiple of the hosts
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    processes: u32,
    /// Where switches aggregate barriers
    #[arg(long, value_enum, default_value_t = Form::Chip)]
    form: Form,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Frame loss on every link: a probability like 0.01 or 1%
    #[arg(long, default_value = "0", value_parser = units::probability)]
    loss: f64,
    /// Time for which the processes send, in virtual time
    #[arg(long, default_value = "2ms", value_parser = units::time_ns)]
    duration: u64,
    /// Traffic pattern
    #[arg(long, value_enum, default_value_t = WorkloadArg::AllToAll)]
    workload: WorkloadArg,
    /// Messages per scattering (random: at most)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    fan_out: u32,
    /// Bytes per message (random: at most)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    size: u32,
    /// Send a scattering at this interval, like 10us [default: when earlier messages are delivered]
    #[arg(long, value_parser = units::time_ns, conflicts_with = "outstanding")]
    interval: Option<u64>,
    /// Messages that each process keeps in flight
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    outstanding: u32,
    /// Maximum offset of the clocks
    #[arg(long, default_value = "500ns", value_parser = units::time_ns)]
    clock_offset: u64,
    /// Write the last events to this file, as text
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Number of events to write
    #[arg(long, default_value_t = 10_000, requires = "trace")]
    trace_events: usize,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Fuzz(fuzz::Arguments),
    FailOver(failover::Arguments),
    Pause(pause::Arguments),
    Totals(totals::Arguments),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadArg {
    /// All processes to all, in turn
    AllToAll,
    /// Scatterings of random width to random processes, of random sizes
    Random,
    /// One message to the opposite process
    Ping,
}

/// Where switches aggregate barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// In the switching chip, which rewrites every packet
    Chip,
    /// On the switch's CPU, which handles beacons only (every 10us)
    SwitchCpu,
    /// On a host that represents the switch: beacons take 2us more per switch
    Delegate,
}

impl Form {
    fn placement(self) -> Placement {
        match self {
            Self::Chip => Placement::Chip,
            Self::SwitchCpu => Placement::SwitchCpu,
            Self::Delegate => Placement::Delegate,
        }
    }
}

#[derive(Serialize)]
struct Json {
    topology: String,
    form: &'static str,
    processes: u32,
    hosts: u32,
    switches: u32,
    seed: u64,
    loss: f64,
    virtual_seconds: f64,
    events: u64,
    packet_hops: u64,
    wall_seconds: f64,
    events_per_second: f64,
    packet_hops_per_second: f64,
    trace_hash: String,
    violations: u64,
    violation_texts: Vec<String>,
    messages_submitted: u64,
    messages_delivered: u64,
    messages_lost: u64,
    messages_unknown: u64,
    messages_open: u64,
    latency_us: JsonLatency,
}

#[derive(Serialize)]
struct JsonLatency {
    p50: f64,
    p99: f64,
    max: f64,
}

fn shape(text: &str) -> Result<Shape> {
    Ok(text.parse()?)
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(Command::Fuzz(arguments)) => return fuzz::run(arguments),
        Some(Command::FailOver(arguments)) => return failover::run(arguments),
        Some(Command::Pause(arguments)) => return pause::run(arguments),
        Some(Command::Totals(arguments)) => return totals::run(arguments),
        None => {}
    }
    let options = options(arguments);
    let mut progress = Progress::new();
    let began = Instant::now();
    let report = onepipe_sim_scenarios::run(&options, |thousandths| {
        progress.show(f64::from(thousandths) / 1000.0, "simulating");
    });
    let wall_seconds = began.elapsed().as_secs_f64();
    drop(progress);
    let report = report.with_context(|| {
        format!("{} processes do not fit {}", arguments.processes, arguments.topology)
    })?;
    if let Some(path) = &arguments.trace {
        let text = report.trace_lines.join("\n") + "\n";
        std::fs::write(path, text)
            .with_context(|| format!("cannot write the trace to {}", path.display()))?;
    }
    let json = json(arguments, &report, wall_seconds);
    let mut out = stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &json)?;
        writeln!(out)?;
    } else {
        print(&mut out, arguments, &report, &json)?;
    }
    Ok(if report.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn options(arguments: &Arguments) -> Options {
    let (fan_out, bytes) = (arguments.fan_out, arguments.size);
    let workload = match arguments.workload {
        WorkloadArg::AllToAll => Workload::AllToAll { fan_out, bytes },
        WorkloadArg::Random => Workload::Random { fan_out_max: fan_out, bytes_max: bytes },
        WorkloadArg::Ping => Workload::Ping { bytes },
    };
    let pattern = match arguments.interval {
        Some(interval_ns) => SendPattern::OpenLoop { interval_ns },
        None => SendPattern::ClosedLoop { messages_max: arguments.outstanding },
    };
    let defaults =
        Options::new(arguments.topology, arguments.processes, arguments.seed, arguments.duration);
    Options {
        placement: arguments.form.placement(),
        loss_ppm: (arguments.loss * 1e6).round() as u32,
        load: Load { workload, pattern },
        clocks: ClockConfig { offset_ns_max: arguments.clock_offset, ..defaults.clocks },
        trace_lines_max: arguments.trace.as_ref().map_or(0, |_| arguments.trace_events),
        ..defaults
    }
}

fn json(arguments: &Arguments, report: &Report, wall_seconds: f64) -> Json {
    let us = |ns: u64| ns as f64 / 1e3;
    let latency = report.latency;
    Json {
        topology: arguments.topology.to_string(),
        form: arguments.form.placement().name(),
        processes: report.processes,
        hosts: report.hosts,
        switches: report.switches,
        seed: arguments.seed,
        loss: arguments.loss,
        virtual_seconds: report.virtual_ns as f64 / 1e9,
        events: report.network.events,
        packet_hops: report.network.hops,
        wall_seconds,
        events_per_second: report.network.events as f64 / wall_seconds,
        packet_hops_per_second: report.network.hops as f64 / wall_seconds,
        // As text: programs that read numbers as floats would lose the last digits.
        trace_hash: format!("{:016x}", report.trace_hash),
        violations: report.violations,
        violation_texts: report.first_violations.clone(),
        messages_submitted: report.messages.submitted,
        messages_delivered: report.messages.delivered,
        messages_lost: report.messages.lost,
        messages_unknown: report.messages.unknown,
        messages_open: report.open,
        latency_us: JsonLatency {
            p50: us(latency.p50_ns),
            p99: us(latency.p99_ns),
            max: us(latency.max_ns),
        },
    }
}

fn print(out: &mut impl Write, arguments: &Arguments, report: &Report, json: &Json) -> Result<()> {
    let (latency, messages) = (report.latency, report.messages);
    writeln!(
        out,
        "  fabric     {}: {} processes on {} hosts, {} switches ({}); seed {}",
        arguments.topology,
        report.processes,
        report.hosts,
        report.switches,
        json.form,
        arguments.seed
    )?;
    writeln!(
        out,
        "  messages   {} submitted, {} delivered, {} reported lost, {} unknown, {} open",
        messages.submitted, messages.delivered, messages.lost, messages.unknown, report.open
    )?;
    writeln!(
        out,
        "  latency    p50 {}, p99 {}, max {}",
        readable_ns(latency.p50_ns),
        readable_ns(latency.p99_ns),
        readable_ns(latency.max_ns)
    )?;
    writeln!(
        out,
        "  simulator  {} of virtual time in {:.2} s: {} events/s, {} packet-hops/s",
        readable_ns(report.virtual_ns),
        json.wall_seconds,
        readable(json.events_per_second),
        readable(json.packet_hops_per_second)
    )?;
    writeln!(out, "  history    {}", json.trace_hash)?;
    for text in &report.first_violations {
        writeln!(out, "  VIOLATION  {text}")?;
    }
    match report.violations {
        0 => writeln!(out, "  verdict    every invariant held")?,
        count => writeln!(out, "  verdict    {count} VIOLATIONS")?,
    }
    Ok(())
}
