//! `onepipe kv serve`: a whole store in this program, or one replica of it, and a front for Redis
//! clients.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use onepipe_kv_server::front::{self, FrontOptions};
use onepipe_kv_server::{
    ClusterError, ClusterOptions, NodeHandle, NodeStats, StorageOptions, SyncPolicy,
};
use onepipe_transaction::{ClientOptions, ReadMode};
use onepipe_transport_driver::{Doorbell, Waker};
use serde_json::json;

use crate::args::{ServeArgs, address, checked_address};
use crate::kv::served::{Access, Served, Waiting};

/// How often the nodes are watched.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  onepipe kv serve                                 in memory, at 127.0.0.1:6379
  onepipe kv serve --resp 127.0.0.1:7000 --data D  each write is on disk before its reply
  onepipe kv serve --data D --fsync everysec       as Redis does with appendfsync everysec
  redis-cli -p 7000 MSET a 1 b 2 c 3               one transaction over several shards
  onepipe kv serve --replicas 2 --process 0 --udp SWITCH    one of 6 replicas, each in a program
  onepipe kv serve --replicas 2 --process 0 --data D        the same, on disk, on one machine

MULTI and EXEC, MSET, MGET and DEL work over any keys, and are strictly serializable: all their
operations happen at one timestamp, on all shards and replicas, in one order for all clients.";

