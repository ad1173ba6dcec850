//! `onepipe transfer send`.

use std::fs::File;
use std::io::{self, Read, stdin};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use onepipe::ProcessId;
use onepipe_transport_driver::Doorbell;

use super::SendArguments;
use super::end::{Counted, End};
use super::report::Sent;
use super::talk::{self, Word};
use crate::number::readable;
use crate::progress::Progress;

/// Bytes that were read and are not written there yet, at most.
pub const WINDOW_BYTES: u64 = 8 << 20;
/// A chunk takes about so long to send, in ns: others that have chunks take their turns meanwhile,
/// and a receiver is heard of often enough.
const CHUNK_NS: u64 = 50_000_000;
/// About what a timeslot carries.
const SLOT_BYTES: u64 = 1_400;
const CHUNK_LEN_MIN: u64 = 64 << 10;
const CHUNK_LEN_MAX: u64 = 2 << 20;
/// Who has nothing to say says so as often.
const HERE: Duration = Duration::from_secs(1);
/// Who has told that all has come is told within this that it was heard: that takes some timeslots,
/// and as many again if they are lost.
const ECHO: Duration = Duration::from_millis(50);
/// So long is tried to tell a receiver that was heard within `OF_LATE` that nothing comes of it,
const FAREWELL: Duration = Duration::from_secs(2);
const OF_LATE: Duration = Duration::from_secs(1);
/// and so long one that was not.
const FAREWELL_IN_VAIN: Duration = Duration::from_millis(300);

/// What the thread that reads has to tell.
enum Piece {
    Chunk(Vec<u8>),
    End { bytes: u64, digest: String },
    Error(io::Error),
}

