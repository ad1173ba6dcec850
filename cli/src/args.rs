//! Arguments that several commands share.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onepipe::ProcessId;
use onepipe_daemon_switch::Controllers;

use crate::units;

/// Options of commands that join a fabric over a network.
#[derive(Clone, Copy, Debug, Args)]
pub struct JoinArgs {
    /// How long to wait for the switch or aggregator to answer, like 500ms; then exit with status 1
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = units::time_ns)]
    wait: u64,
}

impl JoinArgs {
    /// How long to wait. Never zero, which would be not to join before the start.
    pub fn wait(self) -> Duration {
        Duration::from_nanos(self.wait.max(1))
    }
}

/// Options of commands that run until they are interrupted.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Interval of printing counters to standard error, like 1s [default: at the end only]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    pub stats_interval: Option<u64>,
    /// Print the counters at the end as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Exit when standard input ends, for a parent that may be killed
    #[arg(long, hide = true)]
    pub exit_on_stdin_eof: bool,
}

/// Resolves `HOST:PORT` to its first address.
pub fn address(text: &str) -> Result<SocketAddr> {
    let mut addresses = text
        .to_socket_addrs()
        .with_context(|| format!("{text:?} is not an address: write for example 127.0.0.1:4410"))?;
    addresses.next().with_context(|| format!("{text:?} resolves to no address"))
}

/// Parses the process ids of the controllers: `FIRST` or `FIRST:COUNT`.
pub fn controllers(text: &str) -> Result<Controllers> {
    let (first, count) = text.split_once(':').unwrap_or((text, "1"));
    let number = |text: &str| {
        text.parse().with_context(|| format!("{text:?} is not a number: write for example 1020:3"))
    };
    Ok(Controllers { first: ProcessId(number(first)?), count: number(count)? })
}
