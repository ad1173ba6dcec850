//! `onepipe bulk`: a file to many machines at the speed of one link.

mod control;
mod receive;
mod send;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use onepipe::{Carrier, Plain};

use crate::switch::address;
use crate::units;

/// Where receivers listen by default.
const ADDRESS: &str = "0.0.0.0:4420";

const EXAMPLES: &str = "\
Examples:
  onepipe bulk recv                                    on each receiver
  onepipe bulk send disk.img --to host1:4420,host2:4420,host3:4420
  onepipe bulk send disk.img --transport udp --to host1:4420,host2:4420,host3:4420

Receivers relay blocks to each other, so every receiver must be reachable from all others at the
address given to the sender. A receiver that fails is left out and the others continue; restarted,
it resumes where it stopped (FILE.onepipe-part).";

/// Send a file to many machines at the speed of one link, or receive it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    Send(SendArguments),
    Recv(RecvArguments),
}

/// Send a file to receivers that run `onepipe bulk recv`
#[derive(Debug, Args)]
pub struct SendArguments {
    /// The file
    file: PathBuf,
    /// The receivers
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
    #[arg(value_parser = address)]
    to: Vec<SocketAddr>,
    /// What carries the file
    #[arg(long, value_name = "TRANSPORT", default_value = "tcp", value_parser = carrier)]
    transport: Carrier,
    /// How blocks travel
    #[arg(long, value_enum, default_value_t = Schedule::Pipeline)]
    schedule: Schedule,
    /// Bytes of a block
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = units::bytes)]
    block: usize,
    /// Bytes that a receiver that is started again may have to receive again, at most
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = units::bytes)]
    chunk: usize,
    /// How long receivers that are not there are looked for
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time_ns)]
    connect_timeout: u64,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
}

/// Receive a file from `onepipe bulk send`
#[derive(Debug, Args)]
pub struct RecvArguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS, value_parser = address)]
    listen: SocketAddr,
    /// The file to write, or a folder for it
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Receive file after file, until interrupted
    #[arg(long)]
    forever: bool,
    /// Print one JSON object for each file as a line of standard output
    #[arg(long)]
    json: bool,
}

/// How blocks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Schedule {
    /// Everybody relays from the first block on: the quickest as a rule
    Pipeline,
    /// From one to the next: for links of uneven speed and many blocks
    Chain,
    /// Whole files from half of all to the other half
    Tree,
    /// The sender sends to one after the other
    Sequential,
}

impl Schedule {
    const fn plain(self) -> Plain {
        match self {
            Self::Pipeline => Plain::Pipeline,
            Self::Chain => Plain::Chain,
            Self::Tree => Plain::Tree,
            Self::Sequential => Plain::Sequential,
        }
    }
}

/// What carries a group, by its name.
fn carrier(name: &str) -> Result<Carrier, String> {
    let names = || Carrier::ALL.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ");
    Carrier::by_name(name).ok_or_else(|| format!("expected one of {}", names()))
}

/// Sends or receives.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.side {
        Side::Send(arguments) => send::run(arguments),
        Side::Recv(arguments) => receive::run(arguments),
    }
}

/// Ends the process when the user interrupts it. Whatever has come of a file stays: it is gone on
/// with. The others hear of it as their connections break.
fn end_on_interrupt() -> Result<()> {
    crate::interrupt::on_interrupt(|| {
        eprintln!("onepipe: interrupted");
        std::process::exit(crate::interrupt::EXIT_STATUS.into());
    })
}
