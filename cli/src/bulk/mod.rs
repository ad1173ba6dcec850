//! `onepipe bulk`: sends a file to many machines at the speed of one link.

mod control;
mod receive;
mod send;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use onepipe::{Carrier, Plain};

use crate::args::address;
use crate::units;

/// Default address of a receiver.
const ADDRESS: &str = "127.0.0.1:4420";

const EXAMPLES: &str = "\
Examples:
  onepipe bulk recv --listen 0.0.0.0:4420              on each receiver
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
    /// File to send
    file: PathBuf,
    /// Addresses of the receivers
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', required = true)]
    #[arg(value_parser = address)]
    to: Vec<SocketAddr>,
    /// Transport of the blocks: tcp, udp or shm
    #[arg(long, value_name = "TRANSPORT", default_value = "tcp", value_parser = carrier)]
    transport: Carrier,
    /// Schedule of the blocks
    #[arg(long, value_enum, default_value_t = Schedule::Pipeline)]
    schedule: Schedule,
    /// Size of a block
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = units::bytes)]
    block: usize,
    /// Size of a chunk: what a restarted receiver may receive twice, at most
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = units::bytes)]
    chunk: usize,
    /// Retry receivers that cannot be reached for this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time_ns)]
    connect_timeout: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Receive a file from `onepipe bulk send`
#[derive(Debug, Args)]
pub struct RecvArguments {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS, value_parser = address)]
    listen: SocketAddr,
    /// File to write, or directory for it
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Refuse files longer than this, like 20GiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    max_bytes: Option<usize>,
    /// Receive file after file, until interrupted
    #[arg(long)]
    forever: bool,
    /// Print the result of each file as one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Schedule {
    /// Binomial pipeline: all relay from the first block on; usually the fastest
    Pipeline,
    /// Chain: for links of uneven speed and many blocks
    Chain,
    /// Binomial tree of whole files
    Tree,
    /// The sender sends to one receiver after the other
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

/// Parses the name of a transport.
fn carrier(name: &str) -> Result<Carrier, String> {
    let names = || Carrier::ALL.iter().map(|carrier| carrier.name()).collect::<Vec<_>>().join(", ");
    Carrier::by_name(name).ok_or_else(|| format!("expected one of {}", names()))
}

/// Sends or receives a file.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.side {
        Side::Send(arguments) => send::run(arguments),
        Side::Recv(arguments) => receive::run(arguments),
    }
}

/// Exits the process when the user interrupts it. A partial file is kept, as it can be resumed; the
/// peers notice the closed connections.
fn end_on_interrupt() -> Result<()> {
    crate::interrupt::on_interrupt(|| {
        eprintln!("onepipe: interrupted");
        std::process::exit(crate::interrupt::EXIT_STATUS.into());
    })
}
