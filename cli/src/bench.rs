//! `onepipe bench`: benchmarks of each part against a yardstick measured in the same run.

mod options;
mod peers;
mod recovery;

use std::io::{Write, stdout};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use onepipe_bench_micro::{
    CommOptions, EndpointOptions, LightOptions, OrderOptions, PairOptions,
    Progress as BenchProgress, RecoverySimOptions, ReorderOptions, Report, RivalMethod, SimOptions,
    SwitchOptions, amcast, arbiter_alloc, arbiter_comm, arbiter_path, arbiter_realtime, bulk,
    endpoint, idle, light, memory, order, pair_reliable, pair_shm, pair_udp, recovery_sim, reorder,
    sim, switch, table,
};

use crate::arbiter::PolicyArg;
use crate::progress::Progress;
use options::{
    amcast_options, arbiter_options, bulk_options, light_options, memory_options, realtime_options,
    table_options,
};

const EXAMPLES: &str = "\
Examples:
  onepipe bench --list
  onepipe bench reorder
  onepipe bench pair --transport udp
  onepipe bench pair --reliable
  onepipe bench order --processes 3 --transport shm --json | tail -n 1
  onepipe bench idle --processes 4
  onepipe bench light --rate 1000 --transport shm
  onepipe bench memory --transport udp --size 1KiB
  onepipe bench table --replicas 3
  onepipe bench peers --processes 3                    needs Java and Maven
  onepipe bench order --rival token --transport udp
  onepipe bench order --processes 4 --size 64,10KiB --reliable
  onepipe bench order --xdp                            as root, between three emulated hosts
  onepipe bench recovery --kills 50 --soak 10
  onepipe bench recovery-sim --hosts 8192
  onepipe bench arbiter alloc
  onepipe bench arbiter alloc --cores 2 --nodes 256 --load 0.5,0.8
  onepipe bench arbiter path --json | tail -n 1
  onepipe bench arbiter comm --nodes 64
  onepipe bench arbiter realtime --cores 2 --slot-ns 312 --load 0.8 --lead 500us
  onepipe bench bulk --processes 4 --size 1,64KiB,16MiB
  onepipe bench bulk --transport udp
  onepipe bench bulk --between-nodes                   as root: 8 of them, links of 500 Mbit/s
  onepipe bench amcast --groups 2 --size 150 --json | tail -n 1

A ratio above 1 is better than the yardstick, whatever is measured.";

