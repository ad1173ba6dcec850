//! The `onepipe` command.
//!
//! Each subcommand has its own module. A command that measures takes `--json` and prints one JSON
//! object as its last line; the exit status is 0 when every invariant held, 1 when one was violated
//! or the command failed, 2 for invalid arguments, 130 after Ctrl-C.

#![forbid(unsafe_code)]

mod advice;
mod aggregator;
mod amcast;
mod arbiter;
mod args;
mod bench;
mod block;
mod bulk;
mod child_process;
mod clean;
mod completions;
mod controller;
mod decode;
mod demo;
mod figures;
mod incoming_file;
mod interrupt;
mod kv;
mod log;
mod logging;
mod node;
mod progress;
mod remote_text;
mod sim;
mod state_dir;
mod status;
mod store_errors;
mod switch;
mod transfer;
mod units;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

const _: () = assert!(
    !onepipe_base::mistake::ARE_POSSIBLE,
    "the feature `mistakes` is for `cargo xtask bugs` and its test, never for this program"
);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Start with:
  onepipe demo              processes of this machine exchange ordered messages; one is killed
  onepipe node --help       exchange messages between two terminals
  onepipe sim               the same in virtual time, on a network with 32 hosts

Every command logs to standard error: --log off|error|warn|info|debug or ONEPIPE_LOG [default:
info], --log-format text|json or ONEPIPE_LOG_FORMAT.

Exit status: 0 when every invariant held, 1 when one was violated or the command failed, 2 for
invalid arguments, 130 after Ctrl-C.";

/// Messages to many processes, in one total order
#[derive(Debug, Parser)]
#[command(name = "onepipe", version, after_help = EXAMPLES, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    log: logging::LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Node(node::Arguments),
    Switch(switch::Arguments),
    Aggregator(aggregator::Arguments),
    Controller(controller::Arguments),
    Arbiter(arbiter::Arguments),
    Member(amcast::MemberArguments),
    Coordinator(amcast::CoordinatorArguments),
    Bulk(bulk::Arguments),
    Transfer(transfer::Arguments),
    Kv(kv::Arguments),
    Log(log::Arguments),
    Block(block::Arguments),
    Status(status::Arguments),
    Clean(clean::Arguments),
    Decode(decode::Arguments),
    Sim(sim::Arguments),
    Bench(bench::Arguments),
    Figures(figures::Arguments),
    Completions(completions::Arguments),
    /// One process of a demo
    #[command(hide = true)]
    DemoWorker,
    /// One process of a benchmark
    #[command(hide = true)]
    BenchWorker {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let Arguments { log, command } = Arguments::parse();
    log.install();
    let result = match command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Switch(arguments) => switch::run(&arguments),
        Command::Aggregator(arguments) => aggregator::run(&arguments),
        Command::Controller(arguments) => controller::run(&arguments),
        Command::Arbiter(arguments) => arbiter::run(&arguments),
        Command::Member(arguments) => amcast::run_member(&arguments),
        Command::Coordinator(arguments) => amcast::run_coordinator(&arguments),
        Command::Bulk(arguments) => bulk::run(&arguments),
        Command::Transfer(arguments) => transfer::run(&arguments),
        Command::Kv(arguments) => kv::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Block(arguments) => block::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Clean(arguments) => clean::run(&arguments),
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::DemoWorker => demo::run_worker().map(|()| ExitCode::SUCCESS),
        Command::BenchWorker { arguments } => bench::run_worker(&arguments),
    };
    result.unwrap_or_else(report_error)
}

/// Prints an error with its causes and what to do. Returns the exit status.
fn report_error(error: anyhow::Error) -> ExitCode {
    if error.is::<interrupt::Interrupted>() {
        eprintln!("onepipe: interrupted");
        return interrupt::EXIT_STATUS.into();
    }
    let is_broken_pipe = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    // Ignore a closed pipe, as in `onepipe ... | head`.
    if !error.chain().any(|cause| cause.downcast_ref().is_some_and(is_broken_pipe)) {
        eprintln!("onepipe: {}", advice::describe(&error));
    }
    ExitCode::FAILURE
}

/// Exits with the usage of the command and exit status 2, for contradictory arguments.
fn usage_error(message: &str) -> ! {
    Arguments::command().error(clap::error::ErrorKind::ArgumentConflict, message).exit()
}
