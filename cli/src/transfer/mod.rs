//! `onepipe transfer`: sends a file to another process in the timeslots of an arbiter.

mod counters;
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

use crate::args::{JoinArgs, address};
use crate::units;

const EXAMPLES: &str = "\
Examples, each in a terminal of its own:
  onepipe switch --link-rate 125M                      the network
  onepipe arbiter --udp 127.0.0.1:4410                 grants timeslots
  onepipe transfer receive                             process 0 writes what it receives to a file
  onepipe transfer send disk.img                       process 1

  tar c photos | onepipe transfer send - --process 2 --name photos.tar
  onepipe transfer receive --out - | tar x
  onepipe transfer send disk.img --arbiter 1000,1001   two arbiters: one takes over from the other
  onepipe transfer send disk.img --slot 1.25us         links of 10 Gbit/s

All endpoints and arbiters must use the same --slot and --nodes.";

/// Send a file to another process in the timeslots of an arbiter, or receive it
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
    /// File to send, or - for standard input
    file: PathBuf,
    /// Process id of the receiver
    #[arg(long, value_name = "ID", default_value_t = 0)]
    to: u32,
    /// Own process id: one of the arbiter's endpoints, and unique
    #[arg(long, value_name = "ID", default_value_t = 1)]
    process: u32,
    /// Name of the file at the receiver [default: its name here; of standard input: stdin]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    options: EndpointOptions,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Receive what `onepipe transfer send` sends
#[derive(Debug, Args)]
pub struct ReceiveArguments {
    /// Own process id: one of the arbiter's endpoints, and unique
    #[arg(long, value_name = "ID", default_value_t = 0)]
    process: u32,
    /// File to write, directory for it (created if it ends with /, or with --forever), or - for
    /// standard output
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Refuse files longer than this, like 20GiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    max_bytes: Option<usize>,
    /// Receive files from several senders, until interrupted
    #[arg(long)]
    forever: bool,
    #[command(flatten)]
    options: EndpointOptions,
    /// Print the result of each file as one JSON object per line, and nothing else, to standard
    /// output (with `--out -` to standard error)
    #[arg(long)]
    json: bool,
}

/// Options of both endpoints.
#[derive(Clone, Debug, Args)]
pub struct EndpointOptions {
    /// Address of the switch
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_SWITCH", default_value = "127.0.0.1:4410")]
    #[arg(value_parser = address)]
    udp: SocketAddr,
    /// Process ids of the arbiters, in order of preference
    #[arg(long, value_name = "ID,...", value_delimiter = ',', default_value = "1000")]
    arbiter: Vec<u32>,
    /// Number of endpoints: the arbiters' --nodes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    nodes: u32,
    /// Length of a timeslot: the arbiters' --slot
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = units::timeslot_ns)]
    slot: u64,
    /// Give up on a peer that does not reply for this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time_ns)]
    timeout: u64,
    #[command(flatten)]
    join_args: JoinArgs,
}

impl EndpointOptions {
    /// Exits with a usage error if the arguments contradict each other.
    fn check(&self, process: u32) {
        let Self { arbiter, nodes, .. } = self;
        self.check_endpoint("--process", process);
        if arbiter.len() > ARBITERS_MAX {
            crate::usage_error(&format!(
                "--arbiter names {}: at most {ARBITERS_MAX}",
                arbiter.len()
            ));
        }
        for (index, id) in arbiter.iter().enumerate() {
            if id < nodes {
                crate::usage_error(&format!(
                    "--arbiter {id} is the id of an endpoint: endpoints are 0 to {} with --nodes {nodes}",
                    nodes - 1
                ));
            }
            if arbiter[..index].contains(id) {
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

/// Maximum number of arbiters of an endpoint.
const ARBITERS_MAX: usize = 8;

/// Returns whether the path means standard input or output.
fn is_stdio(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
}

/// Sends or receives a file.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.side {
        Side::Send(arguments) => send::run(arguments),
        Side::Receive(arguments) => receive::run(arguments),
    }
}