/// Sends.
pub fn run(arguments: &SendArguments) -> Result<ExitCode> {
    let SendArguments { file, to, process, place, .. } = arguments;
    place.check(*process);
    place.check_endpoint("--to", *to);
    if to == process {
        crate::refuse(&format!("--to {to} is this process itself: --process is another one"));
    }
    let mut source = Source::open(arguments)?;
    let mut end = End::open(place, *process)?;
    let chunk = (CHUNK_NS / place.slot * SLOT_BYTES).clamp(CHUNK_LEN_MIN, CHUNK_LEN_MAX);
    let pieces = source.read(chunk, end.doorbell());
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let began = end.counted();
    let mut sending = Sending {
        to: ProcessId(*to),
        number: nanoseconds as u64 ^ u64::from(std::process::id()) << 48,
        name: source.name,
        bytes: source.bytes,
        pieces,
        state: State::Invites,
        sent: 0,
        written: 0,
        began,
        heard: began,
        spoke: Instant::now(),
        of_others: 0,
        bar: Progress::new(),
    };
    let outcome = sending.run(&mut end);
    sending.bar = Progress::new();
    match outcome {
        Ok(Outcome::Through(digest)) => {
            // That the receiver hears that it was heard.
            let until = end.counted();
            end.linger(ECHO, FAREWELL_IN_VAIN);
            let (bytes, began) = (sending.sent, sending.began);
            let name =
                if super::is_standard(file) { sending.name } else { file.display().to_string() };
            Sent { name, bytes, digest, to: *to, process: *process, end: &end, began, until }
                .tell(arguments.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(Outcome::Interrupted) => {
            sending.fail(&mut end, "its sender was interrupted");
            eprintln!("onepipe: interrupted");
            Ok(ExitCode::from(crate::interrupt::EXIT_STATUS))
        }
        Err(why) => {
            sending.fail(&mut end, &format!("{why:#}"));
            Err(why)
        }
    }
}

/// What is sent.
struct Source {
    name: String,
    /// Bytes, if they are known.
    bytes: Option<u64>,
    input: Option<Box<dyn Read + Send>>,
    is_file: bool,
}

impl Source {
    fn open(arguments: &SendArguments) -> Result<Self> {
        let file = &arguments.file;
        let named = |name: &str| {
            let name = arguments.name.clone().unwrap_or_else(|| name.to_owned());
            talk::check_name(&name).context("--name gives it another one")?;
            anyhow::Ok(name)
        };
        if super::is_standard(file) {
            let input: Box<dyn Read + Send> = Box::new(stdin());
            return Ok(Self {
                name: named("stdin")?,
                bytes: None,
                input: Some(input),
                is_file: false,
            });
        }
        let what = || format!("cannot read {}", file.display());
        let found = std::fs::metadata(file).with_context(what)?;
        if found.is_dir() {
            bail!("{} is a folder: try `tar c {0} | onepipe transfer send -`", file.display());
        }
        let name = named(&file.file_name().unwrap_or_default().to_string_lossy())?;
        let input: Box<dyn Read + Send> = Box::new(File::open(file).with_context(what)?);
        let is_file = found.is_file();
        // What is made when it is read, as in /proc, seems to be empty.
        let bytes = Some(found.len()).filter(|bytes| is_file && *bytes > 0);
        Ok(Self { name, bytes, input: Some(input), is_file })
    }

    /// Reads it in a thread, for it may take long.
    fn read(&mut self, chunk_len: u64, bell: Doorbell) -> Receiver<Piece> {
        let (teller, pieces) = sync_channel(2);
        let is_file = self.is_file;
        if let Some(input) = self.input.take() {
            std::thread::spawn(move || read(input, is_file, chunk_len, &teller, &bell));
        }
        pieces
    }
}

fn read(
    mut input: Box<dyn Read + Send>,
    is_file: bool,
    chunk_len: u64,
    teller: &SyncSender<Piece>,
    bell: &Doorbell,
) {
    let (mut bytes, mut hasher) = (0, blake3::Hasher::new());
    loop {
        let mut chunk = Vec::new();
        let read = if is_file {
            input.by_ref().take(chunk_len).read_to_end(&mut chunk)
        } else {
            // What is there: more may come late.
            chunk.resize(chunk_len as usize, 0);
            input.read(&mut chunk)
        };
        let piece = match read {
            Ok(0) => Piece::End { bytes, digest: hasher.finalize().to_hex().to_string() },
            Ok(read) => {
                chunk.truncate(read);
                hasher.update(&chunk);
                bytes += read as u64;
                Piece::Chunk(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Piece::Error(error),
        };
        let is_last = !matches!(piece, Piece::Chunk(_));
        // Who has nobody to tell it to is done.
        let is_heard = teller.send(piece).is_ok();
        bell.ring();
        if is_last || !is_heard {
            return;
        }
    }
}

/// How far it has come.
enum State {
    /// It was asked for nothing yet.
    Invites,
    /// It was asked whether it may come.
    Waits,
    /// Chunks are sent.
    Sends,
    /// All are, and this is its digest.
    Ends(String),
}

enum Outcome {
    /// The receiver has it; its digest.
    Through(String),
    Interrupted,
}

struct Sending {
    to: ProcessId,
    number: u64,
    name: String,
    bytes: Option<u64>,
    pieces: Receiver<Piece>,
    state: State,
    /// Bytes that were handed over, and that are written there.
    sent: u64,
    written: u64,
    /// When the receiver had let it come, and when something was heard of it last.
    began: Counted,
    heard: Counted,
    spoke: Instant,
    /// Words about files of others that are the same process.
    of_others: u64,
    bar: Progress,
}

impl Sending {
    fn run(&mut self, end: &mut End) -> Result<Outcome> {
        loop {
            if end.is_stopped() {
                return Ok(Outcome::Interrupted);
            }
            while let Some((from, object)) = end.next() {
                if let Some(outcome) = self.hear(end, from, &object)? {
                    return Ok(outcome);
                }
            }
            if end.counted().endpoint.slots_received > self.heard.endpoint.slots_received {
                self.heard = end.counted();
            }
            if end.suits_nobody() || end.since(&self.heard) >= end.patience() {
                return Err(self.in_vain(end));
            }
            self.say(end)?;
            self.show();
            end.turn();
        }
    }

    fn hear(&mut self, end: &mut End, from: ProcessId, object: &[u8]) -> Result<Option<Outcome>> {
        let to = self.to.0;
        let (line, _) = match talk::read(object) {
            Ok(read) if from == self.to => read,
            Ok(_) => return Ok(None),
            Err(why) => bail!("process {} says what is none of a receiver's: {why:#}", from.0),
        };
        if line.file != self.number {
            // Of a sender that was this process before, or is it, too.
            self.of_others += 1;
            return Ok(None);
        }
        self.heard = end.counted();
        match (line.word, &self.state) {
            (Word::Ready, State::Waits) => {
                (self.state, self.began) = (State::Sends, self.heard);
            }
            (Word::Written { bytes }, _) => self.written = bytes.clamp(self.written, self.sent),
            (Word::Done, State::Ends(digest)) => {
                self.written = self.sent;
                return Ok(Some(Outcome::Through(digest.clone())));
            }
            (Word::Failed { why }, _) => bail!("process {to} does not take it: {why}"),
            _ => {}
        }
        Ok(None)
    }

    /// Says what is to be said now.
    fn say(&mut self, end: &mut End) -> Result<()> {
        match self.state {
            State::Invites => {
                let begin = Word::Begin { name: self.name.clone(), bytes: self.bytes };
                self.tell(end, begin, b"");
                self.state = State::Waits;
            }
            State::Sends => {
                while self.sent - self.written < WINDOW_BYTES {
                    match self.pieces.try_recv() {
                        Ok(Piece::Chunk(chunk)) => {
                            let bytes = self.sent + chunk.len() as u64;
                            ensure!(self.bytes.is_none_or(|all| bytes <= all), self.changed());
                            self.tell(end, Word::Chunk { offset: self.sent }, &chunk);
                            self.sent = bytes;
                        }
                        Ok(Piece::End { bytes, digest }) => {
                            ensure!(self.bytes.is_none_or(|all| bytes == all), self.changed());
                            self.tell(end, Word::End { bytes, digest: digest.clone() }, b"");
                            self.state = State::Ends(digest);
                            break;
                        }
                        Ok(Piece::Error(error)) => {
                            return Err(error)
                                .with_context(|| format!("cannot read {}", self.name));
                        }
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => bail!("cannot read {}", self.name),
                    }
                }
            }
            State::Waits | State::Ends(_) => {}
        }
        if end.under_way() == 0 && self.spoke.elapsed() >= HERE {
            self.tell(end, Word::Here, b"");
        }
        Ok(())
    }

    fn tell(&mut self, end: &mut End, word: Word, bytes: &[u8]) {
        end.send(self.to, talk::write(self.number, word, bytes));
        self.spoke = Instant::now();
    }

    /// Tells the receiver that nothing comes of it, if it can be told soon: what is on its way to
    /// it need not come.
    fn fail(&mut self, end: &mut End, why: &str) {
        let is_there = end.since(&self.heard) < OF_LATE;
        end.give_up();
        self.tell(end, Word::Failed { why: why.to_owned() }, b"");
        end.linger(Duration::ZERO, if is_there { FAREWELL } else { FAREWELL_IN_VAIN });
    }

    /// The file is not what it was: half of one and half of another is nobody's.
    fn changed(&self) -> String {
        let bytes = self.bytes.unwrap_or_default();
        format!("{} had {bytes} bytes, and has other ones now: it was written to", self.name)
    }

    fn show(&mut self) {
        match self.bytes {
            Some(bytes) => {
                let part = self.written as f64 / bytes.max(1) as f64;
                self.bar.show(part.min(1.0), &self.name);
            }
            None => {
                let what = || format!("{} bytes of {}", readable(self.written as f64), self.name);
                self.bar.show_count(what);
            }
        }
    }

    /// Why it has waited long enough.
    fn in_vain(&self, end: &End) -> anyhow::Error {
        let waited = end.since(&self.heard).as_secs_f64();
        let trouble = end.trouble(&self.heard).unwrap_or_else(|| {
            let to = self.to.0;
            let slots = end.counted().endpoint.slots_sent - self.heard.endpoint.slots_sent;
            // Nothing is heard any more by whoever began first.
            let was_heard = matches!(self.state, State::Sends | State::Ends(_));
            let other = match was_heard || self.of_others > 0 {
                true => format!(", or is another one process {}, too", end.process()),
                false => String::new(),
            };
            format!(
                "process {to} does not answer, though {} and {slots} packets were sent to it: does \
                 `onepipe transfer receive --process {to}` run there{other}?",
                end.arbiter()
            )
        });
        anyhow::anyhow!("gave up after {waited:.1} s ({}): {trouble}", end.name())
    }
}
