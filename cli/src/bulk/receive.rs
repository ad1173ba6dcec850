//! `onepipe bulk recv`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use onepipe::{FileError, FileReport, Group, GroupOptions, Listener, ListenerStats};
use serde_json::json;
use tracing::warn;

use super::RecvArguments;
use super::control::{ControlConnection, Offer, Reply, Request, Round, VERSION};
use crate::incoming_file::{IncomingFile, check_bytes};
use crate::progress::Progress;
use crate::remote_text::{check_file_name, check_name};

/// Timeout of a sender's requests.
const SENDER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of chunks that wait to be written.
const CHUNKS_MAX: u64 = 4;

/// Receives a file, or file after file.
pub fn run(arguments: &RecvArguments) -> Result<ExitCode> {
    check_out(&arguments.out)?;
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
                print_report(arguments, &received, &sender, listener.stats())?;
                if !arguments.forever {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Err(ReceiveError::Retry(reason)) => {
                warn!("{sender}: {reason:#}; waiting for the sender to resume");
            }
            Err(ReceiveError::Refused(reason)) => {
                warn!("{sender}: {reason:#}; waiting for another sender");
            }
            Err(ReceiveError::Final(reason)) if arguments.forever => {
                warn!("{sender}: {reason:#}")
            }
            Err(ReceiveError::Final(reason)) => return Err(reason),
        }
    }
}

/// Checks that the folder of the destination exists, before a sender waits for it.
fn check_out(out: &Path) -> Result<()> {
    let is_folder = out.as_os_str().as_encoded_bytes().ends_with(b"/");
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = if is_folder { Some(out) } else { parent };
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let (out, folder) = (out.display(), folder.display());
        bail!("cannot write to {out}: there is no folder {folder}, create it first");
    }
    Ok(())
}

/// Why a file was not received.
enum ReceiveError {
    /// The sender may retry.
    Retry(anyhow::Error),
    /// A retry is of no use.
    Final(anyhow::Error),
    /// The offer is not acceptable; another sender's may be.
    Refused(anyhow::Error),
}

struct Received {
    path: PathBuf,
    report: FileReport,
    took: Duration,
}

