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
use super::talk::{Answer, Invitation, Request, Round, Talk, VERSION};
use crate::progress::Progress;

/// Whoever does not open the door within this is looked for again later.
const CONNECT: Duration = Duration::from_secs(2);
/// Whoever is asked answers within this: it may be writing what it got in the round before.
const ANSWER: Duration = Duration::from_secs(5);
/// A receiver may take so long to bring what it has to its disk.
const SYNC: Duration = Duration::from_secs(120);
/// Between two looks for receivers that are not there.
const AGAIN: Duration = Duration::from_millis(100);

/// After so many rounds that bring nobody further there is something wrong that stays.
const ROUNDS_IN_VAIN_MAX: u32 = 5;

/// A receiver, and what has become of it.
struct Receiver {
    address: SocketAddr,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It does not have the file yet; what went wrong last.
    Lacks(Option<String>),
    /// It has the file.
    Has,
    /// It will never have it.
    Refuses(String),
}

impl Receiver {
    fn lacks(&self) -> bool {
        matches!(self.state, State::Lacks(_))
    }
}

/// Sends a file, in as many rounds as it takes: whoever fails is left out of the next one.
pub fn run(arguments: &SendArguments) -> Result<ExitCode> {
    super::end_on_interrupt()?;
    let what = || format!("cannot read {}", arguments.file.display());
    let found = std::fs::metadata(&arguments.file).with_context(what)?;
    if !found.is_file() {
        bail!("{} is no file", arguments.file.display());
    }
    let name = arguments.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let changed = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let invitation = Invitation {
        version: VERSION,
        name,
        bytes: found.len(),
        changed_ns: changed.map_or(0, |since| since.as_nanos() as u64),
        chunk_len: arguments.chunk.clamp(1, u32::MAX as usize) as u64,
    };
    let mut all: Vec<Receiver> = Vec::new();
    for address in &arguments.to {
        if all.iter().any(|known| known.address == *address) {
            crate::refuse(&format!("{address} is named twice"));
        }
        all.push(Receiver { address: *address, state: State::Lacks(None) });
    }
    let began = Instant::now();
    let mut bar = Progress::new();
    let mut rounds = Vec::new();
    let mut missed_since = None;
    // How far the last round has brought those who took part, and how many brought nothing.
    let (mut reached, mut in_vain) = ((0, 0), 0);
    while all.iter().any(Receiver::lacks) && in_vain < ROUNDS_IN_VAIN_MAX {
        let mut talks = invite(&mut all, &invitation);
        if talks.is_empty() {
            let since = *missed_since.get_or_insert_with(Instant::now);
            let lacks = all.iter().any(Receiver::lacks);
            if !lacks || since.elapsed() >= Duration::from_nanos(arguments.retry) {
                break;
            }
            std::thread::sleep(AGAIN);
            continue;
        }
        missed_since = None;
        let from = talks.iter().map(|talking| talking.has).min().unwrap_or(0);
        let has = all.iter().filter(|receiver| !receiver.lacks()).count();
        in_vain = if (has, from) > reached { 0 } else { in_vain + 1 };
        reached = (has, from);
        rounds.extend(round(arguments, &invitation, &mut all, &mut talks, &mut bar)?);
    }
    drop(bar);
    summarise(arguments, &invitation, &all, &rounds, began)
}

/// A receiver that is there.
struct Talking {
    /// Its place among all.
    at: usize,
    talk: Talk,
    has: u64,
}

/// Asks everybody who lacks the file, all at once. Answers who is there.
fn invite(all: &mut [Receiver], invitation: &Invitation) -> Vec<Talking> {
    let ask = |address| -> Result<(Talk, Answer)> {
        let stream = onepipe::Door::visit(address, CONNECT).context("cannot be reached")?;
        let mut talk = Talk::new(stream);
        talk.say(&Request::Invite(invitation.clone()))?;
        let answer = talk.hear(ANSWER)?;
        Ok((talk, answer))
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..)
            .zip(all.iter())
            .filter(|(_, receiver)| receiver.lacks())
            .map(|(at, receiver)| (at, receiver.address))
            .map(|(at, address)| (at, scope.spawn(move || ask(address))))
            .collect();
        asked.into_iter().filter_map(|(at, asked)| Some((at, asked.join().ok()?))).collect()
    });
    let mut talks = Vec::new();
    for (at, answer) in answers {
        match answer {
            Ok((talk, Answer::Has(has))) => talks.push(Talking { at, talk, has }),
            Ok((_, answer)) => all[at].state = judge(answer),
            Err(why) => all[at].state = State::Lacks(Some(format!("{why:#}"))),
        }
    }
    talks
}

