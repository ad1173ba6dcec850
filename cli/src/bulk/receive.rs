//! `onepipe bulk recv`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use onepipe::{FileError, FileReport, Group, GroupOptions, Listener};
use serde_json::json;

use super::RecvArguments;
use super::control::{ControlConnection, Offer, Reply, Request, Round, VERSION};
use crate::progress::Progress;

/// Timeout of a sender's requests.
const SENDER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of chunks that wait to be written.
const CHUNKS_MAX: u64 = 4;

/// Receives a file, or file after file.
pub fn run(arguments: &RecvArguments) -> Result<ExitCode> {
    let listener = Listener::bind(arguments.listen)
        .with_context(|| format!("cannot listen at {}", arguments.listen))?;
    super::end_on_interrupt()?;
    crate::args::print_if_local(arguments.listen, super::ADDRESS);
    writeln!(stdout(), "listening at {}", listener.address()).context("cannot print")?;
    loop {
        // Nothing is to be done at the deadline: listening continues.
        let deadline = Instant::now() + Duration::from_secs(3600);
        let Some(connection) = listener.accept_app(deadline).context("cannot listen")? else {
            continue;
        };
        let sender = connection.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        match receive(arguments, &listener, ControlConnection::new(connection)) {
            Ok(received) => {
                print_report(arguments, &received, &sender)?;
                if !arguments.forever {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Err(ReceiveError::Retry(reason)) => {
                eprintln!("onepipe: {sender}: {reason:#}; waiting for the sender to resume");
            }
            Err(ReceiveError::Final(reason)) if arguments.forever => {
                eprintln!("onepipe: {sender}: {reason:#}")
            }
            Err(ReceiveError::Final(reason)) => return Err(reason),
        }
    }
}

/// Why a file was not received.
enum ReceiveError {
    /// The sender may retry.
    Retry(anyhow::Error),
    /// A retry is of no use.
    Final(anyhow::Error),
}

struct Received {
    path: PathBuf,
    report: FileReport,
    took: Duration,
}

/// Handles the connection of a sender, and receives its file in one round.
fn receive(
    arguments: &RecvArguments,
    listener: &Listener,
    mut control: ControlConnection,
) -> Result<Received, ReceiveError> {
    let offer = match control.recv(SENDER_TIMEOUT) {
        Ok(Request::Offer(offer)) => offer,
        Ok(Request::Begin(_)) => {
            return Err(ReceiveError::Retry(anyhow::anyhow!(
                "unexpected request: no file was offered"
            )));
        }
        Err(error) => return Err(ReceiveError::Retry(error)),
    };
    let outcome = Target::new(arguments, &offer)
        .map_err(ReceiveError::Final)
        .and_then(|target| receive_round(listener, &mut control, &offer, target));
    let reply = match &outcome {
        Ok(received) => Reply::Done(received.report.digest_hex()),
        Err(ReceiveError::Retry(reason)) => {
            Reply::Failed { reason: format!("{reason:#}"), is_final: false }
        }
        Err(ReceiveError::Final(reason)) => {
            Reply::Failed { reason: format!("{reason:#}"), is_final: true }
        }
    };
    // A sender that does not get the reply offers the file again, and gets it then.
    let _ = control.send(&reply);
    outcome
}

fn receive_round(
    listener: &Listener,
    control: &mut ControlConnection,
    offer: &Offer,
    mut target: Target,
) -> Result<Received, ReceiveError> {
    control.send(&Reply::Resume(target.resume_at)).map_err(ReceiveError::Retry)?;
    let round = match control.recv(SENDER_TIMEOUT).map_err(ReceiveError::Retry)? {
        Request::Begin(round) => round,
        Request::Offer(_) => {
            return Err(ReceiveError::Retry(anyhow::anyhow!("unexpected second offer")));
        }
    };
    let began = Instant::now();
    let mut group = join(listener, offer, &round).map_err(ReceiveError::Retry)?;
    let mut bar = Progress::new();
    let received = group.recv_part(&mut target, |progress| {
        bar.show(progress.done as f64 / progress.bytes.max(1) as f64, &offer.name);
    });
    let report = match received {
        Ok(report) => report,
        Err(error @ FileError::Digest { .. }) => {
            // The digest covers the whole file, so no part of it can be kept.
            target.discard();
            return Err(ReceiveError::Retry(error.into()));
        }
        Err(error @ (FileError::Ended(_) | FileError::Truncated { .. })) => {
            let written_path = target.written_path.display();
            return Err(match target.is_partial() {
                true => ReceiveError::Retry(error.into()),
                false => ReceiveError::Final(
                    anyhow::Error::from(error)
                        .context(format!("{written_path} is not a regular file: cannot resume")),
                ),
            });
        }
        Err(error) => {
            let path = format!("{}", target.written_path.display());
            return Err(ReceiveError::Final(anyhow::Error::from(error).context(path)));
        }
    };
    // This receiver has all bytes; the sender finds out about the others.
    let _ = group.close();
    let path = target.finish().map_err(ReceiveError::Final)?;
    Ok(Received { path, report, took: began.elapsed() })
}

fn join(listener: &Listener, offer: &Offer, round: &Round) -> Result<Group> {
    let carrier = super::carrier(&round.transport).map_err(anyhow::Error::msg)?;
    let options = GroupOptions {
        group: round.group,
        carrier,
        algorithm: onepipe::Algorithm::Plain(round.schedule.plain()),
        memory_bytes_max: CHUNKS_MAX * offer.chunk_len,
        listener: Some(listener.clone()),
        ..GroupOptions::default()
    };
    Ok(Group::create(&round.members, round.own, options)?)
}

fn print_report(arguments: &RecvArguments, received: &Received, sender: &str) -> Result<()> {
    let Received { path, report, took } = received;
    let (digest, seconds) = (report.digest_hex(), took.as_secs_f64());
    let mut out = stdout().lock();
    if arguments.json {
        let line = json!({
            "command": "bulk recv", "file": path, "bytes": report.bytes, "from": report.from,
            "digest": digest, "seconds": seconds, "sender": sender,
        });
        return writeln!(out, "{line}").context("cannot print");
    }
    let resumed = match report.from {
        0 => String::new(),
        from => format!(", {from} of them received earlier"),
    };
    writeln!(out, "{digest}  {}", path.display())?;
    writeln!(out, "{} bytes in {seconds:.2} s{resumed}", report.bytes).context("cannot print")
}

/// Destination of a file: bytes go to a partial file, which is renamed when it is complete.
struct Target {
    file: File,
    /// Path that is written, and final path; equal for anything but a regular file.
    written_path: PathBuf,
    path: PathBuf,
    /// Bytes already received.
    resume_at: u64,
}

impl Target {
    /// Validates an offer, and opens the file for it. A partial file is resumed if its note shows
    /// that it belongs to the same file.
    fn new(arguments: &RecvArguments, offer: &Offer) -> Result<Self> {
        let Offer { version, name, bytes, .. } = offer;
        if *version != VERSION {
            bail!("the sender uses protocol version {version}, this receiver {VERSION}");
        }
        let is_file_name =
            Path::new(name).file_name().is_some_and(|last_part| last_part == name.as_str());
        if !is_file_name {
            bail!("{name:?} is not a valid file name");
        }
        let out = &arguments.out;
        let path = if out.is_dir() { out.join(name) } else { out.clone() };
        let existing = fs::metadata(&path).ok();
        if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
            let open = File::options().write(true).open(&path);
            let file = open.with_context(|| format!("cannot open {}", path.display()))?;
            return Ok(Self { file, written_path: path.clone(), path, resume_at: 0 });
        }
        if existing.is_some() && !arguments.force {
            bail!("{} already exists (--force replaces it)", path.display());
        }
        // The note is the offer of which the partial file holds the beginning.
        let (written_path, note) = (sibling_path(&path, "part"), sibling_path(&path, "note"));
        let open =
            File::options().read(true).write(true).create(true).truncate(false).open(&written_path);
        let file = open.with_context(|| format!("cannot open {}", written_path.display()))?;
        let noted_offer: Option<Offer> =
            fs::read(&note).ok().and_then(|noted_offer| serde_json::from_slice(&noted_offer).ok());
        let is_same = noted_offer.is_some_and(|noted_offer| {
            (noted_offer.bytes, noted_offer.changed_ns) == (offer.bytes, offer.changed_ns)
        });
        let resume_at = if is_same { file.metadata()?.len().min(*bytes) } else { 0 };
        file.set_len(resume_at)
            .with_context(|| format!("cannot truncate {}", written_path.display()))?;
        fs::write(&note, serde_json::to_vec(offer)?)
            .with_context(|| format!("cannot write {}", note.display()))?;
        Ok(Self { file, written_path, path, resume_at })
    }

    fn is_partial(&self) -> bool {
        self.written_path != self.path
    }

    /// Discards what was received.
    fn discard(&self) {
        if self.is_partial() {
            // If truncating fails, the next digest check fails too.
            let _ = self.file.set_len(0);
        }
    }

    /// Syncs the complete file and renames it.
    fn finish(self) -> Result<PathBuf> {
        if self.is_partial() {
            let to_disk = self.file.sync_all();
            to_disk.with_context(|| format!("cannot write {}", self.written_path.display()))?;
            fs::rename(&self.written_path, &self.path)
                .with_context(|| format!("cannot rename to {}", self.path.display()))?;
            // The note is ignored without its partial file.
            let _ = fs::remove_file(sibling_path(&self.path, "note"));
        }
        Ok(self.path)
    }
}

/// Returns a path beside `path` with the suffix `.onepipe-…`.
fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".onepipe-{suffix}"));
    path.with_file_name(name)
}

impl Read for Target {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Target {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            // A pipe cannot seek; it starts at its beginning once.
            SeekFrom::Start(0) if !self.is_partial() => Ok(0),
            to => self.file.seek(to),
        }
    }
}
