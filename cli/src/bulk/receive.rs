//! `onepipe bulk recv`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use onepipe::{Door, FileError, FileReport, Group, GroupOptions};
use serde_json::json;

use super::RecvArguments;
use super::talk::{Answer, Invitation, Request, Round, Talk, VERSION};
use crate::progress::Progress;

/// A sender that says nothing for so long is none.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pieces of a file that may wait to be written.
const CHUNKS_MAX: u64 = 4;

/// Receives a file, or file after file.
pub fn run(arguments: &RecvArguments) -> Result<ExitCode> {
    let door = Door::open(arguments.listen)
        .with_context(|| format!("cannot listen at {}", arguments.listen))?;
    super::end_on_interrupt()?;
    writeln!(stdout(), "listening at {}", door.address()).context("cannot print")?;
    loop {
        let soon = Instant::now() + Duration::from_secs(3600);
        let Some(guest) = door.guest(soon).context("cannot listen")? else { continue };
        let sender = guest.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        match receive(arguments, &door, Talk::new(guest)) {
            Ok(received) => {
                tell(arguments, &received, &sender)?;
                if !arguments.forever {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Err(Trouble::Again(why)) => {
                eprintln!("onepipe: {sender}: {why:#}; waiting for it to go on");
            }
            Err(Trouble::Final(why)) if arguments.forever => {
                eprintln!("onepipe: {sender}: {why:#}")
            }
            Err(Trouble::Final(why)) => return Err(why),
        }
    }
}

/// Why a file has not come.
enum Trouble {
    /// It may come yet.
    Again(anyhow::Error),
    /// It never will.
    Final(anyhow::Error),
}

/// A file that has come.
struct Received {
    path: PathBuf,
    report: FileReport,
    took: Duration,
}

/// Talks to a sender, and receives its file in one round.
fn receive(arguments: &RecvArguments, door: &Door, mut talk: Talk) -> Result<Received, Trouble> {
    let invitation = match talk.hear(PATIENCE) {
        Ok(Request::Invite(invitation)) => invitation,
        Ok(Request::Begin(_)) => return Err(Trouble::Again(anyhow::anyhow!("nothing to begin"))),
        Err(error) => return Err(Trouble::Again(error)),
    };
    let outcome = Target::new(arguments, &invitation)
        .map_err(Trouble::Final)
        .and_then(|target| follow(door, &mut talk, &invitation, target));
    let answer = match &outcome {
        Ok(received) => Answer::Done(received.report.digest_hex()),
        Err(Trouble::Again(why)) => Answer::Failed { why: format!("{why:#}"), is_final: false },
        Err(Trouble::Final(why)) => Answer::Failed { why: format!("{why:#}"), is_final: true },
    };
    // A sender that does not hear it asks again, and is told then.
    let _ = talk.say(&answer);
    outcome
}

fn follow(
    door: &Door,
    talk: &mut Talk,
    invitation: &Invitation,
    mut target: Target,
) -> Result<Received, Trouble> {
    talk.say(&Answer::Has(target.has)).map_err(Trouble::Again)?;
    let round = match talk.hear(PATIENCE).map_err(Trouble::Again)? {
        Request::Begin(round) => round,
        Request::Invite(_) => return Err(Trouble::Again(anyhow::anyhow!("invited twice"))),
    };
    let began = Instant::now();
    let mut group = join(door, invitation, &round).map_err(Trouble::Again)?;
    let mut bar = Progress::new();
    let received = group.recv_part(&mut target, |progress| {
        bar.show(progress.done as f64 / progress.bytes.max(1) as f64, &invitation.name);
    });
    let report = match received {
        Ok(report) => report,
        Err(error @ FileError::Digest { .. }) => {
            // It is not known which part is wrong.
            target.discard();
            return Err(Trouble::Again(error.into()));
        }
        Err(error @ (FileError::Ended(_) | FileError::Cut { .. })) => {
            let place = target.place.display();
            return Err(match target.is_part() {
                true => Trouble::Again(error.into()),
                false => Trouble::Final(anyhow::Error::from(error).context(format!(
                    "{place} is no regular file: cannot go on in the middle of it"
                ))),
            });
        }
        Err(error) => {
            let what = format!("{}", target.place.display());
            return Err(Trouble::Final(anyhow::Error::from(error).context(what)));
        }
    };
    // All bytes are here; that others may lack some is for the sender to find out.
    let _ = group.close();
    let path = target.finish().map_err(Trouble::Final)?;
    Ok(Received { path, report, took: began.elapsed() })
}

fn join(door: &Door, invitation: &Invitation, round: &Round) -> Result<Group> {
    let carrier = super::carrier(&round.transport).map_err(anyhow::Error::msg)?;
    let options = GroupOptions {
        group: round.group,
        carrier,
        algorithm: onepipe::Algorithm::Plain(round.schedule.plain()),
        memory_bytes_max: CHUNKS_MAX * invitation.chunk_len,
        door: Some(door.clone()),
        ..GroupOptions::default()
    };
    Ok(Group::create(&round.members, round.own, options)?)
}

fn tell(arguments: &RecvArguments, received: &Received, sender: &str) -> Result<()> {
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
    let rest = match report.from {
        0 => String::new(),
        from => format!(", {from} of them from before"),
    };
    writeln!(out, "{digest}  {}", path.display())?;
    writeln!(out, "{} bytes in {seconds:.2} s{rest}", report.bytes).context("cannot print")
}

/// Where a file goes: into a part of it first, which gets its name when it is whole.
struct Target {
    file: File,
    /// What is written, and what it is called in the end; the same of what is no regular file.
    place: PathBuf,
    path: PathBuf,
    /// Bytes that are here.
    has: u64,
}

impl Target {
    fn new(arguments: &RecvArguments, invitation: &Invitation) -> Result<Self> {
        let Invitation { version, name, bytes, .. } = invitation;
        if *version != VERSION {
            bail!("the sender speaks version {version}, and this is version {VERSION}");
        }
        let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name.as_str());
        if !is_plain {
            bail!("{name:?} is no name of a file");
        }
        let out = &arguments.out;
        let path = if out.is_dir() { out.join(name) } else { out.clone() };
        let found = fs::metadata(&path).ok();
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            let open = File::options().write(true).open(&path);
            let file = open.with_context(|| format!("cannot open {}", path.display()))?;
            return Ok(Self { file, place: path.clone(), path, has: 0 });
        }
        if found.is_some() && !arguments.force {
            bail!("{} is there already (--force replaces it)", path.display());
        }
        let (place, note) = (beside(&path, "part"), beside(&path, "note"));
        let open = File::options().read(true).write(true).create(true).truncate(false).open(&place);
        let file = open.with_context(|| format!("cannot open {}", place.display()))?;
        let known: Option<Invitation> =
            fs::read(&note).ok().and_then(|known| serde_json::from_slice(&known).ok());
        let is_same = known.is_some_and(|known| {
            (known.bytes, known.changed_ns) == (invitation.bytes, invitation.changed_ns)
        });
        let has = if is_same { file.metadata()?.len().min(*bytes) } else { 0 };
        file.set_len(has).with_context(|| format!("cannot cut {}", place.display()))?;
        fs::write(&note, serde_json::to_vec(invitation)?)
            .with_context(|| format!("cannot write {}", note.display()))?;
        Ok(Self { file, place, path, has })
    }

    fn is_part(&self) -> bool {
        self.place != self.path
    }

    /// What there is of it is of no use.
    fn discard(&self) {
        if self.is_part() {
            // If it cannot be cut now it is found wrong again.
            let _ = self.file.set_len(0);
        }
    }

    /// It is whole.
    fn finish(self) -> Result<PathBuf> {
        if self.is_part() {
            let to_disk = self.file.sync_all();
            to_disk.with_context(|| format!("cannot write {}", self.place.display()))?;
            fs::rename(&self.place, &self.path)
                .with_context(|| format!("cannot name {}", self.path.display()))?;
            // Nobody reads it without a part beside it.
            let _ = fs::remove_file(beside(&self.path, "note"));
        }
        Ok(self.path)
    }
}

/// A file beside another one.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".onepipe-{what}"));
    path.with_file_name(name)
}

impl Read for Target {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.file.read(room)
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
            // A pipe begins where it is, once.
            SeekFrom::Start(0) if !self.is_part() => Ok(0),
            to => self.file.seek(to),
        }
    }
}
