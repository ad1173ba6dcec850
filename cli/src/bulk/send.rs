//! `onepipe bulk send`.

use std::fs::File;
use std::io::{Write, stdout};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use onepipe::{Algorithm, FileReport, FileSource, Group, GroupOptions};
use serde_json::json;

use super::SendArguments;
use super::control::{ControlConnection, Offer, Reply, Request, Round, VERSION};
use crate::progress::Progress;
use crate::remote_text::sanitize;

/// Timeout of connecting to a receiver in one attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a reply: a receiver may still be writing the previous round.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a receiver to sync its file to disk.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between attempts to reach missing receivers.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of consecutive rounds without progress: the cause is permanent.
const ROUNDS_WITHOUT_PROGRESS_MAX: u32 = 5;

/// A receiver with its state.
struct Receiver {
    address: SocketAddr,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It does not have the file yet; with the last error.
    Missing(Option<String>),
    /// It has the file.
    Complete,
    /// It rejected the file.
    Failed(String),
}

impl Receiver {
    fn is_missing(&self) -> bool {
        matches!(self.state, State::Missing(_))
    }
}

/// Sends a file in as many rounds as needed: a receiver that fails is left out of the next round.
pub fn run(arguments: &SendArguments) -> Result<ExitCode> {
    super::end_on_interrupt()?;
    let context = || format!("cannot read {}", arguments.file.display());
    let metadata = std::fs::metadata(&arguments.file).with_context(context)?;
    if metadata.is_dir() {
        bail!(
            "cannot send {}: it is a directory, not a regular file: send an archive of it, made by tar",
            arguments.file.display()
        );
    }
    if !metadata.is_file() {
        bail!(
            "cannot send {}: it is not a regular file: copy its content to one first",
            arguments.file.display()
        );
    }
    let name = arguments.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let changed = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let offer = Offer {
        version: VERSION,
        name,
        bytes: metadata.len(),
        changed_ns: changed.map_or(0, |since| since.as_nanos() as u64),
        chunk_len: arguments.chunk.clamp(1, u32::MAX as usize) as u64,
    };
    let mut receivers: Vec<Receiver> = Vec::new();
    for address in &arguments.to {
        if receivers.iter().any(|known| known.address == *address) {
            crate::usage_error(&format!("{address} is named twice"));
        }
        receivers.push(Receiver { address: *address, state: State::Missing(None) });
    }
    let began = Instant::now();
    let mut bar = Progress::new();
    let mut rounds = Vec::new();
    let mut unreachable_since = None;
    // Complete receivers and common offset after the last round, and the rounds since these grew.
    let (mut reached, mut stalled_rounds) = ((0, 0), 0);
    while receivers.iter().any(Receiver::is_missing) && stalled_rounds < ROUNDS_WITHOUT_PROGRESS_MAX
    {
        let mut peers = send_offers(&mut receivers, &offer);
        if peers.is_empty() {
            let since = *unreachable_since.get_or_insert_with(Instant::now);
            let is_missing = receivers.iter().any(Receiver::is_missing);
            if !is_missing || since.elapsed() >= Duration::from_nanos(arguments.connect_timeout) {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
            continue;
        }
        unreachable_since = None;
        // All receivers get the same blocks, so a round begins where the last of them stopped.
        let from = peers.iter().map(|peer| peer.resume_at).min().unwrap_or(0);
        let complete = receivers.iter().filter(|receiver| !receiver.is_missing()).count();
        stalled_rounds = if (complete, from) > reached { 0 } else { stalled_rounds + 1 };
        reached = (complete, from);
        rounds.extend(run_round(arguments, &offer, &mut receivers, &mut peers, &mut bar)?);
    }
    drop(bar);
    print_summary(arguments, &offer, &receivers, &rounds, began)
}

/// A receiver that is connected.
struct Peer {
    /// Index among all receivers.
    index: usize,
    control: ControlConnection,
    /// Bytes that the receiver has already.
    resume_at: u64,
}

/// Offers the file to all receivers that lack it, concurrently. Returns the connected ones.
fn send_offers(receivers: &mut [Receiver], offer: &Offer) -> Vec<Peer> {
    let send_offer = |address| -> Result<(ControlConnection, Reply)> {
        let stream = onepipe::Listener::connect_app(address, CONNECT_TIMEOUT)
            .context("cannot be reached (does `onepipe bulk recv` run there?)")?;
        let mut control = ControlConnection::new(stream);
        control.send(&Request::Offer(offer.clone()))?;
        let reply = control.recv(REPLY_TIMEOUT)?;
        Ok((control, reply))
    };
    let replies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(receivers.iter())
            .filter(|(_, receiver)| receiver.is_missing())
            .map(|(index, receiver)| (index, receiver.address))
            .map(|(index, address)| (index, scope.spawn(move || send_offer(address))))
            .collect();
        threads
            .into_iter()
            .filter_map(|(index, thread)| Some((index, thread.join().ok()?)))
            .collect()
    });
    let mut peers = Vec::new();
    for (index, reply) in replies {
        match reply {
            Ok((control, Reply::Resume(resume_at))) => {
                peers.push(Peer { index, control, resume_at })
            }
            Ok((_, reply)) => receivers[index].state = state_after(reply),
            Err(reason) => receivers[index].state = State::Missing(Some(format!("{reason:#}"))),
        }
    }
    peers
}

