//! `onepipe aggregator`: a switch of an overlay network, which orders messages without carrying
//! them.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_daemon_switch::{Config, Controllers, SoftwareSwitch, SwitchId};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::Given;

use crate::args::{self, JoinArgs, ServeArgs};
use crate::switch;
use crate::units;

/// Default address.
const ADDRESS: &str = "127.0.0.1:4410";

const EXAMPLES: &str = "\
Examples:
  onepipe aggregator                            for processes of this machine
  onepipe aggregator --listen 0.0.0.0:4410      for other machines, too; on one, say 10.0.0.1
  onepipe aggregator --listen 0.0.0.0:4410 --parent 10.0.0.1:4410
                                                on others, for their processes: any tree will do

Then, on each machine, with the nearest aggregator:
  onepipe node --overlay 10.0.0.1:4410 --process 0 --reliable";

/// Run an aggregator, which orders messages that processes send directly to each other over any IP
/// network
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Address to listen on; port 0 picks a free port. Other machines reach the aggregator only at
    /// an address of the network; 0.0.0.0:4410 stands for all of them
    #[arg(
        long, value_name = "ADDRESS", default_value = ADDRESS, value_parser = args::address
    )]
    listen: SocketAddr,
    /// Address of the parent aggregator [default: none, this is the root]
    #[arg(long, value_name = "ADDRESS", value_parser = args::address)]
    parent: Option<SocketAddr>,
    /// Process ids that are reserved for controllers, like 1020 or 1020:3: the first, and how many
    /// [default: none; below a parent, as stated by the parent]
    #[arg(long, value_name = "FIRST[:COUNT]", value_parser = args::controllers)]
    controllers: Option<Controllers>,
    /// Id of this aggregator; in a fabric with controllers each aggregator needs an id of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    id: u32,
    /// Upper bound of the process ids [default: 1024; below a parent, as stated by the parent]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    processes: Option<u32>,
    /// Maximum number of processes and aggregators attached to this one
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    ports: u16,
    /// Interval of beacons while something is undelivered, like 50us [default: 20us]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    beacon_interval: Option<u64>,
    /// Interval of heartbeats at rest, like 50ms; with 0ns beacons are sent at rest, too, at the
    /// beacon interval [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    heartbeat_interval: Option<u64>,
    /// Time without a frame after which a link counts as lost, like 30ms; a killed process is
    /// detected at once [default: 100ms, with controllers 1s]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    link_timeout: Option<u64>,
    /// Busy-poll: lowest latency, takes a whole core
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    join_args: JoinArgs,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// Runs the aggregator until it is interrupted.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let listen = arguments.listen;
    if let Some(parent) = arguments.parent
        && listen.ip().is_loopback()
        && !parent.ip().is_loopback()
    {
        let port = listen.port();
        crate::usage_error(&format!(
            "an aggregator at {listen} cannot reach its parent at {parent}: add --listen 0.0.0.0:{port}"
        ));
    }
    let mut config = Config::new(listen);
    config.up = arguments.parent;
    config.above = "aggregator";
    config.switch = SwitchId(arguments.id);
    if let Some(controllers) = arguments.controllers {
        config = config.with_controllers(controllers);
    }
    config.ports_max = arguments.ports;
    config.processes_max = arguments.processes.unwrap_or(config.processes_max);
    // A parent states what is not given.
    if arguments.processes.is_some() || arguments.parent.is_none() {
        args::require_ids_below(config.processes_max, None, arguments.controllers);
    }
    config.wait = arguments.join_args.wait();
    config.given = Given {
        processes_max: arguments.processes,
        controllers: arguments.controllers,
        link_timeout_ns: arguments.link_timeout,
    };
    config.beacon_interval_ns = arguments.beacon_interval.unwrap_or(config.beacon_interval_ns);
    config.heartbeat_interval_ns =
        arguments.heartbeat_interval.unwrap_or(config.heartbeat_interval_ns);
    config.link_timeout_ns = arguments.link_timeout.unwrap_or(config.link_timeout_ns);
    if arguments.spin {
        config.idle = Idle::Spin;
    }
    let aggregator = SoftwareSwitch::new(&config)
        .with_context(|| format!("cannot start an aggregator at {}", arguments.listen))?;
    args::print_if_local(listen, ADDRESS);
    switch::serve(aggregator, &arguments.serve_args)
}
