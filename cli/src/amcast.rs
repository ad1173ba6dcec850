//! Agreed multicast: group membership, `onepipe member` and `onepipe coordinator`.

use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use onepipe_amcast::{GROUPS_MAX, MemberEvent};
use onepipe_daemon_controller::{
    CoordinatorConfig, CoordinatorDaemon, CoordinatorEvent, RedbStore,
};
use onepipe_daemon_member::{Ended, MemberDaemon, Report};
use onepipe_transport_amcast::{Directory, OpenError, Options, Role};
use onepipe_transport_driver::Idle;

use crate::args::{ServeArgs, address};
use crate::state_dir::{self, DefaultStore};
use crate::store_errors::StoreErrors;
use crate::units::{self, pauses_text, readable};

const BEHIND_MESSAGE: &str =
    "it missed more messages than the other members retain and cannot catch up";
const REFUSED_MESSAGE: &str = "it has run before, and the others still know its earlier \
    incarnation; what that one had promised is lost with its memory, so it stays dead and counts \
    towards the failures that the group survives; to bring it back, stop all processes of the group \
    file (members, replicas, clients, coordinators), and start them again with an empty log";

const MEMBER_EXAMPLES: &str = "\
Examples:
  onepipe member --groups lab.toml --listen 10.0.0.1:4500
  onepipe member --group 0=127.0.0.1:4500,127.0.0.1:4501,127.0.0.1:4502 \\
      --replicas 0=127.0.0.1:4600 --clients 127.0.0.1:4700 --listen 127.0.0.1:4500

All participants must use the same group file, for example:
  clients = ['10.0.0.9:4700']
  coordinators = ['10.0.0.8:4800']
  [[groups]]
  members = ['10.0.0.1:4500', '10.0.0.2:4500', '10.0.0.3:4500']
  replicas = ['10.0.0.4:4600']

A member keeps all state in memory and cannot be restarted: the others refuse it.";

const COORDINATOR_EXAMPLES: &str = "\
Examples:
  onepipe coordinator --groups lab.toml --listen 10.0.0.8:4800

`onepipe member --help` shows a group file. Of several coordinators that share a store, one is
active.";

/// The participants of agreed multicast.
#[derive(Debug, Args)]
pub struct GroupArgs {
    /// TOML file that lists the participants and their addresses
    #[arg(long, value_name = "FILE", env = "ONEPIPE_GROUPS", conflicts_with = "group")]
    groups: Option<PathBuf>,
    /// Members of a group, an odd number, instead of a file; the first one leads initially
    #[arg(long, value_name = "GROUP=ADDRESS,...", value_parser = group_addresses, required_unless_present = "groups")]
    group: Vec<GroupAddresses>,
    /// Replicas of a group, which deliver its messages
    #[arg(long, value_name = "GROUP=ADDRESS,...", value_parser = group_addresses, requires = "group")]
    replicas: Vec<GroupAddresses>,
    /// Addresses of the clients
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', value_parser = address, requires = "group")]
    clients: Vec<SocketAddr>,
    /// Addresses of the coordinators, which elect leaders
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', value_parser = address, requires = "group")]
    coordinators: Vec<SocketAddr>,
    /// Maximum number of messages in flight of each client [default: 256]
    #[arg(long, requires = "group")]
    window: Option<u32>,
    /// Maximum message size in bytes [default: 1350, which fits an Ethernet frame]
    #[arg(long, value_name = "BYTES", requires = "group")]
    message_len: Option<usize>,
}

/// Addresses of one role of a group.
#[derive(Clone, Debug)]
struct GroupAddresses {
    group: u16,
    addresses: Vec<SocketAddr>,
}

/// Parses `0=127.0.0.1:4500,127.0.0.1:4501`.
fn group_addresses(text: &str) -> Result<GroupAddresses> {
    let Some((group, addresses)) = text.split_once('=') else {
        bail!("{text:?}: expected GROUP=ADDRESS,..., for example 0=127.0.0.1:4500,127.0.0.1:4501");
    };
    let group = group.trim().parse().ok().filter(|group| *group < GROUPS_MAX);
    let Some(group) = group else { bail!("{text:?}: groups are numbered from 0 to 63") };
    Ok(GroupAddresses {
        group,
        addresses: addresses.split(',').map(address).collect::<Result<_>>()?,
    })
}

