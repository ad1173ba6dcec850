//! The one command of onepipe.
//!
//! Each subcommand has a file of its own. A command that measures takes `--json` and prints one
//! JSON object as its last line; the exit status is 0 when every invariant held, 1 when one broke or
//! something failed, 2 when the arguments make no sense, 130 after Ctrl-C.

#![forbid(unsafe_code)]

mod demo;
mod interrupt;
mod number;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Start with:
  onepipe demo        processes of this machine exchange ordered messages; one is killed";

/// Messages to many processes, in one order for all
#[derive(Debug, Parser)]
#[command(name = "onepipe", version, after_help = EXAMPLES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    #[command(hide = true)]
    DemoWorker,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::DemoWorker => demo::run_worker(),
    };
    result.unwrap_or_else(complain)
}

/// Says what went wrong, and where.
fn complain(error: anyhow::Error) -> ExitCode {
    let is_pipe = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
    // Whoever reads has had enough, as in `onepipe ... | head`.
    if !error.chain().any(|cause| cause.downcast_ref().is_some_and(is_pipe)) {
        eprintln!("onepipe: {error:#}");
    }
    ExitCode::FAILURE
}

/// Ends with the usage of the command and exit status 2: arguments that make no sense together.
fn refuse(what: &str) -> ! {
    Arguments::command().error(clap::error::ErrorKind::ArgumentConflict, what).exit()
}
