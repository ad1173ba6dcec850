//! Parts of an overlay, as programs: for hosts that a test or a measurement sets up.

#![forbid(unsafe_code)]

mod latency;
mod node;

use std::io::{Read, Write, stdin, stdout};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use onepipe_daemon_switch::{Config, SoftwareSwitch};

const USAGE: &str = "\
overlay aggregator LISTEN [PARENT]     aggregates until its input ends
overlay node AGGREGATOR ID ALL COUNT   scatters COUNT times to processes 0..ALL, logs what arrives
overlay latency [COUNT]                measures commits over trees on the loopback";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["aggregator", listen] => aggregate(listen.parse()?, None),
        ["aggregator", listen, parent] => aggregate(listen.parse()?, Some(parent.parse()?)),
        ["node", aggregator, process, all, count] => {
            node::run(aggregator.parse()?, process.parse()?, all.parse()?, count.parse()?)
        }
        ["latency"] => latency::run(2_000),
        ["latency", count] => latency::run(count.parse()?),
        _ => bail!("{USAGE}"),
    }
}

fn aggregate(listen: SocketAddr, parent: Option<SocketAddr>) -> Result<()> {
    let config = Config { up: parent, ..Config::new(listen) };
    let mut aggregator = SoftwareSwitch::new(&config).context("cannot start an aggregator")?;
    let stop = ends_with_input(aggregator.doorbell());
    writeln!(stdout(), "listening at {}", aggregator.local_addr())?;
    aggregator.run(&stop, |_| {});
    Ok(())
}

/// Set when standard input ends: who started this has ended it, or has died.
fn ends_with_input(doorbell: onepipe_transport_driver::Doorbell) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&stop);
    std::thread::spawn(move || {
        // However it ends, it has ended.
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        ends.store(true, Ordering::Release);
        doorbell.ring();
    });
    stop
}