impl GroupArgs {
    /// Returns the addresses of all participants.
    pub fn directory(&self) -> Result<Directory> {
        if let Some(path) = &self.groups {
            return read_directory(path);
        }
        let mut directory = Directory::new();
        for group_addresses in &self.group {
            directory.set_members(group_addresses.group, group_addresses.addresses.clone());
        }
        for group_addresses in &self.replicas {
            directory.set_replicas(group_addresses.group, group_addresses.addresses.clone());
        }
        directory.set_clients(self.clients.clone());
        directory.set_coordinators(self.coordinators.clone());
        if let Some(window) = self.window {
            directory.set_window(window);
        }
        if let Some(bytes) = self.message_len {
            directory.set_message_len(bytes);
        }
        Ok(directory)
    }
}

/// Reads the TOML file of the participants.
fn read_directory(path: &Path) -> Result<Directory> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Directory::read(&text).with_context(|| {
        format!("{} is not a group file (`onepipe member --help` shows one)", path.display())
    })
}

/// Run a member of a group of agreed multicast, which orders messages with the others
#[derive(Debug, Args)]
#[command(after_help = MEMBER_EXAMPLES)]
pub struct MemberArguments {
    #[command(flatten)]
    groups: GroupArgs,
    /// Address of this member in the group file
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: SocketAddr,
    /// Number of messages in flight from which on clients get busy replies [default: no limit]
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..))]
    busy_threshold: Option<u64>,
    /// Busy-poll: takes a whole core
    #[arg(long)]
    spin: bool,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// Runs a member until it is interrupted or falls behind.
pub fn run_member(arguments: &MemberArguments) -> Result<ExitCode> {
    let directory = arguments.groups.directory()?;
    let idle = if arguments.spin { Idle::Spin } else { Idle::ADAPTIVE };
    let options = Options { idle, busy_threshold: arguments.busy_threshold, ..Options::default() };
    let mut daemon = or_usage_error(MemberDaemon::new(&directory, arguments.listen, &options))?;
    let stop =
        crate::interrupt::stop_flag(daemon.doorbell(), arguments.serve_args.exit_on_stdin_eof)?;
    let report = daemon.report();
    print_identity(&report, arguments.listen)?;
    let began = Instant::now();
    let interval = arguments.serve_args.stats_interval.map(Duration::from_nanos);
    let mut next_print = interval.map(|interval| began + interval);
    let (mut before, mut ended, mut print_result) = (report, None, Ok(()));
    onepipe_transport_clock::reduce_wakeup_latency();
    while !stop.load(Ordering::Acquire) && ended.is_none() {
        let progress = daemon.turn(|event| {
            ended = ended.or(Ended::by(event));
            if let (true, MemberEvent::Leads(epoch)) = (print_result.is_ok(), event) {
                print_result = writeln!(stdout(), "leads in epoch {epoch}");
            }
        });
        if let (Some(at), Some(interval)) = (next_print, interval)
            && Instant::now() >= at
        {
            next_print = Some(at + interval);
            before = print_interval(daemon.report(), &before, began, interval);
        }
        // A member that has ended may never be woken again.
        if ended.is_none() {
            daemon.rest(progress);
        }
    }
    print_result.context("cannot print")?;
    print_summary(&daemon.report(), began, arguments.serve_args.json)?;
    match ended.and_then(reason) {
        Some(reason) => bail!("the member has stopped: {reason}"),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the message about a member that has ended by itself.
fn reason(ended: Ended) -> Option<&'static str> {
    match ended {
        Ended::Stopped => None,
        Ended::Behind => Some(BEHIND_MESSAGE),
        Ended::Refused => Some(REFUSED_MESSAGE),
    }
}

fn print_identity(report: &Report, at: SocketAddr) -> Result<()> {
    writeln!(stdout(), "member {} of group {} at {at}", report.process, report.group)
        .context("cannot print")
}

/// A group member hosted by a switch.
#[derive(Debug, Args)]
pub struct HostedMember {
    /// Host the member of agreed multicast that has this address in the group file
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "groups")]
    member: Option<SocketAddr>,
    /// TOML file that lists the participants of agreed multicast
    #[arg(long, value_name = "FILE", env = "ONEPIPE_GROUPS")]
    groups: Option<PathBuf>,
}

