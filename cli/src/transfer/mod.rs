//! `onepipe transfer`: bytes to another process, each packet in a timeslot of an arbiter.

mod diagnosis;
mod endpoint;
mod message;
mod receive;
mod report;
mod send;
mod target;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::switch::address;
use crate::units;

const EXAMPLES: &str = "\
Examples, each in a terminal of its own:
  onepipe switch --link-rate 125M                      the network
  onepipe arbiter --udp 127.0.0.1:4410                 gives out timeslots
  onepipe transfer receive                             process 0 writes what comes to a file
  onepipe transfer send disk.img                       process 1

  tar c photos | onepipe transfer send - --process 2 --name photos.tar
  onepipe transfer receive --out - | tar x
  onepipe transfer send disk.img --arbiter 1000,1001   two arbiters: one takes over from the other
  onepipe transfer send disk.img --slot 1.25us         links of 10 Gbit/s

All endpoints and arbiters must use the same --slot and --nodes.";

/// Send bytes to another process in the timeslots of an arbiter, or receive them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    Send(SendArguments),
    #[command(visible_alias = "recv")]
    Receive(ReceiveArguments),
}

/// Send a file, or standard input, to a process that runs `onepipe transfer receive`
#[derive(Debug, Args)]
pub struct SendArguments {
    /// The file, or - for standard input
    file: PathBuf,
    /// The process that receives it
    #[arg(long, value_name = "ID", default_value_t = 0)]
    to: u32,
    /// Which process this is: one of the arbiter's endpoints, and nobody else
    #[arg(long, value_name = "ID", default_value_t = 1)]
    process: u32,
    /// What the receiver is to call it [default: as the file; of standard input: stdin]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    options: EndpointOptions,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
}

/// Receive what `onepipe transfer send` sends
#[derive(Debug, Args)]
pub struct ReceiveArguments {
    /// Which process this is: one of the arbiter's endpoints, and nobody else
    #[arg(long, value_name = "ID", default_value_t = 0)]
    process: u32,
    /// The file to write, a folder for it (made if it ends with /, or with --forever), or - for
    /// standard output
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Receive file after file, from several at a time, until interrupted
    #[arg(long)]
    forever: bool,
    #[command(flatten)]
    options: EndpointOptions,
    /// Print one JSON object for each file as a line of standard output (with `--out -` of standard
    /// error), and nothing else there
    #[arg(long)]
    json: bool,
}

/// Where an end is, and what gives it timeslots.
#[derive(Clone, Debug, Args)]
pub struct EndpointOptions {
    /// The switch
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_SWITCH", default_value = "127.0.0.1:4410")]
    #[arg(value_parser = address)]
    udp: SocketAddr,
    /// The process ids of the arbiters, the one to ask first in front
    #[arg(long, value_name = "ID,...", value_delimiter = ',', default_value = "1000")]
    arbiter: Vec<u32>,
    /// How many endpoints the arbiters serve: their --nodes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    nodes: u32,
    /// Length of a timeslot: the arbiters' --slot
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = units::timeslot_ns)]
    slot: u64,
    /// How long whoever does not answer is waited for
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time_ns)]
    timeout: u64,
}

impl EndpointOptions {
    /// Ends with a complaint about numbers that make no sense together.
    fn check(&self, process: u32) {
        let Self { arbiter, nodes, .. } = self;
        self.check_endpoint("--process", process);
        if arbiter.len() > ARBITERS_MAX {
            crate::usage_error(&format!(
                "--arbiter names {}: at most {ARBITERS_MAX}",
                arbiter.len()
            ));
        }
        for (at, id) in arbiter.iter().enumerate() {
            if id < nodes {
                crate::usage_error(&format!(
                    "--arbiter {id} is the id of an endpoint: endpoints are 0 to {} with --nodes {nodes}",
                    nodes - 1
                ));
            }
            if arbiter[..at].contains(id) {
                crate::usage_error(&format!("--arbiter names {id} twice"));
            }
        }
    }

    fn check_endpoint(&self, option: &str, id: u32) {
        if id >= self.nodes {
            crate::usage_error(&format!(
                "{option} {id} is not an endpoint: endpoints are 0 to {} with --nodes {}",
                self.nodes - 1,
                self.nodes
            ));
        }
    }
}

/// Arbiters that an endpoint may know.
const ARBITERS_MAX: usize = 8;

/// Whether this stands for standard input or output.
fn is_stdio(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
}

/// Sends or receives.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.side {
        Side::Send(arguments) => send::run(arguments),
        Side::Receive(arguments) => receive::run(arguments),
    }
}
