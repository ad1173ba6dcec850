//! `onepipe aggregator`: a switch that sits anywhere and carries no messages, until it is
//! interrupted.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_daemon_switch::{Config, Controllers, SoftwareSwitch, SwitchId};
use onepipe_transport_driver::Idle;

use crate::switch::{self, ServeArgs};
use crate::units;

const EXAMPLES: &str = "\
Examples:
  onepipe aggregator                          on one machine, say 10.0.0.1
  onepipe aggregator --parent 10.0.0.1:4410   on others, for their processes: any tree will do

Then, on each machine, with the nearest aggregator:
  onepipe node --overlay 10.0.0.1:4410 --process 0 --reliable";

/// Run an aggregator: ordering over any network, for processes that talk directly to each other
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Where to listen; port 0: any
    #[arg(
        long, value_name = "ADDRESS", default_value = "0.0.0.0:4410",
        value_parser = switch::address
    )]
    listen: SocketAddr,
    /// The aggregator above this one [default: it is the root]
    #[arg(long, value_name = "ADDRESS", value_parser = switch::address)]
    parent: Option<SocketAddr>,
    /// The process ids of the controllers, like 1020 or 1020:3: first and how many
    #[arg(long, value_name = "FIRST[:COUNT]", value_parser = switch::controllers)]
    controllers: Option<Controllers>,
    /// Its own number, with controllers different for every aggregator
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    id: u32,
    /// Process ids lie below this
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    processes: u32,
    /// Processes and aggregators that may hang on this one
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    ports: u16,
    /// How often an idle link carries a beacon, like 20us
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    beacon_interval: Option<u64>,
    /// A link that is silent for this long is no longer waited for, like 30ms [default: 100ms, with
    /// controllers 1s; who is killed is missed at once]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    link_timeout: Option<u64>,
    /// Never sleep: lowest latency, one core for itself
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// Runs the aggregator.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut config = Config::new(arguments.listen);
    config.up = arguments.parent;
    config.switch = SwitchId(arguments.id);
    if let Some(controllers) = arguments.controllers {
        config = config.with_controllers(controllers);
    }
    config.ports_max = arguments.ports;
    config.processes_max = arguments.processes;
    config.beacon_interval_ns = arguments.beacon_interval.unwrap_or(config.beacon_interval_ns);
    config.link_timeout_ns = arguments.link_timeout.unwrap_or(config.link_timeout_ns);
    if arguments.spin {
        config.idle = Idle::Spin;
    }
    let aggregator = SoftwareSwitch::new(&config)
        .with_context(|| format!("cannot start an aggregator at {}", arguments.listen))?;
    switch::serve(aggregator, &arguments.serve_args)
}
