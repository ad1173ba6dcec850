//! `onepipe controller`: a replica of the controller.

mod settings;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_base::{Address, Cause, Instance};
use onepipe_controller::Event;
use onepipe_daemon_controller::{ControllerDaemon, ControllerEvent, RedbStore};

use tracing::{error, info, warn};

use crate::args::JoinArgs;
use crate::state_dir;
use crate::store_errors::StoreErrors;

pub use settings::STATUS_LISTEN;
use settings::{ControllerOptions, Settings, StoreChoice};

const EXAMPLES: &str = "\
Examples:
  onepipe controller --fabric lab                      in shared memory
  onepipe controller --udp 127.0.0.1:4410              behind a switch, as its first controller
  onepipe controller --udp 10.0.0.1:4410 --process 1001 \\
      --etcd http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379
  onepipe controller --config lab.toml                 the same keys, in a table [controller]

A controller adopts the ids that the switch was given by `--controllers`, or in shared memory those
of the first process, and takes the first id. Another replica needs `--process` alone.

Then show its state:
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
        Err(error) => crate::usage_error(&crate::advice::describe(&error)),
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
    let (mut print_result, mut store_errors) = (Ok(()), StoreErrors::default());
    let ran = daemon.run(&stop, |event| match event {
        ControllerEvent::StoreFailed(reason) => store_errors.print(reason),
        ControllerEvent::StoreRecovered => store_errors.print_recovered(),
        event if print_result.is_ok() => print_result = print(event),
        _ => {}
    });
    if let (StoreChoice::File { path, .. }, true) = (&settings.store, arguments.remove_store) {
        // The file does not exist if nothing was decided.
        let _ = std::fs::remove_file(path);
    }
    ran.with_context(|| format!("controller {process} has ended, store {store}"))?;
    print_result.context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

fn start(settings: &Settings) -> Result<ControllerDaemon> {
    let daemon = match &settings.store {
        StoreChoice::File { path, is_default } => {
            if *is_default {
                state_dir::create_folder_of(path)?;
            }
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

/// Prints that the controller is active, and logs other events.
fn print(event: &ControllerEvent) -> std::io::Result<()> {
    match event {
        ControllerEvent::Machine(Event::Active(epoch)) => {
            let mut out = stdout().lock();
            writeln!(out, "active in epoch {}", epoch.0)?;
            out.flush()?;
        }
        ControllerEvent::Machine(event) => log(event),
        ControllerEvent::Isolated { resigns } => {
            let what = if *resigns { "resigns" } else { "stays active: it is the only controller" };
            warn!("isolated from more processes than it reaches: {what}");
        }
        other => info!("{other:?}"),
    }
    Ok(())
}

/// Logs an event of the machine.
fn log(event: &Event) {
    let ms = |ns: u64| ns as f64 / 1e6;
    match event {
        Event::Deposed(epoch) => warn!("deposed: epoch {} ended", epoch.0),
        Event::Joined(instance) => info!("{} joined", name(*instance)),
        Event::Failed { failed, suspected, decided, reporter } => warn!(
            "{} {} at {} ns, decided in {:.3} ms{}: {}{}",
            name(failed.instance),
            if failed.cause == Cause::Left { "left" } else { "failed" },
            failed.at.as_ns(),
            ms(decided.since_ns(*suspected)),
            if failed.is_exact { "" } else { ", approximately" },
            failed.cause,
            reporter.map_or(String::new(), |node| format!(", reported by {}", name(node))),
        ),
        Event::Noticed { instances, decided, started_at, completed } => info!(
            "{instances} failures completed in {:.3} ms, {:.3} ms of them in the store",
            ms(completed.since_ns(*decided)),
            ms(started_at.since_ns(*decided)),
        ),
        Event::Resumed { links, started_at, completed } => {
            info!("{links} links resumed in {:.3} ms", ms(completed.since_ns(*started_at)));
        }
        Event::PingTimedOut(instance) => warn!("{} is unresponsive", name(*instance)),
        Event::StoreFailed => error!("the store is unavailable: recovery is paused"),
        // The controller ends with this error.
        Event::StoreOutdated { .. } => {}
        other => info!("{other:?}"),
    }
}

fn name(instance: Instance) -> String {
    match instance.address {
        Address::Process(process) => format!("process {}", process.0),
        Address::Switch(switch) => format!("switch {}", switch.0),
    }
}