/// Returns the state of a receiver that follows from its reply.
fn state_after(reply: Reply) -> State {
    match reply {
        Reply::Failed { reason, is_final: true } => State::Failed(sanitize(&reason)),
        Reply::Failed { reason, is_final: false } => State::Missing(Some(sanitize(&reason))),
        Reply::Resume(_) | Reply::Done(_) => State::Missing(Some("unexpected reply".to_owned())),
    }
}

/// Sends the file to the connected receivers, from the offset that all of them have. Returns the
/// report if the file was sent to its end.
fn run_round(
    arguments: &SendArguments,
    offer: &Offer,
    receivers: &mut [Receiver],
    peers: &mut [Peer],
    bar: &mut Progress,
) -> Result<Option<FileReport>> {
    // The id distinguishes this group from those of other senders and other rounds.
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let group = nanoseconds as u64 ^ u64::from(std::process::id()) << 48;
    let mut members = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))];
    members.extend(peers.iter().map(|peer| receivers[peer.index].address));
    for (own, peer) in (1..).zip(peers.iter()) {
        let (members, schedule) = (members.clone(), arguments.schedule);
        let transport = arguments.transport.name().to_owned();
        let round = Round { group, members, own, schedule, transport };
        // The rendezvous of the members detects a receiver that does not get this request.
        let _ = peer.control.send(&Request::Begin(round));
    }
    let from = peers.iter().map(|peer| peer.resume_at).min().unwrap_or(0);
    let sent = send(arguments, offer, (group, &members), from, bar);
    let reason = sent.as_ref().err().map(|error| format!("{error:#}"));
    if let Some(reason) = &reason {
        eprintln!("onepipe: {reason}");
    }
    for peer in peers {
        let reply = peer.control.recv(if sent.is_ok() { SYNC_TIMEOUT } else { REPLY_TIMEOUT });
        receivers[peer.index].state = match (reply, &sent) {
            (Ok(Reply::Done(digest)), Ok(report)) if digest == report.digest_hex() => {
                State::Complete
            }
            // The receiver has verified the digest, whatever happened to the others.
            (Ok(Reply::Done(_)), Err(_)) => State::Complete,
            (Ok(Reply::Done(digest)), Ok(_)) => {
                State::Failed(format!("digest mismatch: it received {digest}"))
            }
            (Ok(reply), _) => state_after(reply),
            (Err(error), _) => State::Missing(Some(format!("{error:#}"))),
        };
    }
    Ok(sent.ok())
}

fn send(
    arguments: &SendArguments,
    offer: &Offer,
    (group, members): (u64, &[SocketAddr]),
    from: u64,
    bar: &mut Progress,
) -> Result<FileReport> {
    let mut file = File::open(&arguments.file)
        .with_context(|| format!("cannot open {}", arguments.file.display()))?;
    let options = GroupOptions {
        group,
        carrier: arguments.transport,
        algorithm: Algorithm::Plain(arguments.schedule.plain()),
        block_len: arguments.block.clamp(1, u32::MAX as usize) as u32,
        ..GroupOptions::default()
    };
    let mut group = Group::create(members, 0, options)?;
    let (bytes, chunk_len) = (offer.bytes, offer.chunk_len as u32);
    let source = FileSource { bytes, from, chunk_len };
    let report = group.send_part(&mut file, source, |progress| {
        bar.show(progress.done as f64 / progress.bytes.max(1) as f64, &offer.name);
    })?;
    group.close()?;
    Ok(report)
}

fn print_summary(
    arguments: &SendArguments,
    offer: &Offer,
    receivers: &[Receiver],
    rounds: &[FileReport],
    began: Instant,
) -> Result<ExitCode> {
    let seconds = began.elapsed().as_secs_f64();
    let digest = rounds.last().map(FileReport::digest_hex);
    let complete = receivers.iter().filter(|receiver| receiver.state == State::Complete).count();
    let mut out = stdout().lock();
    if arguments.json {
        let members: Vec<_> = receivers
            .iter()
            .map(|receiver| {
                let (state, reason) = match &receiver.state {
                    State::Complete => ("complete", None),
                    State::Missing(reason) => ("incomplete", reason.clone()),
                    State::Failed(reason) => ("failed", Some(reason.clone())),
                };
                json!({ "address": receiver.address, "state": state, "error": reason })
            })
            .collect();
        let line = json!({
            "command": "bulk send", "file": arguments.file, "bytes": offer.bytes,
            "digest": digest, "seconds": seconds, "receivers": members,
        });
        writeln!(out, "{line}")?;
    } else {
        if let Some(digest) = digest {
            writeln!(out, "{digest}  {}", arguments.file.display())?;
        }
        let rate = offer.bytes as f64 * 8.0 / seconds / 1e6;
        writeln!(
            out,
            "{} bytes to {complete} of {} receivers in {seconds:.2} s: {rate:.0} Mbit/s to each",
            offer.bytes,
            receivers.len(),
        )?;
    }
    for receiver in receivers {
        if let State::Missing(Some(reason)) | State::Failed(reason) = &receiver.state {
            eprintln!("onepipe: {}: not delivered: {reason}", receiver.address);
        }
    }
    Ok(if complete == receivers.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