/// Measure a part against a yardstick: throughput, latency, CPU time
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Benchmark to run
    #[arg(required_unless_present = "list")]
    name: Option<Name>,
    /// Part of the benchmark (arbiter)
    #[arg(value_enum)]
    part: Option<ArbiterPart>,
    /// List the benchmarks
    #[arg(long)]
    list: bool,
    /// Number of runs of each side, at least 3
    #[arg(long, value_parser = clap::value_parser!(u64).range(3..=1000))]
    runs: Option<u64>,
    /// Length of each run in seconds (pair, order, light, memory, table, peers, arbiter comm,
    /// realtime)
    #[arg(long, value_parser = crate::units::seconds)]
    seconds: Option<f64>,
    /// Measure the reliable service, with best effort as the yardstick (pair, order)
    #[arg(long)]
    reliable: bool,
    /// Measure another ordering method, with ours as the yardstick (order)
    #[arg(long, value_enum)]
    rival: Option<Rival>,
    /// Measure the switch in the kernel, with the software switch as the yardstick, between
    /// emulated hosts; needs root and a build with the feature `xdp` (order)
    #[arg(long)]
    xdp: bool,
    /// Number of processes to kill (recovery)
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: u32,
    /// Minutes to run afterwards without a kill, where any failure report is a false alarm
    /// (recovery)
    #[arg(long, value_name = "MINUTES", default_value_t = 0.0)]
    soak: f64,
    /// Keep all cores busy with other work while processes are killed (recovery)
    #[arg(long)]
    busy: bool,
    /// Transport of the messages (pair, order, recovery, memory, table; bulk) [default: shm; bulk:
    /// tcp]
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Number of processes (order, idle, light: 2 to 64, default 3, 4 and 3; peers: 2 to 16,
    /// default 3; bulk: 2 to 16, default 2, 4 and 8 in turn; sim: 1 to 65536, default 512)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    processes: Option<u32>,
    /// Number of threads, with one thread as the yardstick, which must have the same history (sim)
    /// [default: one thread, with a heap as the yardstick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    threads: Option<u16>,
    /// Maximum number of hosts (recovery-sim: 32 and fat trees of 1024, 8192, 35152)
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(32..))]
    hosts: u32,
    /// Number of cores: one control core, the others allocate timeslots (arbiter) [default: 1, for
    /// realtime 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    cores: Option<u32>,
    /// Numbers of endpoints (arbiter) [default: 32,256,1024,4096; path 512,1024; realtime 256]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=4096))]
    nodes: Vec<u32>,
    /// Loads, as fractions of what the endpoints can send (arbiter) [default: 0.1,0.5,0.9,0.99;
    /// realtime: 0.8]
    #[arg(long, value_delimiter = ',', value_parser = crate::units::load)]
    load: Vec<f64>,
    /// Timeslots per batch (arbiter alloc, realtime)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=64))]
    batch: u32,
    /// Length of a timeslot in ns (arbiter realtime)
    #[arg(long, default_value_t = 312, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    slot_ns: u64,
    /// Time between the request of a batch and its first timeslot (arbiter realtime)
    #[arg(long, value_name = "TIME", default_value = "65us", value_parser = crate::units::time_ns)]
    lead: u64,
    /// Allocation policy (arbiter alloc, realtime)
    #[arg(long, value_enum, default_value_t = PolicyArg::Fair)]
    policy: PolicyArg,
    /// Sizes of objects (bulk) [default: 1,64KiB,16MiB,256MiB] or messages (order) [default:
    /// 64,1KiB] (amcast) [default: 150,512,1024,1500], or of an operation or value
    /// (memory, table) [default: 64]
    #[arg(long, value_delimiter = ',', value_parser = crate::units::bytes)]
    size: Vec<usize>,
    /// Run between emulated nodes instead of over loopback; needs root (bulk)
    #[arg(long)]
    between_nodes: bool,
    /// Rate of a node's link in Mbit/s (bulk)
    #[arg(long, requires = "between_nodes", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=10_000))]
    link_mbit: u32,
    /// Scatterings per second of each process (light, peers) [default: 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Send beacons at the fixed interval instead of on demand (idle, light)
    #[arg(long)]
    fixed_interval: bool,
    /// What processes and the switch do with a core while there is nothing to do (idle, light)
    #[arg(long, value_enum, default_value_t = IdleArg::Backoff)]
    idle: IdleArg,
    /// Have frames in shared memory bear checksums (pair, order)
    #[arg(long)]
    checksums: bool,
    /// Use of shared memory: which copies are made (bulk)
    #[arg(long, value_enum, default_value_t = Memory::Shared)]
    memory: Memory,
    /// Size of a block (bulk) [default: 1MiB; between nodes 32KiB]
    #[arg(long, value_parser = crate::units::bytes)]
    block: Option<usize>,
    /// Halve the rate between two of the nodes (bulk)
    #[arg(long, requires = "between_nodes")]
    slow_link: bool,
    /// Numbers of groups of three members; each message goes to all (amcast) [default: 1,2]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=8))]
    groups: Vec<u16>,
    /// Replicas per group (amcast) [default: 1], or of a shard, at most 4 (table) [default: 1, 2
    /// and 3 in turn]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=8))]
    replicas: Option<u64>,
    /// Maximum number of messages in flight: of the client (amcast) [default: 1024], of operations
    /// (memory) [default: 64], of calls (table) [default: 16], or of each process, which then sends
    /// through Pipe, with EmbeddedPipe as the yardstick (order)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: Option<u32>,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The reorder stage alone, against a binary heap
    Reorder,
    /// Two endpoints in one thread, without a transport
    Endpoint,
    /// Two processes, submission to ordered delivery, against a bare ring or bare datagrams
    Pair,
    /// All processes scatter to all, in one total order
    Order,
    /// One of three processes is killed: the longest gap in the others' reliable deliveries
    Recovery,
    /// The same simulated, by failed component: figure 10 of the paper, and up to 32 K hosts
    RecoverySim,
    /// The simulator: events per second on the paper's testbed
    Sim,
    /// The switch machine: cores for the beacons of 32 ports, rate of forwarded frames
    Switch,
    /// Bulk multicast over TCP, UDP or shared memory, against MPI_Bcast of OpenMPI and MPICH
    Bulk,
    /// A fabric at rest: CPU time, frames, and a message after a pause
    Idle,
    /// Processes that send at a rate and block in between: latency, CPU time, frames
    Light,
    /// The same of JGroups (sequencer) and Aeron, beside ours; needs Java and Maven
    Peers,
    /// Operations on the memory of another process, against requests to its application
    Memory,
    /// A hash table in registered memory, against fenced operations and against a leader
    Table,
    /// Agreed multicast over UDP, against PrimCast: groups of three, every message to all of them
    Amcast,
    /// The arbiter: timeslots (alloc), paths (path), its daemon over UDP (comm), timeslots in real
    /// time (realtime)
    Arbiter,
}

