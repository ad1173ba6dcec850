//! `onepipe demo`: shows the main guarantees with real processes.

mod amcast;
mod amcast_worker;
mod arbiter;
mod atomicity;
mod check;
mod children;
mod display;
mod incast;
mod log;
mod messages;
mod pauses;
mod payload;
mod process_state;
pub mod recovery;
mod reliable;
mod scenario;
mod summary;
mod unsent;
mod worker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum, value_parser};
use onepipe_transport_clock::SystemClock;

use crate::units;
pub use amcast_worker::Arguments as AmcastWorker;
use children::{ChildEvent, Children};
use display::ProgressDisplay;
use messages::{FabricAddress, InjectedFault, WorkerSpec};
use scenario::Scenario;
use summary::Summary;

/// Maximum number of processes of a demo: they share one machine.
const PROCESSES_MAX: usize = 64;

const EXAMPLES: &str = "\
Examples:
  onepipe demo                                  4 processes over shared memory, one is killed
  onepipe demo --transport udp                  the same through a software switch
  onepipe demo --reliable                       all or nothing, with a controller
  onepipe demo --processes 8 --size 1024 --seconds 10
  onepipe demo --rate 1000 --no-kill            latency without queues
  onepipe demo --json | tail -n 1               for programs
  onepipe demo arbiter                          many to one, without timeslots and with
  onepipe demo amcast                           groups that survive the kill of their leader";

/// Start processes that scatter to each other, kill one, and check that all agree on the order
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<DemoCommand>,
    /// Number of processes, each an operating-system process
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(2..=64))]
    processes: u32,
    /// Send every other scattering reliably: all survivors deliver it, or none does
    #[arg(long)]
    reliable: bool,
    /// Transport of the messages
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    transport: Transport,
    /// Use IPv6 instead of IPv4 (with --transport udp)
    #[arg(long)]
    ipv6: bool,
    /// Bytes per message, 24 to 1000000
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(24..=1_000_000))]
    size: u32,
    /// Time for which the processes send, in seconds
    #[arg(long, default_value = "5", value_parser = units::seconds)]
    seconds: f64,
    /// Scatterings per second of each process, like 2000, 50k or 1.5M [default: unlimited]
    #[arg(long, value_parser = units::rate)]
    rate: Option<f64>,
    /// Maximum number of scatterings that each process has in flight
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u64).range(1..=1_000_000))]
    outstanding: u64,
    /// Kill one process half-way (default)
    #[arg(long, overrides_with = "no_kill")]
    kill: bool,
    /// Do not kill a process
    #[arg(long, overrides_with = "kill")]
    no_kill: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    /// Inject a fault into process 0, which the check must detect
    #[arg(long, value_enum, hide = true)]
    inject_fault: Option<InjectedFault>,
}

/// Demos of other services.
#[derive(Debug, Subcommand)]
enum DemoCommand {
    Arbiter(arbiter::Arguments),
    Amcast(amcast::Arguments),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Shared memory, no daemon
    Shm,
    /// UDP on this machine, through a software switch
    Udp,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Udp => "udp",
        }
    }
}

/// Runs a worker process of a demo (hidden command).
pub fn run_worker() -> Result<ExitCode> {
    worker::run()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a replica or client of `demo amcast` (hidden command).
pub fn run_amcast_worker(arguments: &AmcastWorker) -> Result<ExitCode> {
    amcast_worker::run(arguments)
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(DemoCommand::Arbiter(arguments)) => return arbiter::run(arguments),
        Some(DemoCommand::Amcast(arguments)) => return amcast::run(arguments),
        None => {}
    }
    if arguments.ipv6 && arguments.transport == Transport::Shm {
        crate::usage_error("--ipv6 requires --transport udp");
    }
    let interrupts = Interrupts::install()?;
    let Some(summary) = run_demo(arguments, ProgressDisplay::new(arguments), &interrupts)? else {
        eprintln!("onepipe: interrupted; all processes have ended");
        return Ok(ExitCode::from(crate::interrupt::EXIT_STATUS));
    };
    summary.print(arguments.json).context("cannot write the summary")?;
    Ok(if summary.has_held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one demo from start to end. Returns `None` if it was interrupted.
fn run_demo(
    arguments: &Arguments,
    display: ProgressDisplay,
    interrupts: &Interrupts,
) -> Result<Option<Summary>> {
    let clock = SystemClock::calibrated();
    let (events_tx, events) = channel();
    interrupts.forward_to(&events_tx);
    // Declared before the children, so that it is dropped after them: a segment becomes stale when
    // its last process has ended.
    let cleanup = SegmentCleanup;
    let mut children = Children::new();
    let fabric = match arguments.transport {
        Transport::Shm => FabricAddress::SharedMemory(format!("demo-{}", std::process::id())),
        Transport::Udp => {
            let listen = if arguments.ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
            let controllers = arguments.reliable.then(|| format!("{}:1", arguments.processes));
            let processes = arguments.processes + u32::from(arguments.reliable);
            FabricAddress::Switch(children.start_switch(
                listen,
                processes,
                controllers.as_deref(),
            )?)
        }
    };
    let spec = |process| WorkerSpec {
        process,
        processes: arguments.processes,
        fabric: fabric.clone(),
        payload_len: arguments.size as usize,
        rate_per_s: arguments.rate,
        outstanding_max: arguments.outstanding,
        is_reliable: arguments.reliable,
        window_ns: window_ns(arguments.processes),
        calibration: clock.calibration().to_words(),
        inject_fault: arguments.inject_fault.filter(|_| process == 0),
    };
    for process in 0..arguments.processes {
        children.start_worker(&spec(process), &events_tx)?;
    }
    let summary = Scenario::new(arguments, fabric, clock, children, events, display).run();
    drop(cleanup);
    summary
}

/// Forwards Ctrl-C to the running demo, of which `bench recovery` has many in turn.
struct Interrupts {
    events_tx: Arc<Mutex<Option<Sender<ChildEvent>>>>,
    is_interrupted: Arc<AtomicBool>,
}

impl Interrupts {
    fn install() -> Result<Self> {
        let events_tx: Arc<Mutex<Option<Sender<ChildEvent>>>> = Arc::default();
        let is_interrupted: Arc<AtomicBool> = Arc::default();
        let (events, flag) = (Arc::clone(&events_tx), Arc::clone(&is_interrupted));
        crate::interrupt::on_interrupt(move || {
            flag.store(true, Ordering::Release);
            if let Some(events_tx) = &*events.lock().unwrap_or_else(PoisonError::into_inner) {
                // Fails when the demo has ended.
                let _ = events_tx.send(ChildEvent::Interrupted);
            }
        })?;
        Ok(Self { events_tx, is_interrupted })
    }

    fn forward_to(&self, events_tx: &Sender<ChildEvent>) {
        let mut registered = self.events_tx.lock().unwrap_or_else(PoisonError::into_inner);
        *registered = Some(events_tx.clone());
        if self.is_interrupted.load(Ordering::Acquire) {
            // The interrupt came before this demo was registered.
            let _ = events_tx.send(ChildEvent::Interrupted);
        }
    }
}

/// Returns the length of a log window in ns: it grows with the number of processes, as the size of
/// each window does.
fn window_ns(processes: u32) -> u64 {
    1_000_000 * u64::from(processes)
}

/// Removes stale shared-memory segments on drop. The last process to leave removes its own segment;
/// killed processes do not.
struct SegmentCleanup;

impl Drop for SegmentCleanup {
    fn drop(&mut self) {
        // A segment that cannot be removed now is left to the next demo.
        let _ = onepipe_transport_shm::remove_stale_segments();
    }
}
