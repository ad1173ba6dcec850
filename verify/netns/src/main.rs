//! Parts of an overlay as programs, for hosts that a test or a measurement sets up.

#![forbid(unsafe_code)]

mod latency;
mod node;

use std::io::{Read, Write, stdin, stdout};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use onepipe_base::{Controllers, ProcessId};
use onepipe_daemon_controller::{
    Attachment, Config as ControllerConfig, ControllerDaemon, RedbStore,
};
use onepipe_daemon_switch::{Config, SoftwareSwitch, SwitchId};

/// Process ids of controllers: one.
const CONTROLLERS: Controllers = Controllers { first: ProcessId(1000), count: 1 };

const USAGE: &str = "\
overlay aggregator LISTEN [PARENT]     aggregates until standard input ends
overlay controlled LISTEN ID [PARENT]  as aggregator with switch id ID, beside a controller
overlay controller AGGREGATOR STORE    runs a controller until standard input ends
overlay node AGGREGATOR ID ALL COUNT   scatters COUNT times to processes 0..ALL, logs deliveries
overlay member AGGREGATOR ID ALL COUNT as node, beside a controller
overlay latency [COUNT]                measures commits over trees on the loopback";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["aggregator", listen] => aggregate(Config::new(listen.parse()?), None),
        ["aggregator", listen, parent] => aggregate(Config::new(listen.parse()?), Some(parent)),
        ["controlled", listen, id] => aggregate(controlled(listen, id)?, None),
        ["controlled", listen, id, parent] => aggregate(controlled(listen, id)?, Some(parent)),
        ["controller", aggregator, store] => control(aggregator.parse()?, store.into()),
        [kind @ ("node" | "member"), aggregator, process, process_count, count] => {
            let controllers = (kind == "member").then_some(CONTROLLERS);
            let (process, process_count) = (process.parse()?, process_count.parse()?);
            node::run(aggregator.parse()?, process, process_count, count.parse()?, controllers)
        }
        ["latency"] => latency::run(2_000),
        ["latency", count] => latency::run(count.parse()?),
        _ => bail!("{USAGE}"),
    }
}

/// Returns the configuration of an aggregator in a fabric with a controller.
fn controlled(listen: &str, id: &str) -> Result<Config> {
    let config = Config::new(listen.parse()?).with_controllers(CONTROLLERS);
    Ok(Config { switch: SwitchId(id.parse()?), ..config })
}

fn aggregate(config: Config, parent: Option<&str>) -> Result<()> {
    let up = parent.map(str::parse).transpose()?;
    let config = Config { up, ..config };
    let mut aggregator = SoftwareSwitch::new(&config).context("cannot start an aggregator")?;
    let stop = stop_at_end_of_input(aggregator.doorbell());
    writeln!(stdout(), "listening at {}", aggregator.local_addr())?;
    aggregator.run(&stop, |_| {});
    Ok(())
}

/// Runs a controller that stores its decisions in the file `store`.
fn control(aggregator: SocketAddr, store: std::path::PathBuf) -> Result<()> {
    let attachment = Attachment::Switch(aggregator);
    let config = ControllerConfig::new(attachment, CONTROLLERS.first, CONTROLLERS);
    let daemon = ControllerDaemon::new(&config, RedbStore::new(store));
    let daemon = daemon.context("cannot start a controller")?;
    let stop = stop_at_end_of_input(daemon.doorbell());
    let ended = daemon.run(&stop, |event| {
        // An error means that the reader of standard output has exited.
        let _ = writeln!(stdout(), "{event:?}");
    });
    ended.context("the controller cannot go on")
}

/// Returns a flag that is set when standard input ends, because the parent process has closed it or
/// exited.
fn stop_at_end_of_input(doorbell: onepipe_transport_driver::Doorbell) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        // An error ends the input, too.
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Release);
        doorbell.ring();
    });
    stop
}