/// Parts of the arbiter benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArbiterPart {
    /// Allocation of timeslots to pairs
    Alloc,
    /// Choice of the path of each packet
    Path,
    /// CPU time of the daemon per timeslot, over UDP
    Comm,
    /// Timeslots in real time: whether all are granted before they begin
    Realtime,
}

/// Ordering methods to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rival {
    /// No order: messages are delivered as they arrive
    Unordered,
    /// A circulating token; its holder sends
    Token,
    /// Logical clocks, exchanged every 20 us
    Lamport,
    /// A dedicated process numbers all messages
    Sequencer,
    /// The switch numbers all messages (udp)
    SwitchSequencer,
}

impl Rival {
    const fn method(self) -> RivalMethod {
        match self {
            Self::Unordered => RivalMethod::Unordered,
            Self::Token => RivalMethod::Token,
            Self::Lamport => RivalMethod::Lamport,
            Self::Sequencer => RivalMethod::Sequencer,
            Self::SwitchSequencer => RivalMethod::SwitchSequencer,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// Shared memory
    Shm,
    /// UDP on this machine, through a software switch; bulk: directly between processes
    Udp,
    /// TCP (bulk)
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IdleArg {
    /// Poll without pause: for dedicated cores
    Spin,
    /// Poll, and yield the core after each poll
    Yield,
    /// Poll for some microseconds, then block
    Backoff,
}

impl IdleArg {
    const fn idle(self) -> onepipe::Idle {
        match self {
            Self::Spin => onepipe::Idle::Spin,
            Self::Yield => onepipe::Idle::Yield,
            Self::Backoff => onepipe::Idle::Backoff,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    /// The root copies into shared memory, the receivers copy out of it
    Private,
    /// The root writes into shared memory, the receivers copy out of it
    Shared,
    /// No copies: all use the object in shared memory
    Mapped,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut out = stdout().lock();
    let Some(name) = arguments.name.filter(|_| !arguments.list) else {
        for name in Name::value_variants() {
            let Some(value) = name.to_possible_value() else { continue };
            let about = value.get_help().map(ToString::to_string).unwrap_or_default();
            writeln!(out, "{:12} {about}", value.get_name())?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    if arguments.rival.is_some() && name != Name::Order {
        crate::usage_error("--rival is for bench order only");
    }
    if arguments.part.is_some() != (name == Name::Arbiter) {
        crate::usage_error("bench arbiter takes one part: alloc, path, comm or realtime");
    }
    if arguments.transport == Some(Transport::Tcp) && name != Name::Bulk {
        crate::usage_error("--transport tcp is for bench bulk only");
    }
    if name == Name::Recovery {
        drop(out);
        return recovery::run(&recovery_options(arguments));
    }
    // Processes, files and emulated nodes of a benchmark would outlive this process.
    crate::interrupt::on_interrupt(|| {
        onepipe_bench_micro::cleanup();
        std::process::exit(crate::interrupt::EXIT_STATUS.into());
    })?;
    let report =
        measure(name, arguments).with_context(|| format!("bench {name:?}").to_lowercase())?;
    if arguments.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn recovery_options(arguments: &Arguments) -> recovery::Options {
    recovery::Options {
        transport: match arguments.transport {
            Some(Transport::Udp) => crate::demo::Transport::Udp,
            _ => crate::demo::Transport::Shm,
        },
        kills: arguments.kills,
        soak_minutes: arguments.soak,
        is_busy: arguments.busy,
        is_json: arguments.json,
    }
}

/// Runs a benchmark other than `recovery`.
///
/// Each benchmark has defaults of its own, which an option replaces only if it was given. So every
/// arm starts from the defaults of its benchmark, and rejects the values that only it cannot use.
fn measure(name: Name, arguments: &Arguments) -> Result<Report> {
    let mut bar = Progress::new();
    let show =
        |run: BenchProgress<'_>| bar.show(run.done as f64 / run.total.max(1) as f64, run.case);
    let is_udp = arguments.transport == Some(Transport::Udp);
    let runs = |default: usize| arguments.runs.map_or(default, |runs| runs as usize);
    match name {
        Name::Amcast => amcast(&amcast_options(arguments), show),
        Name::Idle => idle(&light_options(arguments, LightOptions::idle()), show),
        Name::Light => light(&light_options(arguments, LightOptions::light()), show),
        Name::Memory => memory(&memory_options(arguments), show),
        Name::Table => table(&table_options(arguments), show),
        Name::Peers => peers::run(arguments, show),
        Name::Reorder => {
            let defaults = ReorderOptions::default();
            reorder(&ReorderOptions { runs: runs(defaults.runs), ..defaults }, show)
        }
        Name::Endpoint => {
            let defaults = EndpointOptions::default();
            endpoint(&EndpointOptions { runs: runs(defaults.runs), ..defaults }, show)
        }
        Name::Pair => {
            let defaults = PairOptions::default();
            let seconds = arguments.seconds.unwrap_or(defaults.seconds);
            let has_checksums = arguments.checksums;
            let options = PairOptions { runs: runs(defaults.runs), seconds, has_checksums };
            match (arguments.reliable, is_udp) {
                (true, _) => pair_reliable(&options, is_udp, show),
                (false, true) => pair_udp(&options, show),
                (false, false) => pair_shm(&options, show),
            }
        }
        Name::Order => {
            let defaults = OrderOptions::default();
            let processes = arguments.processes.unwrap_or(defaults.processes);
            if !(2..=64).contains(&processes) {
                crate::usage_error("bench order takes 2 to 64 processes");
            }
            let rival = arguments.rival.map(Rival::method);
            if rival == Some(RivalMethod::SwitchSequencer) && !is_udp {
                crate::usage_error("a switch sequencer needs a switch: --transport udp");
            }
            if arguments.reliable && rival.is_some() {
                crate::usage_error(
                    "--rival excludes --reliable: rivals are compared with best effort",
                );
            }
            if arguments.window.is_some() && (arguments.reliable || rival.is_some()) {
                crate::usage_error("bench order --window excludes --reliable and --rival");
            }
            if arguments.xdp && (arguments.window.is_some() || rival.is_some()) {
                crate::usage_error("bench order --xdp excludes --window and --rival");
            }
            let bytes = match arguments.size.is_empty() {
                true => defaults.bytes,
                false => arguments.size.clone(),
            };
            let options = OrderOptions {
                bytes,
                is_reliable: arguments.reliable,
                processes,
                is_udp,
                window: arguments.window,
                rival,
                is_in_kernel: arguments.xdp,
                has_checksums: arguments.checksums,
                runs: runs(defaults.runs),
                seconds: arguments.seconds.unwrap_or(defaults.seconds),
            };
            order(&options, show)
        }
        // `run` calls it directly: it prints its own report.
        Name::Recovery => anyhow::bail!("bench recovery prints its own report"),
        Name::RecoverySim => {
            let defaults = RecoverySimOptions::default();
            let options =
                RecoverySimOptions { runs: runs(defaults.runs), hosts_max: arguments.hosts };
            recovery_sim(&options, show)
        }
        Name::Switch => {
            let defaults = SwitchOptions::default();
            switch(&SwitchOptions { runs: runs(defaults.runs), ..defaults }, show)
        }
        Name::Bulk => bulk(&bulk_options(arguments), show),
        Name::Arbiter => {
            if arguments.part == Some(ArbiterPart::Comm) {
                let defaults = CommOptions::default();
                let seconds = arguments.seconds.unwrap_or(defaults.seconds);
                let nodes = match arguments.nodes.is_empty() {
                    true => defaults.nodes,
                    false => arguments.nodes.clone(),
                };
                let workers = arguments.cores.map_or(0, |cores| cores as usize - 1);
                let options = CommOptions { runs: runs(defaults.runs), seconds, nodes, workers };
                return arbiter_comm(&options, show);
            }
            if arguments.part == Some(ArbiterPart::Realtime) {
                return arbiter_realtime(&realtime_options(arguments), show);
            }
            let is_path = arguments.part == Some(ArbiterPart::Path);
            let options = arbiter_options(arguments, is_path);
            if is_path { arbiter_path(&options, show) } else { arbiter_alloc(&options, show) }
        }
        Name::Sim => {
            let defaults = SimOptions::default();
            let processes = arguments.processes.unwrap_or(defaults.processes);
            let threads = arguments.threads.and_then(|count| NonZeroUsize::new(count.into()));
            sim(&SimOptions { runs: runs(defaults.runs), processes, threads, ..defaults }, show)
        }
    }
}

/// Runs one process of a benchmark (hidden command).
pub fn run_worker(arguments: &[String]) -> Result<ExitCode> {
    onepipe_bench_micro::worker(arguments)?;
    Ok(ExitCode::SUCCESS)
}
