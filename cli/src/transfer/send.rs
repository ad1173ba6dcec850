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
use super::endpoint::{Counters, Endpoint};
use super::message::{self, Body};
use super::report::SentFile;
use crate::progress::Progress;
use crate::units::readable;

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
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Who has told that all has come is told within this that it was heard: that takes some timeslots,
/// and as many again if they are lost.
const ACK_LINGER: Duration = Duration::from_millis(50);
/// So long is tried to tell a receiver that was heard within `RECENTLY` that nothing comes of it,
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
const RECENTLY: Duration = Duration::from_secs(1);
/// and so long one that was not.
const ABORT_TIMEOUT_UNREACHABLE: Duration = Duration::from_millis(300);

/// What the thread that reads has to tell.
enum SourceEvent {
    Read(Vec<u8>),
    Eof { bytes: u64, digest: String },
    Error(io::Error),
}

/// Sends.
pub fn run(arguments: &SendArguments) -> Result<ExitCode> {
    let SendArguments { file, to, process, options, .. } = arguments;
    options.check(*process);
    options.check_endpoint("--to", *to);
    if to == process {
        crate::usage_error(&format!("--to {to} is this process itself: choose another --process"));
    }
    let mut source = Source::open(arguments)?;
    let mut endpoint = Endpoint::open(options, *process)?;
    let chunk = (CHUNK_NS / options.slot * SLOT_BYTES).clamp(CHUNK_LEN_MIN, CHUNK_LEN_MAX);
    let source_events = source.read(chunk, endpoint.doorbell());
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let began = endpoint.counters();
    let mut session = SendSession {
        to: ProcessId(*to),
        file_id: nanoseconds as u64 ^ u64::from(std::process::id()) << 48,
        name: source.name,
        bytes: source.bytes,
        source_events,
        state: State::Opening,
        sent: 0,
        written: 0,
        began,
        last_seen: began,
        last_sent: Instant::now(),
        foreign_messages: 0,
        bar: Progress::new(),
    };
    let outcome = session.run(&mut endpoint);
    session.bar = Progress::new();
    match outcome {
        Ok(Outcome::Complete(digest)) => {
            // That the receiver hears that it was heard.
            let until = endpoint.counters();
            endpoint.linger(ACK_LINGER, ABORT_TIMEOUT_UNREACHABLE);
            let (bytes, began) = (session.sent, session.began);
            let name =
                if super::is_stdio(file) { session.name } else { file.display().to_string() };
            SentFile {
                name,
                bytes,
                digest,
                to: *to,
                process: *process,
                endpoint: &endpoint,
                began,
                until,
            }
            .print(arguments.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(Outcome::Interrupted) => {
            session.fail(&mut endpoint, "its sender was interrupted");
            eprintln!("onepipe: interrupted");
            Ok(ExitCode::from(crate::interrupt::EXIT_STATUS))
        }
        Err(reason) => {
            session.fail(&mut endpoint, &format!("{reason:#}"));
            Err(reason)
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
            message::check_name(&name).context("choose another name with --name")?;
            anyhow::Ok(name)
        };
        if super::is_stdio(file) {
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
            bail!("{} is a directory: try `tar c {0} | onepipe transfer send -`", file.display());
        }
        let name = named(&file.file_name().unwrap_or_default().to_string_lossy())?;
        let input: Box<dyn Read + Send> = Box::new(File::open(file).with_context(what)?);
        let is_file = found.is_file();
        // What is made when it is read, as in /proc, seems to be empty.
        let bytes = Some(found.len()).filter(|bytes| is_file && *bytes > 0);
        Ok(Self { name, bytes, input: Some(input), is_file })
    }

    /// Reads it in a thread, for it may take long.
    fn read(&mut self, chunk_len: u64, doorbell: Doorbell) -> Receiver<SourceEvent> {
        let (sender, source_events) = sync_channel(2);
        let is_file = self.is_file;
        if let Some(input) = self.input.take() {
            std::thread::spawn(move || read(input, is_file, chunk_len, &sender, &doorbell));
        }
        source_events
    }
}

fn read(
    mut input: Box<dyn Read + Send>,
    is_file: bool,
    chunk_len: u64,
    sender: &SyncSender<SourceEvent>,
    doorbell: &Doorbell,
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
        let event = match read {
            Ok(0) => SourceEvent::Eof { bytes, digest: hasher.finalize().to_hex().to_string() },
            Ok(read) => {
                chunk.truncate(read);
                hasher.update(&chunk);
                bytes += read as u64;
                SourceEvent::Read(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => SourceEvent::Error(error),
        };
        let is_last = !matches!(event, SourceEvent::Read(_));
        // Who has nobody to tell it to is done.
        let is_received = sender.send(event).is_ok();
        doorbell.ring();
        if is_last || !is_received {
            return;
        }
    }
}

/// How far it has come.
enum State {
    /// It was asked for nothing yet.
    Opening,
    /// It was asked whether it may come.
    AwaitingAccept,
    /// Chunks are sent.
    Sending,
    /// All are, and this is its digest.
    Finishing(String),
}

enum Outcome {
    /// The receiver has it; its digest.
    Complete(String),
    Interrupted,
}

struct SendSession {
    to: ProcessId,
    file_id: u64,
    name: String,
    bytes: Option<u64>,
    source_events: Receiver<SourceEvent>,
    state: State,
    /// Bytes that were handed over, and that are written there.
    sent: u64,
    written: u64,
    /// When the receiver had let it come, and when something was heard of it last.
    began: Counters,
    last_seen: Counters,
    last_sent: Instant,
    /// Words about files of others that are the same process.
    foreign_messages: u64,
    bar: Progress,
}

impl SendSession {
    fn run(&mut self, endpoint: &mut Endpoint) -> Result<Outcome> {
        loop {
            if endpoint.is_stopped() {
                return Ok(Outcome::Interrupted);
            }
            while let Some((from, object)) = endpoint.next() {
                if let Some(outcome) = self.on_message(endpoint, from, &object)? {
                    return Ok(outcome);
                }
            }
            if endpoint.counters().endpoint.slots_received > self.last_seen.endpoint.slots_received
            {
                self.last_seen = endpoint.counters();
            }
            if endpoint.has_no_matching_arbiter()
                || endpoint.running_since(&self.last_seen) >= endpoint.timeout()
            {
                return Err(self.timeout_error(endpoint));
            }
            self.send_due(endpoint)?;
            self.show();
            endpoint.turn();
        }
    }

    fn on_message(
        &mut self,
        endpoint: &mut Endpoint,
        from: ProcessId,
        object: &[u8],
    ) -> Result<Option<Outcome>> {
        let to = self.to.0;
        let (message, _) = match message::read(object) {
            Ok(read) if from == self.to => read,
            Ok(_) => return Ok(None),
            Err(reason) => bail!("unexpected message from process {}: {reason:#}", from.0),
        };
        if message.file != self.file_id {
            // Of a sender that was this process before, or is it, too.
            self.foreign_messages += 1;
            return Ok(None);
        }
        self.last_seen = endpoint.counters();
        match (message.body, &self.state) {
            (Body::Accept, State::AwaitingAccept) => {
                (self.state, self.began) = (State::Sending, self.last_seen);
            }
            (Body::Written { bytes }, _) => self.written = bytes.clamp(self.written, self.sent),
            (Body::Complete, State::Finishing(digest)) => {
                self.written = self.sent;
                return Ok(Some(Outcome::Complete(digest.clone())));
            }
            (Body::Failed { reason }, _) => bail!("process {to} rejected the file: {reason}"),
            _ => {}
        }
        Ok(None)
    }

    /// Says what is to be said now.
    fn send_due(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        match self.state {
            State::Opening => {
                let begin = Body::Open { name: self.name.clone(), bytes: self.bytes };
                self.send_message(endpoint, begin, b"");
                self.state = State::AwaitingAccept;
            }
            State::Sending => {
                while self.sent - self.written < WINDOW_BYTES {
                    match self.source_events.try_recv() {
                        Ok(SourceEvent::Read(chunk)) => {
                            let bytes = self.sent + chunk.len() as u64;
                            ensure!(self.bytes.is_none_or(|all| bytes <= all), self.changed());
                            self.send_message(endpoint, Body::Data { offset: self.sent }, &chunk);
                            self.sent = bytes;
                        }
                        Ok(SourceEvent::Eof { bytes, digest }) => {
                            ensure!(self.bytes.is_none_or(|all| bytes == all), self.changed());
                            self.send_message(
                                endpoint,
                                Body::Finish { bytes, digest: digest.clone() },
                                b"",
                            );
                            self.state = State::Finishing(digest);
                            break;
                        }
                        Ok(SourceEvent::Error(error)) => {
                            return Err(error)
                                .with_context(|| format!("cannot read {}", self.name));
                        }
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => bail!("cannot read {}", self.name),
                    }
                }
            }
            State::AwaitingAccept | State::Finishing(_) => {}
        }
        if endpoint.pending() == 0 && self.last_sent.elapsed() >= KEEPALIVE_INTERVAL {
            self.send_message(endpoint, Body::KeepAlive, b"");
        }
        Ok(())
    }

    fn send_message(&mut self, endpoint: &mut Endpoint, body: Body, bytes: &[u8]) {
        endpoint.send(self.to, message::write(self.file_id, body, bytes));
        self.last_sent = Instant::now();
    }

    /// Tells the receiver that nothing comes of it, if it can be told soon: what is on its way to
    /// it need not come.
    fn fail(&mut self, endpoint: &mut Endpoint, reason: &str) {
        let is_there = endpoint.running_since(&self.last_seen) < RECENTLY;
        endpoint.abort();
        self.send_message(endpoint, Body::Failed { reason: reason.to_owned() }, b"");
        endpoint.linger(
            Duration::ZERO,
            if is_there { ABORT_TIMEOUT } else { ABORT_TIMEOUT_UNREACHABLE },
        );
    }

    /// The file is not what it was: half of one and half of another is nobody's.
    fn changed(&self) -> String {
        let bytes = self.bytes.unwrap_or_default();
        format!("{} had {bytes} bytesand was modified while it was sent", self.name)
    }

    fn show(&mut self) {
        match self.bytes {
            Some(bytes) => {
                let part = self.written as f64 / bytes.max(1) as f64;
                self.bar.show(part.min(1.0), &self.name);
            }
            None => {
                let what = || format!("{}bytes of {}", readable(self.written as f64), self.name);
                self.bar.show_count(what);
            }
        }
    }

    /// Why it has waited long enough.
    fn timeout_error(&self, endpoint: &Endpoint) -> anyhow::Error {
        let waited = endpoint.running_since(&self.last_seen).as_secs_f64();
        let diagnosis = endpoint.diagnose(&self.last_seen).unwrap_or_else(|| {
            let to = self.to.0;
            let slots =
                endpoint.counters().endpoint.slots_sent - self.last_seen.endpoint.slots_sent;
            // Nothing is heard any more by whoever began first.
            let was_heard = matches!(self.state, State::Sending | State::Finishing(_));
            let other = match was_heard || self.foreign_messages > 0 {
                true => format!(", or does another process use id {}", endpoint.process()),
                false => String::new(),
            };
            format!(
                "process {to} does not answer, though {} and {slots} packets were sent to it: does \
                 `onepipe transfer receive --process {to}` run there{other}?",
                endpoint.arbiter()
            )
        });
        anyhow::anyhow!("gave up after {waited:.1} s ({}): {diagnosis}", endpoint.name())
    }
}