/// Serve a store with all its shards and replicas in this program, or one replica of it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Address at which Redis clients connect; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6379", value_parser = address)]
    resp: SocketAddr,
    /// Number of shards
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: u16,
    /// Number of replicas of each shard
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=5))]
    replicas: u16,
    /// Directory of the store, with one for each replica [default: in memory only]
    #[arg(long, value_name = "DIR", env = "ONEPIPE_KV_DATA")]
    data: Option<PathBuf>,
    /// When a write is on disk: before its reply, within a second, or when the system likes
    #[arg(long, value_enum, default_value_t = Fsync::Always, requires = "data")]
    fsync: Fsync,
    /// MiB by which the log of a replica grows at least before a snapshot of the state replaces
    /// older records; the log grows by the length of the last snapshot, if that is longer
    #[arg(
        long, value_name = "N", default_value_t = 64, requires = "data",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    snapshot_mib: u32,
    /// What reads see: every write that was complete before, or a consistent state with the
    /// connection's own writes that may lack the latest ones of others
    #[arg(long, value_enum, default_value_t = Reads::Strict)]
    reads: Reads,
    /// Password that clients must send with AUTH [default: none]
    #[arg(long, value_name = "TEXT", env = "ONEPIPE_KV_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Name of the fabric in this machine's shared memory
    #[arg(long, value_name = "NAME", default_value = "kv")]
    fabric: String,
    /// Serve as this process of the fabric only: each replica is a separate program. Shard 0 has
    /// the first ids, then shard 1, and so on; a process with a higher id is a client only, and
    /// takes no --data. The replica of a program that is started again while the store goes on
    /// catches up from another one of its shard. With --data each program has the log of its
    /// replica in DIR, which may be on another machine for each; after all have ended, the store
    /// opens with every acknowledged write when all are started again
    #[arg(long, value_name = "ID")]
    process: Option<u32>,
    /// Address of the switch to join through, instead of shared memory
    #[arg(
        long, value_name = "ADDRESS", requires = "process", conflicts_with = "fabric",
        value_parser = checked_address
    )]
    udp: Option<String>,
    /// Address of the aggregator to join through, over any IP network
    #[arg(
        long, value_name = "ADDRESS", requires = "process", conflicts_with_all = ["udp", "fabric"],
        value_parser = checked_address
    )]
    overlay: Option<String>,
    #[command(flatten)]
    serve_args: ServeArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fsync {
    Always,
    Everysec,
    No,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reads {
    Strict,
    Snapshot,
}

/// Ends the wait of the main thread.
struct Wake(Sender<()>);

impl Waker for Wake {
    fn ring(&self) {
        // The main thread has ended, if this fails.
        let _ = self.0.send(());
    }
}

/// Serves until the user interrupts the command, or a node ends.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let access = match (&arguments.udp, &arguments.overlay) {
        (Some(switch), _) => Access::Switch(switch),
        (None, Some(aggregator)) => Access::Aggregator(aggregator),
        (None, None) => Access::Memory,
    };
    let served = match arguments.process {
        Some(process) => Served::join(&options(arguments), process, access)?,
        None => Served::start(&options(arguments)).map_err(|error| advise(error, arguments))?,
    };
    let front_options = FrontOptions {
        password: arguments.password.clone(),
        replicas: u32::from(arguments.replicas) - 1,
        ..FrontOptions::default()
    };
    let front = front::serve(arguments.resp, Arc::new(served.handle()), front_options)
        .context("cannot serve Redis clients")?;
    let (wake, woken) = channel();
    let doorbell = Doorbell::new(Arc::new(Wake(wake)));
    let stop = crate::interrupt::stop_flag(doorbell, arguments.serve_args.exit_on_stdin_eof)?;
    let Arguments { shards, replicas, data, .. } = arguments;
    let medium = data.as_ref().map_or("in memory".into(), |data| format!("in {}", data.display()));
    let part = arguments.process.map_or(String::new(), |process| format!(", process {process}"));
    let mut out = stdout();
    let address = front.local_addr();
    writeln!(out, "shards {shards}, replicas of each {replicas}, {medium}{part}")
        .and_then(|()| writeln!(out, "redis-cli -h {} -p {}", address.ip(), address.port()))
        .context("cannot print")?;

    let interval = arguments.serve_args.stats_interval.map(Duration::from_nanos);
    let began = Instant::now();
    let mut next_print = interval.map(|interval| began + interval);
    let mut waiting = Waiting::default();
    while !stop.load(Ordering::Acquire) {
        // An interrupt ends the wait early.
        let _ = woken.recv_timeout(WATCH_INTERVAL);
        if let Some(reason) = served.nodes().find_map(|node| node.ended()) {
            bail!("a node has ended: {reason}");
        }
        waiting.show(&served.handle(), began.elapsed());
        if let (Some(at), Some(interval)) = (next_print, interval)
            && at <= Instant::now()
        {
            next_print = Some(at + interval);
            eprintln!("{}", line(&total(served.nodes())));
        }
    }
    front.stop();
    let ended: Vec<NodeHandle> = served.nodes().collect();
    drop(served);
    let stats = total(ended.into_iter());
    let NodeStats { writes, reads, transactions, retried, disagreements, .. } = stats;
    let printed = match arguments.serve_args.json {
        true => writeln!(
            out,
            "{}",
            json!({
                "seconds": began.elapsed().as_secs_f64(),
                "transactions": transactions,
                "writes": writes,
                "reads": reads,
                "retried": retried,
                "disagreements": disagreements,
            })
        ),
        false => writeln!(out, "{}", line(&stats)),
    };
    printed.context("cannot print")?;
    Ok(if disagreements == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds what to do if a log is damaged.
fn advise(error: ClusterError, arguments: &Arguments) -> anyhow::Error {
    let advice = match (&error, &arguments.data) {
        (ClusterError::Storage(storage), Some(data)) if storage.is_damage() => format!(
            "cannot start the store: `onepipe kv repair --data {}` completes the damaged log from \
             those of other replicas",
            data.display()
        ),
        _ => "cannot start the store".into(),
    };
    anyhow::Error::new(error).context(advice)
}

fn options(arguments: &Arguments) -> ClusterOptions {
    let policy = match arguments.fsync {
        Fsync::Always => SyncPolicy::Always,
        Fsync::Everysec => SyncPolicy::EverySecond,
        Fsync::No => SyncPolicy::Never,
    };
    let snapshot_bytes = u64::from(arguments.snapshot_mib) << 20;
    let storage = arguments.data.clone();
    let storage = storage.map(|directory| StorageOptions { directory, policy, snapshot_bytes });
    let reads = match arguments.reads {
        Reads::Strict => ReadMode::Strict,
        Reads::Snapshot => ReadMode::Snapshot,
    };
    ClusterOptions {
        fabric: arguments.fabric.clone(),
        shards: arguments.shards,
        replicas: arguments.replicas,
        storage,
        reads,
        client: ClientOptions::default(),
        threads: 0,
    }
}

/// Returns the sums of the counters of all nodes.
fn total(nodes: impl Iterator<Item = NodeHandle>) -> NodeStats {
    nodes.map(|node| node.stats()).fold(NodeStats::default(), |sum, stats| NodeStats {
        shard: None,
        writes: sum.writes + stats.writes,
        reads: sum.reads + stats.reads,
        transactions: sum.transactions + stats.transactions,
        retried: sum.retried + stats.retried,
        disagreements: sum.disagreements + stats.disagreements,
        ..sum
    })
}

fn line(stats: &NodeStats) -> String {
    let NodeStats { writes, reads, transactions, retried, disagreements, .. } = stats;
    format!(
        "{transactions} transactions, {writes} writes and {reads} reads of replicas, {retried} \
         retried, {disagreements} disagreements"
    )
}
