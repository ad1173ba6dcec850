//! `onepipe demo`: the main job in one command.

mod amcast;
mod amcast_worker;
mod arbiter;
mod atomicity;
mod check;
mod course;
mod crew;
mod incast;
mod log;
mod pauses;
mod payload;
pub mod recovery;
mod reliable;
mod show;
mod summary;
mod unsent;
mod words;
mod worker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum, value_parser};
use onepipe_transport_clock::SystemClock;

use crate::number;
pub use amcast_worker::Arguments as AmcastWorker;
use course::Course;
use crew::{Crew, Told};
use show::Show;
use summary::Summary;
use words::{Place, Spec, Wrong};

/// Processes of a demo at most: they share one machine.
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
  onepipe demo amcast                           groups that go on when their leader is killed";

/// Start processes that scatter to each other, check that all agree on the order, kill one
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    of: Option<Of>,
    /// How many processes, each a real one of the operating system
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(2..=64))]
    processes: u32,
    /// Send every other scattering reliably: all who survive deliver it, or none does
    #[arg(long)]
    reliable: bool,
    /// What carries the messages
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    transport: Transport,
    /// With --transport udp: IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Bytes a message, 24 to 1000000
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(24..=1_000_000))]
    size: u32,
    /// How long the processes send
    #[arg(long, default_value = "5", value_parser = number::seconds)]
    seconds: f64,
    /// Scatterings a second of each process, like 2000, 50k or 1.5M [default: as many as possible]
    #[arg(long, value_parser = number::rate)]
    rate: Option<f64>,
    /// Scatterings that each process may have under way
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u64).range(1..=1_000_000))]
    outstanding: u64,
    /// Kill one process half-way (default)
    #[arg(long, overrides_with = "no_kill")]
    kill: bool,
    /// Kill nobody
    #[arg(long, overrides_with = "kill")]
    no_kill: bool,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
    /// Make process 0 do wrong, to see the check fail
    #[arg(long, value_enum, hide = true)]
    wrong: Option<Wrong>,
}

/// Demos of other services.
#[derive(Debug, Subcommand)]
enum Of {
    Arbiter(arbiter::Arguments),
    Amcast(amcast::Arguments),
}

/// What carries the messages.
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

/// The hidden command that a demo's processes run.
pub fn run_worker() -> Result<ExitCode> {
    worker::run()?;
    Ok(ExitCode::SUCCESS)
}

/// The hidden command that the replicas and clients of `demo amcast` run.
pub fn run_amcast_worker(arguments: &AmcastWorker) -> Result<ExitCode> {
    amcast_worker::run(arguments)
}

/// Runs the demo.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.of {
        Some(Of::Arbiter(arguments)) => return arbiter::run(arguments),
        Some(Of::Amcast(arguments)) => return amcast::run(arguments),
        None => {}
    }
    if arguments.ipv6 && arguments.transport == Transport::Shm {
        crate::refuse("--ipv6 goes with --transport udp");
    }
    let interrupts = Interrupts::listen()?;
    let Some(summary) = rehearse(arguments, Show::new(arguments), &interrupts)? else {
        eprintln!("onepipe: interrupted; all processes have ended");
        return Ok(ExitCode::from(crate::interrupt::EXIT_STATUS));
    };
    summary.print(arguments.json).context("cannot write the summary")?;
    Ok(if summary.has_held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One demo from beginning to end. `None` if it was interrupted.
fn rehearse(arguments: &Arguments, show: Show, interrupts: &Interrupts) -> Result<Option<Summary>> {
    let clock = SystemClock::calibrated();
    let (teller, told) = channel();
    interrupts.tell(&teller);
    // In this order: whatever happens, first all processes end, then their memory is removed.
    let sweep = Sweep;
    let mut crew = Crew::new();
    let place = match arguments.transport {
        Transport::Shm => Place::SharedMemory(format!("demo-{}", std::process::id())),
        Transport::Udp => {
            let listen = if arguments.ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
            let controllers = arguments.reliable.then(|| format!("{}:1", arguments.processes));
            Place::Switch(crew.start_switch(listen, controllers.as_deref())?)
        }
    };
    let spec = |process| Spec {
        process,
        processes: arguments.processes,
        place: place.clone(),
        payload_len: arguments.size as usize,
        rate_per_s: arguments.rate,
        outstanding_max: arguments.outstanding,
        is_reliable: arguments.reliable,
        window_ns: window_ns(arguments.processes),
        calibration: clock.calibration().to_words(),
        wrong: arguments.wrong.filter(|_| process == 0),
    };
    for process in 0..arguments.processes {
        crew.start_worker(&spec(process), &teller)?;
    }
    let summary = Course::new(arguments, place, clock, crew, told, show).run();
    drop(sweep);
    summary
}

/// The user's wish to end, told to whatever demo is under way.
struct Interrupts {
    listener: Arc<Mutex<Option<Sender<Told>>>>,
    have_come: Arc<AtomicBool>,
}

impl Interrupts {
    fn listen() -> Result<Self> {
        let listener: Arc<Mutex<Option<Sender<Told>>>> = Arc::default();
        let have_come: Arc<AtomicBool> = Arc::default();
        let (tell, note) = (Arc::clone(&listener), Arc::clone(&have_come));
        crate::interrupt::on_interrupt(move || {
            note.store(true, Ordering::Release);
            if let Some(listener) = &*tell.lock().unwrap_or_else(PoisonError::into_inner) {
                // When nobody listens any more the demo is over.
                let _ = listener.send(Told::Interrupted);
            }
        })?;
        Ok(Self { listener, have_come })
    }

    fn tell(&self, listener: &Sender<Told>) {
        let mut told = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(listener.clone());
        if self.have_come.load(Ordering::Acquire) {
            // It came before anybody listened; it is told to who listens now, who holds the ear.
            let _ = listener.send(Told::Interrupted);
        }
    }
}

/// Length of a window of the logs, in ns: what a worker logs grows with the square of their number,
/// so windows do too.
fn window_ns(processes: u32) -> u64 {
    1_000_000 * u64::from(processes)
}

/// Removes segments of shared memory that nobody is in. The last process to leave removes its own;
/// when all were killed, nobody did.
struct Sweep;

impl Drop for Sweep {
    fn drop(&mut self) {
        // What cannot be removed now stays for the next demo.
        let _ = onepipe_transport_shm::remove_stale_segments();
    }
}
