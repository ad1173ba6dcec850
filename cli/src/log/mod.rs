//! `onepipe log`: a replicated log on disk.

mod access;
mod append;
mod read;
mod replace;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  onepipe log serve --data D             three replicas in this program, on disk
  onepipe log append 'first' 'second'    appends two entries
  ls | onepipe log append                appends each line of its input
  onepipe log read                       prints all committed entries
  onepipe log replace --data D --replica 1       for a replica whose directory is lost

An entry is committed in one round trip, when all replicas have it on disk in the same position.";

/// A log of entries on the disks of several replicas, written in one round trip
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Append(append::Arguments),
    Read(read::Arguments),
    Replace(replace::Arguments),
}

/// Runs a subcommand.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Append(arguments) => append::run(arguments),
        Command::Read(arguments) => read::run(arguments),
        Command::Replace(arguments) => replace::run(arguments),
    }
}
