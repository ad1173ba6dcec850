//! `onepipe node`: a process of a fabric that scatters its standard input.

use std::io::{BufRead, Write, stdout};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe::{
    Event, FabricStats, Link, Message, Mismatch, Outcome, Pipe, ProcessId, SendError, Stats,
    Timestamp,
};
use onepipe_daemon_switch::Controllers;
use tracing::{error, info, warn};

use crate::args::{JoinArgs, address, checked_address, require_ids_below};
use crate::units::{self, pauses_text};

const EXAMPLES: &str = "\
Each line of standard input, `TO[,TO...] TEXT`, is scattered to the processes with these ids: its
messages share one timestamp. `all TEXT` is scattered to this process and to all others that this
process knows to be up. Deliveries are printed as `TIMESTAMP FROM TEXT`, in the same order at every
process.

Examples:
  onepipe node --process 0                  and in another terminal:
  onepipe node --process 1                  then type `0,1 hello` in either
  echo '0,1 from a script' | onepipe node --fabric lab
  onepipe node --udp 127.0.0.1:4410 --process 2 --stay < /dev/null
  onepipe node --overlay 10.0.0.1:4410 --process 0 --reliable";

/// Join a fabric: scatter lines of text, print deliveries
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the fabric to join in shared memory
    #[arg(long, value_name = "NAME", default_value = "default", conflicts_with = "udp")]
    fabric: String,
    /// Address of the switch to join through, instead of shared memory
    #[arg(long, value_name = "ADDRESS", requires = "process", value_parser = checked_address)]
    udp: Option<String>,
    /// Address of the aggregator to join through, over any IP network
    #[arg(
        long, value_name = "ADDRESS", requires = "process", conflicts_with_all = ["udp", "fabric"],
        value_parser = checked_address
    )]
    overlay: Option<String>,
    /// Local address of the socket, like 0.0.0.0:4420, for firewalls [default: any port]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    bind: Option<SocketAddr>,
    /// Send reliably: all correct receivers deliver a line, or none does
    #[arg(long)]
    reliable: bool,
    /// Process ids of the controllers, like 1020 or 1020:3: the first, and how many [default: as
    /// stated by the switch, the aggregator or the first process in shared memory]
    #[arg(long, value_name = "FIRST[:COUNT]", value_parser = crate::args::controllers)]
    controllers: Option<Controllers>,
    /// Process id [default: the lowest free one, in shared memory]
    #[arg(long)]
    process: Option<u32>,
    /// Upper bound of the process ids [default: as stated by the switch or the aggregator; 64 in
    /// shared memory]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    processes: Option<u32>,
    /// Protect frames by checksums, if this process is the first in shared memory (over a network
    /// frames always have checksums)
    #[arg(long, conflicts_with_all = ["udp", "overlay"])]
    checksums: bool,
    /// Time without a frame after which a neighbour counts as lost, like 500ms; in shared memory
    /// the first process states it [default: as stated by the switch or the aggregator; in shared
    /// memory 100ms, with controllers 1s]
    #[arg(long, value_name = "TIME", value_parser = units::time_ns)]
    link_timeout: Option<u64>,
    /// Print counters to standard error at the end
    #[arg(long)]
    stats: bool,
    /// Go on receiving after the end of standard input, until Ctrl-C
    #[arg(long)]
    stay: bool,
    #[command(flatten)]
    join_args: JoinArgs,
}

/// Membership of this process.
enum Membership {
    Member,
    /// Declared failed at the timestamp; until the instant, the process waits for the outcomes of
    /// its reliable messages.
    Excluded(Timestamp, Instant),
    /// Declared failed at the timestamp; all its messages have an outcome.
    Recovered(Timestamp),
}

impl Membership {
    fn is_over(&self) -> bool {
        match self {
            Self::Member => false,
            Self::Excluded(_, until) => Instant::now() >= *until,
            Self::Recovered(_) => true,
        }
    }
}

/// Input events of the node.
enum Input {
    Line(String),
    EndOfFile,
    Interrupted,
}

