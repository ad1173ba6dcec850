//! `onepipe block`: a block device that NBD clients use.

mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  onepipe block serve --file disk.img --size 1GiB    a local file, for clients at port 10809
  nbdinfo nbd://127.0.0.1:10809                      what the device is
  qemu-img convert -n -O raw image.qcow2 nbd://127.0.0.1:10809

The device is a file of this machine; it is not replicated yet.";

/// A block device for qemu, libnbd, fio and other NBD clients; a local file for now
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
}

/// Runs a subcommand.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Serve(arguments) => serve::run(arguments),
    }
}
