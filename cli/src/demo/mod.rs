//! `onepipe demo`: shows the main guarantees with real processes.
//!
//! The worker (`worker.rs`) is a program over the crate `onepipe`: it joins, scatters and receives.
//! The parent starts the fabric and the workers, kills one (`scenario.rs`), and has `verify/logs`
//! compare what all have logged.

mod amcast;
mod arbiter;
mod display;
mod fabric;
mod messages;
mod process_state;
mod scenario;
mod summary;
mod worker;

use std::fmt::Display;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum, value_parser};
use hdrhistogram::Histogram;
use onepipe_verify_logs::Fault;
use serde::Serialize;

use crate::progress::Output;
use crate::{interrupt, units};
use scenario::Scenario;
pub use summary::Summary;
pub use worker::run as run_worker;

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
    #[arg(long, hide = true)]
    inject_fault: Option<Fault>,
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Udp => "udp",
        }
    }
}

impl Arguments {
    fn title(&self) -> String {
        let Self { processes, size, .. } = self;
        let transport = match self.transport {
            Transport::Shm => "over shared memory",
            Transport::Udp => "over UDP through a software switch",
        };
        format!("{processes} processes {transport}; {size}-byte messages, all to all")
    }
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
    let output = if arguments.json { Output::Stderr } else { Output::Stdout };
    let summary = run_demo(arguments, output, &*interrupt::flag()?)?;
    conclude(&summary, arguments.json, summary.violations == 0)
}

/// Runs one demo from start to end.
///
/// # Errors
/// A process fails, or the user interrupts ([`interrupt::Interrupted`]).
pub fn run_demo(arguments: &Arguments, output: Output, interrupt: &AtomicBool) -> Result<Summary> {
    let mut scenario = Scenario::start(arguments, output, interrupt)?;
    scenario.run()?;
    Summary::new(&mut scenario)
}

/// Prints the result of any demo as JSON or as text. Returns the exit status: 0 only if every
/// invariant held.
fn conclude(summary: &(impl Serialize + Display), json: bool, held: bool) -> Result<ExitCode> {
    let text = if json { serde_json::to_string(summary)? + "\n" } else { summary.to_string() };
    stdout().lock().write_all(text.as_bytes()).context("cannot write the summary")?;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the median, the 99th percentile and the maximum.
fn quantiles(values: &Histogram<u64>) -> [u64; 3] {
    [values.value_at_quantile(0.5), values.value_at_quantile(0.99), values.max()]
}
