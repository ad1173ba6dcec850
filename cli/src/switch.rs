//! `onepipe switch`: the software switch.

mod racks;

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use onepipe_daemon_member::Report;
use onepipe_daemon_switch::{Config, Controllers, Faults, LinkRate, SoftwareSwitch, SwitchId};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::Given;
use serde::Serialize;

use crate::amcast::{self, HostedMember};
use crate::args::{JoinArgs, ServeArgs, address, controllers, require_ids_below};
use crate::units::{self, pauses_text, readable};
use racks::{LinkFaultSchedule, LinkLoads, RackArguments};

const EXAMPLES: &str = "\
Examples:
  onepipe switch                                       listens at 127.0.0.1:4410
  onepipe switch --listen '[::]:4410'                  for other machines, IPv6 and IPv4
  onepipe switch --listen 127.0.0.1:4411 --parent 127.0.0.1:4410
  onepipe switch --loss 1% --reorder 0.1% --seed 7     a bad network, repeatably
  onepipe switch --link-rate 100M --queue 256KiB       a slow one, with queues that can be seen
  onepipe switch --rack-nodes 1 --paths 4 --lossy-link rack=1,path=2
                                                       several paths, one with a dead link
  onepipe switch --listen 10.0.0.1:4410 --xdp eth1 eth2
                                                       frames pass in the kernel
  onepipe switch --groups lab.toml --member 10.0.0.1:4500
                                                       with a member of agreed multicast in it

Then, in other terminals:
  onepipe node --udp 127.0.0.1:4410 --process 0
  onepipe node --udp 127.0.0.1:4410 --process 1";

/// Run a software switch, which processes on any machine join over UDP
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4410", value_parser = address)]
    listen: SocketAddr,
    /// Address of the parent switch [default: none, this is the root]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    parent: Option<SocketAddr>,
    /// Upper bound of the process ids [default: 1024; below a parent, as stated by the parent]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    processes: Option<u32>,
    /// Process ids that are reserved for controllers, like 1020 or 1020:3: the first, and how many
    /// [default: none; below a parent, as stated by the parent]
    #[arg(long, value_name = "FIRST[:COUNT]", value_parser = controllers)]
    controllers: Option<Controllers>,
    /// Id of this switch; in a fabric with controllers each switch needs an id of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    id: u32,
    /// Maximum number of processes and switches attached to this one
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    ports: u16,
    /// Interval of beacons while something is undelivered, like 50us [default: 20us]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    beacon_interval: Option<u64>,
    /// Interval of heartbeats at rest, like 50ms; with 0ns beacons are sent at rest, too, at the
    /// beacon interval [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    heartbeat_interval: Option<u64>,
    /// Time without a frame after which a link counts as lost, like 30ms; a killed process is
    /// detected at once [default: 100ms, with controllers 1s]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    link_timeout: Option<u64>,
    /// Busy-poll: lowest latency, takes a whole core
    #[arg(long)]
    spin: bool,
    /// Lose frames, on arrival and on departure: a probability like 0.01 or 1%
    #[arg(long, value_name = "P", default_value = "0", value_parser = units::probability)]
    loss: f64,
    /// Duplicate frames: a probability
    #[arg(long, value_name = "P", default_value = "0", value_parser = units::probability)]
    duplicate: f64,
    /// Flip a bit of a frame: a probability
    #[arg(long, value_name = "P", default_value = "0", value_parser = units::probability)]
    corrupt: f64,
    /// Swap a frame with the next one: a probability
    #[arg(long, value_name = "P", default_value = "0", value_parser = units::probability)]
    reorder: f64,
    /// Seed of the random choices of --loss, --duplicate, --corrupt and --reorder
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Limit the rate of each link and queue frames before it, in bit/s like 100M or 1G
    #[arg(long, value_name = "BITS", value_parser = units::bits_per_s)]
    link_rate: Option<u64>,
    /// Size of the queue of a link, like 256KiB; frames that do not fit are lost
    #[arg(
        long, value_name = "BYTES", default_value = "1MiB", value_parser = units::bytes,
        requires = "link_rate"
    )]
    queue: usize,
    /// Mark frames that find more bytes than this in the queue, like ECN
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, requires = "link_rate")]
    mark_threshold: Option<usize>,
    /// Handle frames in the kernel, by XDP, on these network devices, like eth1 eth2; needs root
    /// and a build with `--features xdp`
    #[arg(long, value_name = "IFACE", value_delimiter = ',', num_args = 1..)]
    xdp: Vec<String>,
    #[command(flatten)]
    racks: RackArguments,
    #[command(flatten)]
    hosted_member: HostedMember,
    #[command(flatten)]
    join_args: JoinArgs,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// Printed counters.