impl HostedMember {
    /// Opens the hosted member, if one is configured.
    pub fn open(&self, idle: Idle) -> Result<Option<MemberDaemon>> {
        let (Some(at), Some(groups)) = (self.member, &self.groups) else { return Ok(None) };
        let directory = read_directory(groups)?;
        let options = Options { idle, ..Options::default() };
        let daemon = or_usage_error(MemberDaemon::new(&directory, at, &options))?;
        print_identity(&daemon.report(), at)?;
        Ok(Some(daemon))
    }
}

/// Runs `work` while `member` runs in its own thread. Returns the result with the member's report.
/// A member that falls behind ends with an error message; `work` continues.
pub fn run_alongside<T>(
    mut member: MemberDaemon,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Report)> {
    let stop = AtomicBool::new(false);
    let doorbell = member.doorbell();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let ended = member.run(&stop, |event| {
                if let MemberEvent::Leads(epoch) = event {
                    // The member continues when standard output is closed.
                    let _ = writeln!(stdout(), "leads in epoch {epoch}");
                }
            });
            if let Some(reason) = reason(ended) {
                tracing::error!("the member has stopped: {reason}");
            }
            member.report()
        });
        let done = work();
        stop.store(true, Ordering::Release);
        doorbell.ring();
        let report = thread.join().map_err(|_| anyhow!("the member thread panicked"));
        Ok((done?, report?))
    })
}

/// Reports an invalid directory or configuration as a usage error (exit status 2).
fn or_usage_error<T>(opened: Result<T, OpenError>) -> Result<T> {
    match opened {
        Err(error @ (OpenError::Directory(_) | OpenError::Config(_))) => {
            crate::usage_error(&format!("{error:#}"))
        }
        opened => opened.context("cannot start"),
    }
}

/// Prints the changes since `before`. Returns the present report.
fn print_interval(now: Report, before: &Report, began: Instant, interval: Duration) -> Report {
    let rate = |now: u64, before: u64| readable((now - before) as f64 / interval.as_secs_f64());
    eprintln!(
        "{:>6.0} s  epoch {}{}, {} messages proposed/s, {} decided/s, {} open, {} frames/s in, {} out",
        began.elapsed().as_secs_f64(),
        now.epoch,
        if now.is_leader { ", leader" } else { "" },
        rate(now.proposed, before.proposed),
        rate(now.decided, before.decided),
        now.open,
        rate(now.frames_received, before.frames_received),
        rate(now.frames_sent, before.frames_sent),
    );
    now
}

fn print_summary(report: &Report, began: Instant, is_json: bool) -> Result<()> {
    let mut out = stdout().lock();
    if is_json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "ran for {:.1} s: {} messages proposed, {} decided, {} open; {} busy replies; {} \
         frames received, {} sent, {} packets retransmitted; epoch {}",
        began.elapsed().as_secs_f64(),
        report.proposed,
        report.decided,
        report.open,
        report.busy,
        report.frames_received,
        report.frames_sent,
        report.retransmitted,
        report.epoch,
    )?;
    if report.pauses > 0 {
        writeln!(out, "pauses: {}", pauses_text(report.pauses, report.pause_max_ns))?;
    }
    Ok(())
}

/// Run a coordinator, which elects another leader of a group of agreed multicast when one fails
#[derive(Debug, Args)]
#[command(after_help = COORDINATOR_EXAMPLES)]
pub struct CoordinatorArguments {
    #[command(flatten)]
    groups: GroupArgs,
    /// Address of this coordinator in the group file
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: SocketAddr,
    /// File to store decisions in, which coordinators on one machine may share [default:
    /// coordinator-ADDRESS.redb, named after the first coordinator, in $STATE_DIRECTORY,
    /// $XDG_STATE_HOME/onepipe, ~/.local/state/onepipe or, for root, /var/lib/onepipe]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Store decisions in this etcd instead, for coordinators on several machines
    #[cfg(feature = "etcd")]
    #[arg(long, value_name = "URL,...", value_delimiter = ',', conflicts_with = "store")]
    etcd: Vec<String>,
    /// Time without a reply after which a leader is replaced
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::time_ns)]
    leader_timeout: u64,
    /// Exit when standard input ends, for a parent that may be killed
    #[arg(long, hide = true)]
    exit_on_stdin_eof: bool,
    /// Remove the store on exit, for a parent that may be killed
    #[arg(long, hide = true)]
    remove_store: bool,
}

