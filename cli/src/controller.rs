//! `onepipe controller`: a replica of the controller.

mod settings;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_base::{Address, Instance};
use onepipe_controller::Event;
use onepipe_daemon_controller::{ControllerDaemon, RedbStore};

use crate::args::JoinArgs;
use settings::{ControllerOptions, Settings, StoreChoice};
pub use settings::{STATUS_LISTEN, address};

const EXAMPLES: &str = "\
Examples:
  onepipe controller --fabric lab                      in shared memory, as process 63
  onepipe controller --udp 127.0.0.1:4410              behind a switch, as process 1023
  onepipe controller --udp 10.0.0.1:4410 --controllers 1000:3 --process 1001 \\
      --etcd http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
  onepipe controller --config lab.toml                 the same keys, in a table [controller]

Behind a switch its `--controllers` are adopted; in shared memory all nodes must use the same. Then
query it:
  onepipe status";

/// Run a controller, which decides process failures and recovers the fabric
///
/// Each option may also be given in a file, and most as an environment variable: an option
/// overrides the environment, which overrides the file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    options: ControllerOptions,
    #[command(flatten)]
    join_args: JoinArgs,
    /// Exit when standard input ends, for a parent that may be killed
    #[arg(long, hide = true)]
    exit_on_stdin_eof: bool,
    /// Remove the store on exit, for a parent that may be killed
    #[arg(long, hide = true)]
    remove_store: bool,
}

/// Runs a controller until it is interrupted.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut settings = match Settings::resolve(&arguments.options) {
        Ok(settings) => settings,
        Err(error) => crate::usage_error(&format!("{error:#}")),
    };
    settings.config.wait = arguments.join_args.wait();
    let daemon = start(&settings)?;
    let stop = crate::interrupt::stop_flag(daemon.doorbell(), arguments.exit_on_stdin_eof)?;
    let (process, store) = (daemon.process().0, &settings.store);
    let attachment = &settings.config.attachment;
    let mut out = stdout();
    writeln!(out, "controller {process} in {attachment}, store {store}").context("cannot print")?;
    if let Some(addr) = daemon.status_addr() {
        writeln!(out, "status at http://{addr}/status").context("cannot print")?;
    }
    out.flush().context("cannot print")?;
    let mut print_result = Ok(());
    let ended = daemon.run(&stop, |event| {
        if print_result.is_ok() {
            print_result = print(event);
        }
    });
    if let (StoreChoice::File(path), true) = (&settings.store, arguments.remove_store) {
        // The file does not exist if nothing was decided.
        let _ = std::fs::remove_file(path);
    }
    print_result.context("cannot print")?;
    ended.context("the controller cannot go on")?;
    Ok(ExitCode::SUCCESS)
}

fn start(settings: &Settings) -> Result<ControllerDaemon> {
    let daemon = match &settings.store {
        StoreChoice::File(path) => {
            ControllerDaemon::new(&settings.config, RedbStore::new(path.clone()))
        }
        #[cfg(feature = "etcd")]
        StoreChoice::Etcd(config) => {
            let store = onepipe_daemon_controller::EtcdStore::new(config)?;
            ControllerDaemon::new(&settings.config, store)
        }
    };
    daemon.context("cannot start a controller")
}

/// Prints an event as one line.
fn print(event: &Event) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let ms = |ns: u64| ns as f64 / 1e6;
    match event {
        Event::Active(epoch) => writeln!(out, "active in epoch {}", epoch.0)?,
        Event::Deposed(epoch) => writeln!(out, "deposed: epoch {} ended", epoch.0)?,
        Event::Isolated => writeln!(out, "isolated: resigning")?,
        Event::Joined(instance) => writeln!(out, "{} joined", name(*instance))?,
        Event::Failed { failed, suspected, decided } => writeln!(
            out,
            "{} failed at {} ns, decided in {:.3} ms{}",
            name(failed.instance),
            failed.at.as_ns(),
            ms(decided.since_ns(*suspected)),
            if failed.is_exact { "" } else { ", approximately" },
        )?,
        Event::Noticed { instances, decided, started_at, completed } => writeln!(
            out,
            "{instances} failures completed in {:.3} ms, {:.3} ms of them in the store",
            ms(completed.since_ns(*decided)),
            ms(started_at.since_ns(*decided)),
        )?,
        Event::Resumed { links, started_at, completed } => {
            writeln!(out, "{links} links resumed in {:.3} ms", ms(completed.since_ns(*started_at)),)?
        }
        Event::PingTimedOut(instance) => writeln!(out, "{} is unresponsive", name(*instance))?,
        Event::StoreFailed => writeln!(out, "the store is unavailable: recovery is paused")?,
        other => writeln!(out, "{other:?}")?,
    }
    out.flush()
}

fn name(instance: Instance) -> String {
    match instance.address {
        Address::Process(process) => format!("process {}", process.0),
        Address::Switch(switch) => format!("switch {}", switch.0),
    }
}