/// Timeout for a full send buffer.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Polling interval for messages while no line arrives; below what a person notices.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum time for resolving pending messages after being declared failed.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(2);

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut pipe = join(arguments)?;
    let process = pipe.process().0;
    let (sender, inputs) = channel();
    let interrupts = sender.clone();
    crate::interrupt::on_interrupt(move || {
        // The receiver is gone only when the node is ending.
        let _ = interrupts.send(Input::Interrupted);
    })?;
    std::thread::spawn(move || read_stdin(&sender));
    match (&arguments.udp, &arguments.overlay) {
        (Some(switch), _) => info!("process {process}, through the switch at {switch}"),
        (_, Some(aggregator)) => info!("process {process}, aggregator at {aggregator}"),
        _ => info!("process {process} of fabric {:?}", arguments.fabric),
    }
    let mut membership = Membership::Member;
    run_loop(&mut pipe, &inputs, arguments, &mut membership)?;
    let leave_result = pipe.leave();
    handle_events(&mut pipe, &mut membership)?;
    if arguments.stats {
        eprint!("{}", stats_text(&pipe.stats()));
    }
    if let Membership::Excluded(at, _) | Membership::Recovered(at) = membership {
        bail!(
            "this process was declared failed at {} ns: it was unresponsive for too long, or another one \
             has joined as process {process}. Restart it to rejoin",
            at.as_ns()
        );
    }
    leave_result.context("the leave was not graceful")?;
    Ok(ExitCode::SUCCESS)
}

fn join(arguments: &Arguments) -> Result<Pipe> {
    let mut builder = Pipe::builder();
    if let Some(process) = arguments.process {
        builder = builder.process(process);
    }
    let is_network = arguments.udp.is_some() || arguments.overlay.is_some();
    if let Some(processes) = arguments.processes {
        builder = builder.processes(processes);
        // A segment may be larger than this process would create it.
        if is_network {
            require_ids_below(processes, arguments.process, arguments.controllers);
        }
    }
    builder = builder.wait(arguments.join_args.wait());
    builder = match (&arguments.udp, &arguments.overlay) {
        (Some(switch), _) => builder.udp(switch),
        (_, Some(aggregator)) => builder.overlay(aggregator),
        _ => builder.fabric(&arguments.fabric).checksums(arguments.checksums),
    };
    if let Some(bind) = arguments.bind {
        builder = builder.tune_udp(move |socket| socket.bind = Some(bind));
    }
    if let Some(Controllers { first, count }) = arguments.controllers {
        builder = builder.controllers(first.0, count);
    }
    if let Some(timeout_ns) = arguments.link_timeout {
        builder = builder.link_timeout(Duration::from_nanos(timeout_ns));
    }
    builder.join().context("cannot join")
}

/// Formats the counters of a process, a line for each kind.
fn stats_text(stats: &Stats) -> String {
    let endpoint = &stats.endpoint;
    let mut lines = vec![
        format!(
            "messages: {} sent, {} delivered, {} lost, {} with unknown outcome, {} recalled, {} \
             discarded",
            endpoint.messages_sent,
            endpoint.messages_delivered,
            endpoint.messages_lost,
            endpoint.messages_unknown,
            endpoint.messages_recalled,
            endpoint.messages_discarded
        ),
        format!(
            "refused: {} recalls, {} packets beyond a window, {} frames with promises far ahead",
            endpoint.recalls_refused, endpoint.window_violations, endpoint.promises_ahead
        ),
        format!("pauses: {}", pauses_text(stats.duty.pause_count, stats.duty.pause_max_ns)),
    ];
    if let FabricStats::Overlay { routes, .. } = &stats.fabric {
        lines.push(format!(
            "routes: {} frames sent directly, {} by the tree; {} address advertisements sent, {} \
             received; {} frames from unproved addresses dropped",
            routes.frames_direct,
            routes.frames_by_tree,
            routes.address_ads_sent,
            routes.address_ads_received,
            routes.frames_unproved
        ));
    }
    lines.iter().map(|line| format!("onepipe: {line}\n")).collect()
}

/// Reads lines until the input ends. Runs in a thread of its own, because reading blocks.
fn read_stdin(inputs: &Sender<Input>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if inputs.send(Input::Line(line)).is_err() {
            return;
        }
    }
    // The receiver is gone only when the node is ending.
    let _ = inputs.send(Input::EndOfFile);
}