/// Runs a coordinator until it is interrupted.
pub fn run_coordinator(arguments: &CoordinatorArguments) -> Result<ExitCode> {
    let directory = arguments.groups.directory()?;
    let mut config = CoordinatorConfig::new(directory, arguments.listen);
    config.leader_timeout = Duration::from_nanos(arguments.leader_timeout);
    // Ten probes fit into the timeout, so the loss of one does not replace a leader.
    config.probe_interval = config.leader_timeout / 10;
    let (mut daemon, store) = open_coordinator(&config, arguments)?;
    let stop = crate::interrupt::stop_flag(daemon.doorbell(), arguments.exit_on_stdin_eof)?;
    let mut out = stdout();
    writeln!(out, "coordinator at {}", arguments.listen).context("cannot print")?;
    let (mut print_result, mut store_errors) = (Ok(()), StoreErrors::default());
    let ran = daemon.run(&stop, |event| match event {
        CoordinatorEvent::StoreFailed(reason) => store_errors.print(&reason),
        CoordinatorEvent::StoreRecovered => store_errors.print_recovered(),
        event if print_result.is_ok() => print_result = print(&event),
        _ => {}
    });
    // Closes the store before its file is removed.
    drop(daemon);
    if let (Some(store), true) = (&store, arguments.remove_store) {
        // The file does not exist if nothing was decided.
        let _ = std::fs::remove_file(store);
    }
    ran.with_context(|| {
        let store = store.map_or(String::new(), |store| format!(", store {}", store.display()));
        format!("the coordinator at {} has ended{store}", arguments.listen)
    })?;
    print_result.context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the coordinator and the file of its store, if it has one.
fn open_coordinator(
    config: &CoordinatorConfig,
    arguments: &CoordinatorArguments,
) -> Result<(CoordinatorDaemon, Option<PathBuf>)> {
    #[cfg(feature = "etcd")]
    if !arguments.etcd.is_empty() {
        use onepipe_daemon_controller::{EtcdConfig, EtcdStore};
        let mut etcd = EtcdConfig::new(arguments.etcd.iter().cloned());
        etcd.prefix = "/onepipe/amcast/".to_owned();
        match EtcdStore::new(&etcd) {
            Ok(store) => {
                return Ok((or_usage_error(CoordinatorDaemon::new(config, store))?, None));
            }
            Err(error) => crate::usage_error(&format!("{error:#}")),
        }
    }
    let store = match &arguments.store {
        Some(store) => store.clone(),
        None => default_store(config)?,
    };
    let daemon = or_usage_error(CoordinatorDaemon::new(config, RedbStore::new(&store)))?;
    Ok((daemon, Some(store)))
}

/// Returns the default file of the store, which coordinators of one machine share.
fn default_store(config: &CoordinatorConfig) -> Result<PathBuf> {
    let coordinators = config.directory.of(Role::Coordinator);
    let first = coordinators.first().copied().unwrap_or(config.at).to_string();
    let path = DefaultStore { role: "coordinator", of: &first }.path();
    let path = path.unwrap_or_else(|error| crate::usage_error(&format!("{error:#}")));
    state_dir::create_folder_of(&path)?;
    Ok(path)
}

fn print(event: &CoordinatorEvent) -> std::io::Result<()> {
    let mut out = stdout().lock();
    match event {
        CoordinatorEvent::Active => writeln!(out, "active")?,
        CoordinatorEvent::Deposed => tracing::warn!("deposed: another coordinator is active"),
        CoordinatorEvent::Leads(decision) => writeln!(
            out,
            "process {} leads group {} in epoch {}",
            decision.leader.0, decision.group.0, decision.epoch
        )?,
        other => tracing::info!("{other:?}"),
    }
    out.flush()
}