/// What an answer makes of a receiver.
fn judge(answer: Answer) -> State {
    match answer {
        Answer::Failed { why, is_final: true } => State::Refuses(why),
        Answer::Failed { why, is_final: false } => State::Lacks(Some(why)),
        Answer::Has(_) | Answer::Done(_) => State::Lacks(Some("an answer out of turn".to_owned())),
    }
}

/// Sends the file to those who are there, from where all of them have it. Answers what was sent, if
/// it was sent to the end.
fn round(
    arguments: &SendArguments,
    invitation: &Invitation,
    all: &mut [Receiver],
    talks: &mut [Talking],
    bar: &mut Progress,
) -> Result<Option<FileReport>> {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let group = nanoseconds as u64 ^ u64::from(std::process::id()) << 48;
    let mut members = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))];
    members.extend(talks.iter().map(|talking| all[talking.at].address));
    for (own, talking) in (1..).zip(talks.iter()) {
        let (members, schedule) = (members.clone(), arguments.schedule);
        let transport = arguments.transport.name().to_owned();
        let round = Round { group, members, own, schedule, transport };
        // Whoever does not hear it is missed when the members meet.
        let _ = talking.talk.say(&Request::Begin(round));
    }
    let from = talks.iter().map(|talking| talking.has).min().unwrap_or(0);
    let sent = send(arguments, invitation, (group, &members), from, bar);
    let why = sent.as_ref().err().map(|error| format!("{error:#}"));
    if let Some(why) = &why {
        eprintln!("onepipe: {why}");
    }
    for talking in talks {
        let heard = talking.talk.hear(if sent.is_ok() { SYNC } else { ANSWER });
        all[talking.at].state = match (heard, &sent) {
            (Ok(Answer::Done(digest)), Ok(report)) if digest == report.digest_hex() => State::Has,
            // It has all, whatever has become of others. It has compared the digest.
            (Ok(Answer::Done(_)), Err(_)) => State::Has,
            (Ok(Answer::Done(digest)), Ok(_)) => {
                State::Refuses(format!("its digest is another: {digest}"))
            }
            (Ok(answer), _) => judge(answer),
            (Err(error), _) => State::Lacks(Some(format!("{error:#}"))),
        };
    }
    Ok(sent.ok())
}

fn send(
    arguments: &SendArguments,
    invitation: &Invitation,
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
    let (bytes, chunk_len) = (invitation.bytes, invitation.chunk_len as u32);
    let source = FileSource { bytes, from, chunk_len };
    let report = group.send_part(&mut file, source, |progress| {
        bar.show(progress.done as f64 / progress.bytes.max(1) as f64, &invitation.name);
    })?;
    group.close()?;
    Ok(report)
}

fn summarise(
    arguments: &SendArguments,
    invitation: &Invitation,
    all: &[Receiver],
    rounds: &[FileReport],
    began: Instant,
) -> Result<ExitCode> {
    let seconds = began.elapsed().as_secs_f64();
    let digest = rounds.last().map(FileReport::digest_hex);
    let has = all.iter().filter(|receiver| receiver.state == State::Has).count();
    let mut out = stdout().lock();
    if arguments.json {
        let members: Vec<_> = all
            .iter()
            .map(|receiver| {
                let (state, why) = match &receiver.state {
                    State::Has => ("has it", None),
                    State::Lacks(why) => ("lost", why.clone()),
                    State::Refuses(why) => ("failed", Some(why.clone())),
                };
                json!({ "address": receiver.address, "state": state, "why": why })
            })
            .collect();
        let line = json!({
            "command": "bulk send", "file": arguments.file, "bytes": invitation.bytes,
            "digest": digest, "seconds": seconds, "receivers": members,
        });
        writeln!(out, "{line}")?;
    } else {
        if let Some(digest) = digest {
            writeln!(out, "{digest}  {}", arguments.file.display())?;
        }
        let rate = invitation.bytes as f64 * 8.0 / seconds / 1e6;
        writeln!(
            out,
            "{} bytes to {has} of {} receivers in {seconds:.2} s: {rate:.0} Mbit/s to each",
            invitation.bytes,
            all.len(),
        )?;
    }
    for receiver in all {
        if let State::Lacks(Some(why)) | State::Refuses(why) = &receiver.state {
            eprintln!("onepipe: {} does not have it: {why}", receiver.address);
        }
    }
    Ok(if has == all.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
