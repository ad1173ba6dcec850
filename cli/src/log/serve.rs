//! `onepipe log serve`: all replicas of a log in this program, or one of them.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe::ProcessId;
use onepipe_log::NoState;
use onepipe_log_server::{Cluster, ClusterOptions, LogHandle, Node, NodeStats, Own};
use onepipe_transport_driver::{Doorbell, Waker};
use serde_json::json;

use super::access::AccessArgs;
use crate::args::ServeArgs;

/// Number of processes beyond those of this program that the fabric has space for.
const CLIENTS_MAX: u32 = 16;
/// How often the nodes are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which the processes that the log waits for are shown.
const SHOW_AFTER: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  onepipe log serve --data D                      three replicas in this program
  onepipe log serve --data D --process 0          one of three replicas, each in a program
  onepipe log serve --data D --process 0 --udp SWITCH      the same, on several machines

The log opens when all replicas have started, and goes on without those that fail: in a fabric with
a controller at once, in another one when they are started again. After all have ended, start all of
them with their directories: every entry that was reported as committed is there.";

/// Serve a log with all its replicas in this program, or one replica of it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    access: AccessArgs,
    /// Directory of the log, with one for each replica [default: in memory only]
    #[arg(long, value_name = "DIR", env = "ONEPIPE_LOG_DATA")]
    data: Option<PathBuf>,
    /// Serve as this replica only: each is a separate program
    #[arg(long, value_name = "ID")]
    process: Option<u32>,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// Ends the wait of the main thread.
struct Wake(Sender<()>);

impl Waker for Wake {
    fn ring(&self) {
        // The main thread has ended, if this fails.
        let _ = self.0.send(());
    }
}

/// What this program runs.
enum Served {
    Whole(Cluster),
    One(Node),
}

impl Served {
    fn start(arguments: &Arguments) -> Result<Self> {
        let Arguments { access, data, process, .. } = arguments;
        match process {
            Some(process) => {
                let own = Own { directory: data.clone(), state: NoState };
                let builder = access.builder(*process);
                let node = Node::start(ProcessId(*process), builder, &access.node(), own);
                Ok(Self::One(node.with_context(|| format!("cannot serve as process {process}"))?))
            }
            None => {
                if access.udp.is_some() || access.overlay.is_some() {
                    bail!("all replicas in one program use shared memory: name one by --process");
                }
                let mut options = ClusterOptions::new(&access.fabric, access.replicas);
                (options.directory, options.clients) = (data.clone(), CLIENTS_MAX);
                let cluster = Cluster::start(&options, |_| NoState);
                Ok(Self::Whole(cluster.context("cannot start the log")?))
            }
        }
    }

    /// Returns the handles of the replicas.
    fn replicas(&self) -> Vec<LogHandle> {
        match self {
            Self::Whole(cluster) => cluster.replicas().collect(),
            Self::One(node) => vec![node.handle()],
        }
    }
}

/// Serves until the user interrupts the command, or a replica ends.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let served = Served::start(arguments)?;
    let (wake, woken) = channel();
    let doorbell = Doorbell::new(Arc::new(Wake(wake)));
    let stop = crate::interrupt::stop_flag(doorbell, arguments.serve_args.exit_on_stdin_eof)?;
    let medium = match &arguments.data {
        Some(data) => format!("in {}", data.display()),
        None => "in memory".into(),
    };
    let part = arguments.process.map_or(String::new(), |process| format!(", process {process}"));
    let mut out = stdout();
    writeln!(out, "replicas {}, {medium}{part}", arguments.access.replicas)
        .context("cannot print")?;
    let replicas = served.replicas();
    let interval = arguments.serve_args.stats_interval.map(Duration::from_nanos);
    let began = Instant::now();
    let mut next_print = interval.map(|interval| began + interval);
    let (mut is_open, mut shown) = (false, Vec::new());
    while !stop.load(Ordering::Acquire) {
        // An interrupt ends the wait early.
        let _ = woken.recv_timeout(WATCH_INTERVAL);
        if let Some(reason) = replicas.iter().find_map(LogHandle::ended) {
            bail!("a replica has ended: {reason}");
        }
        let stats: Vec<NodeStats> = replicas.iter().map(LogHandle::stats).collect();
        if !is_open && stats.iter().all(|stats| stats.is_serving) {
            is_open = true;
            writeln!(out, "the log is open, with {} entries", stats[0].committed_len)
                .context("cannot print")?;
        }
        let waiting = stats.iter().flat_map(|stats| &stats.waiting).map(|process| process.0);
        let waiting: Vec<u32> = waiting.collect();
        if began.elapsed() > SHOW_AFTER && waiting != shown && !waiting.is_empty() {
            let ids: Vec<String> = waiting.iter().map(u32::to_string).collect();
            eprintln!("the log opens when these processes have started: {}", ids.join(", "));
            shown = waiting;
        }
        if let (Some(at), Some(interval)) = (next_print, interval)
            && at <= Instant::now()
        {
            next_print = Some(at + interval);
            stats.iter().for_each(|stats| eprintln!("{}", line(stats)));
        }
    }
    drop(served);
    for stats in replicas.iter().map(LogHandle::stats) {
        let printed = match arguments.serve_args.json {
            true => writeln!(
                out,
                "{}",
                json!({
                    "seconds": began.elapsed().as_secs_f64(),
                    "view": stats.view,
                    "members": stats.members,
                    "committed": stats.committed_len,
                    "checkpoints": stats.checkpoints,
                })
            ),
            false => writeln!(out, "{}", line(&stats)),
        };
        printed.context("cannot print")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(stats: &NodeStats) -> String {
    let NodeStats { view, members, committed_len, checkpoints, .. } = stats;
    format!(
        "{committed_len} committed entries, view {view} with {members} members, {checkpoints} \
         checkpoints"
    )
}