/// Suffixes of the partial file and of its note.
const PART: &str = ".onepipe-part";
const NOTE: &str = ".onepipe-note";

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
    let outcome = check_offer(arguments, &offer)
        .map_err(ReceiveError::Refused)
        .and_then(|()| Target::new(arguments, &offer).map_err(ReceiveError::Final))
        .and_then(|target| receive_round(listener, &mut control, &offer, target));
    let reply = match &outcome {
        Ok(received) => Reply::Done(received.report.digest_hex()),
        Err(ReceiveError::Retry(reason)) => {
            Reply::Failed { reason: format!("{reason:#}"), is_final: false }
        }
        Err(ReceiveError::Final(reason) | ReceiveError::Refused(reason)) => {
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
    control.send(&Reply::Resume(target.resume_at())).map_err(ReceiveError::Retry)?;
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
            let written_path = target.written_path();
            let written_path = written_path.display();
            return Err(match target.is_partial() {
                true => ReceiveError::Retry(error.into()),
                false => ReceiveError::Final(
                    anyhow::Error::from(error)
                        .context(format!("{written_path} is not a regular file: cannot resume")),
                ),
            });
        }
        Err(error) => {
            let path = format!("{}", target.written_path().display());
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

fn print_report(
    arguments: &RecvArguments,
    received: &Received,
    sender: &str,
    listener: ListenerStats,
) -> Result<()> {
    let Received { path, report, took } = received;
    let (digest, seconds) = (report.digest_hex(), took.as_secs_f64());
    let ListenerStats { connections_refused: refused, connections_timed_out: timed_out } = listener;
    let mut out = stdout().lock();
    if arguments.json {
        let line = json!({
            "command": "bulk recv", "file": path, "bytes": report.bytes, "from": report.from,
            "digest": digest, "seconds": seconds, "sender": sender,
            "connections_refused": refused, "connections_timed_out": timed_out,
        });
        return writeln!(out, "{line}").context("cannot print");
    }
    let resumed = match report.from {
        0 => String::new(),
        from => format!(", {from} of them received earlier"),
    };
    if refused + timed_out > 0 {
        eprintln!("connections since the start: {refused} refused, {timed_out} timed out");
    }
    writeln!(out, "{digest}  {}", path.display())?;
    writeln!(out, "{} bytes in {seconds:.2} s{resumed}", report.bytes).context("cannot print")
}

/// Destination of a file.
enum Target {
    /// Bytes go to a partial file, which is renamed when it is complete.
    Partial {
        incoming: IncomingFile,
        path: PathBuf,
        /// Bytes already received.
        resume_at: u64,
    },
    /// A pipe or a device that the user has named.
    Other { file: File, path: PathBuf },
}

impl Target {
    /// Opens the file for an offer. A partial file is resumed if its note shows that it belongs to
    /// the same file.
    fn new(arguments: &RecvArguments, offer: &Offer) -> Result<Self> {
        let out = &arguments.out;
        let is_folder = out.is_dir();
        let path = if is_folder { out.join(&offer.name) } else { out.clone() };
        // In a folder the sender has named the file: anything else there is not for it.
        if !is_folder && fs::metadata(&path).is_ok_and(|existing| !existing.is_file()) {
            let open = File::options().write(true).open(&path);
            let file = open.with_context(|| format!("cannot open {}", path.display()))?;
            return Ok(Self::Other { file, path });
        }
        let incoming = IncomingFile::open(path.clone(), PART, arguments.force)?;
        // The note is the offer of which the partial file holds the beginning.
        let noted_offer: Option<Offer> =
            incoming.read_beside(NOTE).and_then(|noted| serde_json::from_slice(&noted).ok());
        let is_same = noted_offer.is_some_and(|noted_offer| {
            (noted_offer.bytes, noted_offer.changed_ns) == (offer.bytes, offer.changed_ns)
        });
        let len = incoming.file.metadata()?.len();
        let resume_at = if is_same { len.min(offer.bytes) } else { 0 };
        let truncated = incoming.file.set_len(resume_at);
        truncated.with_context(|| format!("cannot truncate {}", incoming.part_path().display()))?;
        incoming.write_beside(NOTE, &serde_json::to_vec(offer)?)?;
        Ok(Self::Partial { incoming, path, resume_at })
    }

    fn is_partial(&self) -> bool {
        matches!(self, Self::Partial { .. })
    }

    fn resume_at(&self) -> u64 {
        match self {
            Self::Partial { resume_at, .. } => *resume_at,
            Self::Other { .. } => 0,
        }
    }

    /// Returns the path that is written.
    fn written_path(&self) -> PathBuf {
        match self {
            Self::Partial { incoming, .. } => incoming.part_path(),
            Self::Other { path, .. } => path.clone(),
        }
    }

    fn file(&mut self) -> &mut File {
        match self {
            Self::Partial { incoming, .. } => &mut incoming.file,
            Self::Other { file, .. } => file,
        }
    }

    /// Discards what was received.
    fn discard(&self) {
        if let Self::Partial { incoming, .. } = self {
            // If truncating fails, the next digest check fails too.
            let _ = incoming.file.set_len(0);
        }
    }

    /// Syncs the complete file and renames it.
    fn finish(self) -> Result<PathBuf> {
        match self {
            Self::Partial { incoming, path, .. } => {
                incoming.finish()?;
                // The note is ignored without its partial file.
                incoming.remove_beside(NOTE);
                Ok(path)
            }
            Self::Other { path, .. } => Ok(path),
        }
    }
}

/// Checks an offer, whoever has sent it.
fn check_offer(arguments: &RecvArguments, offer: &Offer) -> Result<()> {
    let version = offer.version;
    ensure!(
        version == VERSION,
        "the sender uses protocol version {version}, this receiver {VERSION}"
    );
    // Otherwise the user has named the file.
    match arguments.out.is_dir() {
        true => check_file_name(&offer.name)?,
        false => check_name(&offer.name)?,
    }
    check_bytes(offer.bytes, arguments.max_bytes.map(|bytes| bytes as u64))?;
    let chunk_len = offer.chunk_len;
    ensure!(
        chunk_len.checked_mul(CHUNKS_MAX).is_some(),
        "a chunk of {chunk_len} bytes does not fit any memory"
    );
    Ok(())
}

impl Read for Target {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file().read(buffer)
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

impl Seek for Target {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            // A pipe cannot seek; it starts at its beginning once.
            SeekFrom::Start(0) if !self.is_partial() => Ok(0),
            to => self.file().seek(to),
        }
    }
}