fn run_loop(
    pipe: &mut Pipe,
    inputs: &Receiver<Input>,
    arguments: &Arguments,
    membership: &mut Membership,
) -> Result<()> {
    while !membership.is_over() {
        match inputs.recv_timeout(POLL_INTERVAL) {
            // An invalid line does not end the node.
            Ok(Input::Line(line)) => {
                if let Err(error) = scatter(pipe, &line, arguments.reliable) {
                    error!("{error:#}");
                }
            }
            Ok(Input::EndOfFile) if arguments.stay => {}
            Ok(Input::EndOfFile | Input::Interrupted) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        handle_events(pipe, membership)?;
    }
    Ok(())
}

fn scatter(pipe: &mut Pipe, line: &str, is_reliable: bool) -> Result<()> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(());
    }
    let (to, text) = line.split_once(' ').unwrap_or((line, ""));
    let destinations = destinations(pipe, to)?;
    let payload = text.as_bytes();
    let messages: Vec<_> = destinations.iter().map(|to| Message { to: *to, payload }).collect();
    let scattered = match is_reliable {
        true => pipe.scatter_reliably_wait(&messages, SEND_TIMEOUT),
        false => pipe.scatter_wait(&messages, SEND_TIMEOUT),
    };
    match scattered {
        Err(error @ SendError::BufferFull { .. }) => {
            Err(error).context("the send buffer is full: earlier messages are not acknowledged")
        }
        scattered => scattered.map(|_| ()).with_context(|| format!("cannot send {line:?}")),
    }
}

fn destinations(pipe: &Pipe, to: &str) -> Result<Vec<ProcessId>> {
    if to == "all" {
        let mut all = pipe.peers();
        all.push(pipe.process());
        return Ok(all);
    }
    let parse = |word: &str| word.parse().map(ProcessId);
    let destinations = to.split(',').map(parse).collect::<Result<_, _>>();
    destinations.with_context(|| format!("{to:?} is not a list of processes: write `0,2 text`"))
}

/// Prints the pending deliveries, logs other events, and updates the membership.
fn handle_events(pipe: &mut Pipe, membership: &mut Membership) -> Result<()> {
    let mut out = stdout().lock();
    let (mut result, mut refused, mut is_lost) = (Ok(()), None, false);
    let is_overlay = pipe.config().links == onepipe::Links::Overlay;
    let neighbour = if is_overlay { "aggregator" } else { "switch" };
    pipe.poll(|event| match event {
        Event::Message(message) if result.is_ok() => {
            let (timestamp, from) = (message.timestamp.as_ns(), message.from.0);
            let text = String::from_utf8_lossy(message.payload);
            result = writeln!(out, "{timestamp} {from} {text}");
        }
        Event::Undelivered(message) => {
            let (timestamp, from) = (message.timestamp.as_ns(), message.from.0);
            let text = String::from_utf8_lossy(message.payload);
            warn!("not delivered before leaving: {timestamp} {from} {text}");
        }
        Event::SendFailed(failed) => {
            let outcome = match failed.outcome {
                Outcome::Lost => "lost",
                _ => "outcome unknown",
            };
            warn!("message to process {}: {outcome}: {}", failed.to.0, failed.reason);
        }
        Event::LinkLost(Link::Process(process)) => {
            warn!("process {} has died or does not respond", process.0);
        }
        Event::LinkLost(Link::Switch) => warn!(
            "the {neighbour} does not respond: messages wait until it does; if it has ended, \
             start it again at the same address"
        ),
        Event::ProcessFailed(failed) => {
            warn!("process {} has failed: {}", failed.process.0, failed.cause);
        }
        Event::ProcessLeft(left) => info!("process {} has left", left.process.0),
        Event::Excluded { void_from: at } => {
            *membership = Membership::Excluded(at, Instant::now() + RECOVERY_TIMEOUT);
        }
        Event::Refused(reason) => {
            refused = Some(format!(
                "the {neighbour} does not admit this process any more ({reason:?}): it was restarted \
                 with other settings. Restart this process to learn which"
            ));
        }
        Event::TermsChanged(change) => {
            let Mismatch { setting, ours, theirs } = change.mismatch();
            refused = Some(format!(
                "the {neighbour} was restarted with {setting} {theirs}, and this process has joined \
                 with {ours}: restart the {neighbour} with the same settings, or this process, too"
            ));
        }
        Event::SegmentLost => is_lost = true,
        Event::Recovered(_) => {
            if let Membership::Excluded(at, _) = *membership {
                *membership = Membership::Recovered(at);
            }
        }
        _ => {}
    });
    result.and_then(|()| out.flush()).context("cannot print")?;
    if is_lost {
        // The pipe has ended; the error names the file.
        pipe.leave()?;
    }
    match refused {
        Some(refused) => bail!(refused),
        None => Ok(()),
    }
}
