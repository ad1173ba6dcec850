//! Arguments that several commands share.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use onepipe::{Builder, Pipe, ProcessId};
use onepipe_daemon_switch::Controllers;

use crate::units;

/// Options of commands that join a fabric over a network.
#[derive(Clone, Copy, Debug, Args)]
pub struct JoinArgs {
    /// Time to wait for an answer of the switch or aggregator, like 500ms; without an answer the
    /// command exits with status 1
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
    /// Print counters to standard error at this interval, like 1s [default: at the end only]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    pub stats_interval: Option<u64>,
    /// Print the counters at the end as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Exit when standard input ends, for a parent that may be killed
    #[arg(long, hide = true)]
    pub exit_on_stdin_eof: bool,
}

/// Returns how a process joins a fabric: through the switch or aggregator with this address, or in
/// the shared memory of this machine.
pub fn builder(
    process: u32,
    (udp, overlay): (Option<&str>, Option<&str>),
    fabric: &str,
) -> Builder {
    let builder = Pipe::builder().process(process);
    match (udp, overlay) {
        (Some(switch), _) => builder.udp(switch),
        (None, Some(aggregator)) => builder.overlay(aggregator),
        (None, None) => builder.fabric(fabric),
    }
}

/// Upper bound of process ids.
const PROCESSES_MAX: u32 = 1 << 20;

/// Resolves `HOST:PORT` to its first address.
///
/// # Errors
/// With what is wrong with the text, and what to write.
pub fn address(text: &str) -> Result<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        bail!("{text:?} has no port: write for example 127.0.0.1:4410");
    };
    ensure!(
        port.parse::<u16>().is_ok(),
        "{port:?} in {text:?} is not a port from 0 to 65535: write for example 127.0.0.1:4410"
    );
    ensure!(
        !host.is_empty() && !host.contains(':'),
        "{host:?} in {text:?} is not a host: write for example 127.0.0.1:{port} or [::1]:{port}"
    );
    match text.to_socket_addrs().map(|mut addresses| addresses.next()) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => bail!("the host name {host:?} has no address: write its IP address"),
        Err(error) => {
            bail!(
                "the host name {host:?} does not resolve: correct it, or write its IP address ({error})"
            )
        }
    }
}

/// Checks an address and keeps the text.
///
/// # Errors
/// As [`address`].
pub fn checked_address(text: &str) -> Result<String> {
    address(text).map(|_| text.to_owned())
}

/// Prints how to let other machines in, if `listen` is the default and no other machine reaches it.
pub fn print_if_local(listen: SocketAddr, default: &str) {
    if listen.ip().is_loopback() && default.parse() == Ok(listen) {
        let port = listen.port();
        eprintln!(
            "onepipe: this machine alone reaches {listen}; for others: --listen 0.0.0.0:{port}"
        );
    }
}

/// Parses the process ids of the controllers: `FIRST` or `FIRST:COUNT`.
///
/// # Errors
/// With what is wrong with the text, and what to write.
pub fn controllers(text: &str) -> Result<Controllers> {
    let (first, count) = text.split_once(':').unwrap_or((text, "1"));
    let read = |word: &str| word.trim().parse::<u32>();
    let (Ok(first), Ok(count)) = (read(first), read(count)) else {
        bail!("{text:?} is not FIRST or FIRST:COUNT: write for example 1020:3");
    };
    ensure!(count > 0, "{text:?} names no process: the count after the colon must be 1 or more");
    let is_in_range = first.checked_add(count).is_some_and(|end| end <= PROCESSES_MAX);
    ensure!(is_in_range, "{text:?}: process ids must be below {PROCESSES_MAX}");
    Ok(Controllers { first: ProcessId(first), count })
}

/// Checks that ids lie below the number of processes that a command was given, or has by default;
/// otherwise exits with a usage error.
pub fn require_ids_below(processes: u32, process: Option<u32>, controllers: Option<Controllers>) {
    if let Some(process) = process.filter(|process| *process >= processes) {
        crate::usage_error(&format!(
            "process {process} is out of range: ids must be below --processes {processes}"
        ));
    }
    if let Some(Controllers { first, count }) = controllers
        && first.0 + count > processes
    {
        let last = first.0 + count - 1;
        crate::usage_error(&format!(
            "controller {last} is out of range: ids must be below --processes {processes}"
        ));
    }
}
