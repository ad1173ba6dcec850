//! `onepipe block`: a block device that NBD clients use.

mod bench;
mod control;
mod replace;
mod scrub;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  onepipe block serve --data DIR --size 1GiB         three replicas, for clients at port 10809
  nbdinfo nbd://127.0.0.1:10809                      what the device is
  qemu-img convert -n -O raw image.qcow2 nbd://127.0.0.1:10809
  onepipe block scrub --data DIR                     compares the replicas, and repairs them
  onepipe block serve --data DIR --process 0 ...     one of three replicas, each in a program
  onepipe block replace --data DIR --replica 1       fills new files of a replica
  onepipe block bench                                beside primary-backup replication";

/// A replicated block device for qemu, libnbd, fio and other NBD clients
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Scrub(scrub::Arguments),
    Replace(replace::Arguments),
    Bench(bench::Arguments),
}

/// Runs a subcommand.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Scrub(arguments) => scrub::run(arguments),
        Command::Replace(arguments) => replace::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
    }
}