#[derive(Clone, Debug, Default, Serialize)]
struct Counters {
    seconds: f64,
    frames_received: u64,
    frames_forwarded: u64,
    beacons_sent: u64,
    frames_dropped: u64,
    frames_unroutable: u64,
    frames_overflowed: u64,
    frames_marked: u64,
    ports_assigned: u64,
    ports_reclaimed: u64,
    links_lost: u64,
    links_frozen: u64,
    pauses: u64,
    pause_max_ns: u64,
    faults_lost: u64,
    faults_duplicated: u64,
    faults_corrupted: u64,
    faults_reordered: u64,
    /// With `--link-rate`: the queues of the links.
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Queues>,
    /// With `--rack-nodes`: the load of the links between racks and paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    racks: Option<LinkLoads>,
    /// With `--xdp`: what became of the frames in the kernel.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    kernel: BTreeMap<&'static str, u64>,
    /// With `--member`: the report of the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<Report>,
}

/// The queues of the links, as found by arriving frames.
#[derive(Clone, Copy, Debug, Serialize)]
struct Queues {
    frames: u64,
    dropped: u64,
    marked: u64,
    bytes_p50: u64,
    bytes_p90: u64,
    bytes_p99: u64,
    bytes_p999: u64,
    bytes_max: u64,
    bytes_present: u64,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (racks, schedule) = arguments.racks.racks();
    let config = Config { racks, ..config(arguments) };
    let member = arguments.hosted_member.open(config.idle)?;
    let switch = SoftwareSwitch::new(&config)
        .with_context(|| format!("cannot start a switch at {}", arguments.listen))?;
    let Some(member) = member else {
        print_summary(
            &run_switch(switch, &arguments.serve_args, schedule)?,
            arguments.serve_args.json,
        )?;
        return Ok(ExitCode::SUCCESS);
    };
    let work = || run_switch(switch, &arguments.serve_args, schedule);
    let (counters, report) = amcast::run_alongside(member, work)?;
    print_summary(&Counters { member: Some(report), ..counters }, arguments.serve_args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `switch` until it is interrupted, and prints its counters.
pub fn serve(switch: SoftwareSwitch, serve_args: &ServeArgs) -> Result<ExitCode> {
    print_summary(&run_switch(switch, serve_args, LinkFaultSchedule::default())?, serve_args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `switch` until it is interrupted. Returns its counters.
fn run_switch(
    mut switch: SoftwareSwitch,
    serve_args: &ServeArgs,
    mut schedule: LinkFaultSchedule,
) -> Result<Counters> {
    let stop = crate::interrupt::stop_flag(switch.doorbell(), serve_args.exit_on_stdin_eof)?;
    writeln!(stdout(), "listening at {}", switch.local_addr()).context("cannot print")?;

    let began = Instant::now();
    let interval = serve_args.stats_interval.map(Duration::from_nanos);
    let mut before = Counters::default();
    let mut next_print = interval.map(|interval| began + interval);
    let mut warnings = Warnings::default();
    onepipe_transport_clock::reduce_wakeup_latency();
    while !stop.load(Ordering::Acquire) {
        if let Some(refusal) = switch.refusal() {
            return Err(refusal).context("cannot go on below the parent");
        }
        schedule.apply_due(&mut switch, began)?;
        let progress = switch.turn(|_| {});
        warnings.print_new(&switch);
        if let (Some(at), Some(interval)) = (next_print, interval)
            && Instant::now() >= at
        {
            next_print = Some(at + interval);
            before = print_interval(&switch, began, before);
        }
        switch.rest(progress);
    }
    Ok(counters(&switch, began))
}

fn config(arguments: &Arguments) -> Config {
    let mut config = Config::new(arguments.listen);
    config.up = arguments.parent;
    config.switch = SwitchId(arguments.id);
    if let Some(controllers) = arguments.controllers {
        config = config.with_controllers(controllers);
    }
    config.ports_max = arguments.ports;
    config.processes_max = arguments.processes.unwrap_or(config.processes_max);
    config.xdp = arguments.xdp.clone();
    if !config.xdp.is_empty() {
        // As many registers as the kernel has.
        config.ports_max = config.ports_max.min(64 - u16::from(config.up.is_some()));
    }
    // A parent states what is not given.
    if arguments.processes.is_some() || arguments.parent.is_none() {
        require_ids_below(config.processes_max, None, arguments.controllers);
    }
    config.wait = arguments.join_args.wait();
    config.given = Given {
        processes_max: arguments.processes,
        controllers: arguments.controllers,
        link_timeout_ns: arguments.link_timeout,
    };
    config.beacon_interval_ns = arguments.beacon_interval.unwrap_or(config.beacon_interval_ns);
    config.heartbeat_interval_ns =
        arguments.heartbeat_interval.unwrap_or(config.heartbeat_interval_ns);
    config.link_timeout_ns = arguments.link_timeout.unwrap_or(config.link_timeout_ns);
    if arguments.spin {
        config.idle = Idle::Spin;
    }
    config.faults = Faults {
        seed: arguments.seed,
        loss: arguments.loss,
        duplication: arguments.duplicate,
        corruption: arguments.corrupt,
        reordering: arguments.reorder,
        dead_ports: Vec::new(),
    };
    config.link_rate = arguments.link_rate.map(|bits_per_s| LinkRate {
        bits_per_s,
        queue_bytes_max: arguments.queue,
        mark_bytes: arguments.mark_threshold,
    });
    config
}

fn counters(switch: &SoftwareSwitch, began: Instant) -> Counters {
    let (stats, machine, socket) = (switch.stats(), switch.machine_stats(), switch.socket_stats());
    let duty = switch.duty();
    // An arbiter sends to its own id, so that the switch learns its address, and to endpoints that
    // may not be up. These frames are not losses.
    let frames_unroutable = machine.dropped_unknown + stats.frames_to_self;
    Counters {
        seconds: began.elapsed().as_secs_f64(),
        frames_received: socket.frames_received,
        frames_forwarded: machine.forwarded,
        beacons_sent: machine.beacons_sent,
        frames_dropped: (machine.dropped()
            + stats.frames_foreign
            + stats.frames_misattributed
            + stats.batches_without_port)
            .saturating_sub(frames_unroutable),
        frames_unroutable,
        frames_overflowed: socket.frames_overflowed + socket.frames_refused + stats.copies_lost,
        frames_marked: stats.frames_marked,
        ports_assigned: stats.ports_assigned,
        ports_reclaimed: stats.ports_reclaimed,
        links_lost: machine.links_lost,
        links_frozen: machine.links_frozen,
        pauses: duty.pause_count,
        pause_max_ns: duty.pause_max_ns,
        faults_lost: stats.faults_lost,
        faults_duplicated: stats.faults_duplicated,
        faults_corrupted: stats.faults_corrupted,
        faults_reordered: stats.faults_reordered,
        queues: switch.queues().map(|queues| {
            let [bytes_p50, bytes_p90, bytes_p99, bytes_p999, bytes_max] = queues.bytes;
            Queues {
                frames: queues.frames,
                dropped: queues.dropped,
                marked: queues.marked,
                bytes_p50,
                bytes_p90,
                bytes_p99,
                bytes_p999,
                bytes_max,
                bytes_present: queues.present_bytes,
            }
        }),
        racks: LinkLoads::of(switch),
        kernel: switch.kernel_counters().into_iter().collect(),
        member: None,
    }
}

/// Warnings about neighbours that cannot be served, printed once per cause.
#[derive(Debug, Default)]
struct Warnings {
    warned_no_port: bool,
    warned_out_of_range: bool,
    kernel_refusals: u64,
}

impl Warnings {
    /// Prints new warnings: a neighbour itself cannot find out why it gets no answer.
    fn print_new(&mut self, switch: &SoftwareSwitch) {
        let stats = switch.stats();
        if let (Some(neighbour), false) = (stats.last_rejected, self.warned_no_port) {
            self.warned_no_port = true;
            let ports = switch.ports_max();
            tracing::warn!(
                "no port for {neighbour}: all {ports} ports are in use \
                 (--ports {ports}); not reported again"
            );
        }
        let (refusals, reason) = switch.kernel_refusals();
        if let (true, Some(reason)) = (refusals > self.kernel_refusals, reason) {
            self.kernel_refusals = refusals;
            tracing::warn!("the switch in the kernel: {reason} ({refusals} refusals in all)");
        }
        if let (Some(process), false) = (stats.process_out_of_range, self.warned_out_of_range) {
            self.warned_out_of_range = true;
            let (process, processes_max) = (process.0, switch.processes_max());
            tracing::warn!(
                "process {process} is not served: ids must be below --processes {processes_max}; \
                 not reported again"
            );
        }
    }
}

/// Prints the changes since `before`. Returns the present counters.
fn print_interval(switch: &SoftwareSwitch, began: Instant, before: Counters) -> Counters {
    let now = counters(switch, began);
    let seconds = now.seconds - before.seconds;
    let rate = |now: u64, before: u64| readable((now - before) as f64 / seconds);
    eprintln!(
        "{:>6.0} s  {} frames/s in, {} forwarded/s, {} beacons/s, {} dropped, {} ports",
        now.seconds,
        rate(now.frames_received, before.frames_received),
        rate(now.frames_forwarded, before.frames_forwarded),
        rate(now.beacons_sent, before.beacons_sent),
        now.frames_dropped + now.frames_overflowed,
        now.ports_assigned - now.ports_reclaimed,
    );
    if let Some(queues) = now.queues {
        eprintln!("          {} bytes in the longest queue", readable(queues.bytes_present as f64));
    }
    now
}

fn print_summary(counters: &Counters, is_json: bool) -> Result<()> {
    let mut out = stdout().lock();
    if is_json {
        serde_json::to_writer(&mut out, counters)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "ran for {:.1} s: {} frames in, {} forwarded, {} beacons sent; {} dropped, {} unroutable, \
         {} overflowed, {} marked; {} ports assigned, {} links lost",
        counters.seconds,
        counters.frames_received,
        counters.frames_forwarded,
        counters.beacons_sent,
        counters.frames_dropped,
        counters.frames_unroutable,
        counters.frames_overflowed,
        counters.frames_marked,
        counters.ports_assigned,
        counters.links_lost
    )?;
    if counters.pauses > 0 {
        writeln!(out, "pauses: {}", pauses_text(counters.pauses, counters.pause_max_ns))?;
    }
    if let Some(queues) = counters.queues {
        writeln!(
            out,
            "queues: {} frames, {} lost, {} marked; bytes queued: p50 {}, p90 {}, \
             p99 {}, p99.9 {}, max {}",
            queues.frames,
            queues.dropped,
            queues.marked,
            queues.bytes_p50,
            queues.bytes_p90,
            queues.bytes_p99,
            queues.bytes_p999,
            queues.bytes_max
        )?;
    }
    if !counters.kernel.is_empty() {
        let counted = counters.kernel.iter().filter(|(_, count)| **count > 0);
        let counted: Vec<String> =
            counted.map(|(name, count)| format!("{count} {}", name.replace('_', " "))).collect();
        writeln!(out, "in the kernel: {}", counted.join(", "))?;
    }
    if let Some(racks) = &counters.racks {
        racks.table(&mut out)?;
    }
    if let Some(member) = &counters.member {
        writeln!(
            out,
            "its member of group {}: {} messages proposed, {} decided, {} open; epoch {}",
            member.group, member.proposed, member.decided, member.open, member.epoch
        )?;
    }
    let faults = [
        ("lost", counters.faults_lost),
        ("duplicated", counters.faults_duplicated),
        ("corrupted", counters.faults_corrupted),
        ("reordered", counters.faults_reordered),
    ];
    if faults.iter().any(|(_, count)| *count > 0) {
        let faults = faults.map(|(what, count)| format!("{count} {what}"));
        writeln!(out, "injected faults: {}", faults.join(", "))?;
    }
    Ok(())
}
