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
use super::counters::Counters;
use super::endpoint::Endpoint;
use super::message::{self, Body};
use super::report::SentFile;
use crate::progress::Progress;
use crate::units::readable;

/// Flow-control window: maximum bytes that were sent and are not yet written by the receiver.
pub const WINDOW_BYTES: u64 = 8 << 20;
/// Sending time of a chunk, in ns: short enough that concurrent senders alternate and the receiver
/// gets messages often.
const CHUNK_NS: u64 = 50_000_000;
/// Approximate payload of a timeslot.
const SLOT_BYTES: u64 = 1_400;
const CHUNK_LEN_MIN: u64 = 64 << 10;
const CHUNK_LEN_MAX: u64 = 2 << 20;
/// Interval of keepalive messages of an idle sender.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for acknowledging the receiver's final message: some timeslots, and again as many for
/// retransmissions.
const ACK_LINGER: Duration = Duration::from_millis(50);
/// Time for notifying a reachable receiver of a failure.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
/// A receiver is reachable if a message from it was received within this time.
const RECENTLY: Duration = Duration::from_secs(1);
/// Time for notifying any other receiver of a failure.
const ABORT_TIMEOUT_UNREACHABLE: Duration = Duration::from_millis(300);

/// Events of the thread that reads the source.
enum SourceEvent {
    Read(Vec<u8>),
    Eof { bytes: u64, digest: String },
    Error(io::Error),
}

/// Sends a file or standard input.
pub fn run(arguments: &SendArguments) -> Result<ExitCode> {
    let SendArguments { file, to, process, options, .. } = arguments;
    options.check(*process);
    options.check_endpoint("--to", *to);
    if to == process {
        crate::usage_error(&format!("--to {to} is this process itself: choose another --process"));
    }
    let mut source = Source::open(arguments)?;
    let mut endpoint = Endpoint::open(options, *process)?;
    let chunk_len = (CHUNK_NS / options.slot * SLOT_BYTES).clamp(CHUNK_LEN_MIN, CHUNK_LEN_MAX);
    let source_events = source.read(chunk_len, endpoint.doorbell());
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
    // Removes the bar before anything is printed.
    session.bar = Progress::new();
    match outcome {
        Ok(Outcome::Complete(digest)) => {
            // Gives the receiver time to get the acknowledgement of its final message.
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

/// The input.
struct Source {
    name: String,
    /// Size in bytes, if known.
    bytes: Option<u64>,
    input: Option<Box<dyn Read + Send>>,
    is_file: bool,
}

impl Source {
    fn open(arguments: &SendArguments) -> Result<Self> {
        let file = &arguments.file;
        let valid_name = |name: &str| {
            let name = arguments.name.clone().unwrap_or_else(|| name.to_owned());
            crate::remote_text::check_name(&name).context("choose another name with --name")?;
            anyhow::Ok(name)
        };
        if super::is_stdio(file) {
            let input: Box<dyn Read + Send> = Box::new(stdin());
            return Ok(Self {
                name: valid_name("stdin")?,
                bytes: None,
                input: Some(input),
                is_file: false,
            });
        }
        let context = || format!("cannot read {}", file.display());
        let metadata = std::fs::metadata(file).with_context(context)?;
        if metadata.is_dir() {
            bail!(
                "cannot send {}: it is a directory: try `tar c {0} | onepipe transfer send -`",
                file.display()
            );
        }
        let name = valid_name(&file.file_name().unwrap_or_default().to_string_lossy())?;
        let input: Box<dyn Read + Send> = Box::new(File::open(file).with_context(context)?);
        let is_file = metadata.is_file();
        // Files that are generated on reading, as in /proc, have size zero.
        let bytes = Some(metadata.len()).filter(|bytes| is_file && *bytes > 0);
        Ok(Self { name, bytes, input: Some(input), is_file })
    }

    /// Starts a thread that reads the input, as reading may block.
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
            // Takes what is available: a pipe may be written slowly.
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
        // The thread ends when the receiver of its events is gone.
        let is_received = sender.send(event).is_ok();
        doorbell.ring();
        if is_last || !is_received {
            return;
        }
    }
}

/// States of a session.
enum State {
    /// The file is not offered yet.
    Opening,
    /// The file is offered.
    AwaitingAccept,
    /// Data is being sent.
    Sending,
    /// All data is sent; the digest of the file.
    Finishing(String),
}

enum Outcome {
    /// The receiver has the file; its digest.
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
    /// Bytes sent, and bytes written by the receiver.
    sent: u64,
    written: u64,
    /// Counters when the receiver accepted the file, and when it was last seen.
    began: Counters,
    last_seen: Counters,
    last_sent: Instant,
    /// Messages for other transfers: another process may use our id.
    foreign_messages: u64,
    bar: Progress,
}

impl SendSession {
    fn run(&mut self, endpoint: &mut Endpoint) -> Result<Outcome> {
        loop {
            if endpoint.is_stopped() {
                return Ok(Outcome::Interrupted);
            }
            while let Some((from, object)) = endpoint.next_received() {
                if let Some(outcome) = self.on_message(endpoint, from, &object)? {
                    return Ok(outcome);
                }
            }
            // Other frames of the receiver may be for another process with this id.
            let reports = endpoint.counters().transfer.reports_received;
            if reports > self.last_seen.transfer.reports_received {
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
            endpoint.check_admitted()?;
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
            // For an earlier sender with this id, or for a concurrent one.
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

    /// Sends what is due in the present state.
    fn send_due(&mut self, endpoint: &mut Endpoint) -> Result<()> {
        match self.state {
            State::Opening => {
                let open = Body::Open { name: self.name.clone(), bytes: self.bytes };
                self.send_message(endpoint, open, b"");
                self.state = State::AwaitingAccept;
            }
            State::Sending => {
                while self.sent - self.written < WINDOW_BYTES {
                    match self.source_events.try_recv() {
                        Ok(SourceEvent::Read(chunk)) => {
                            let bytes = self.sent + chunk.len() as u64;
                            ensure!(
                                self.bytes.is_none_or(|announced| bytes <= announced),
                                self.changed_text()
                            );
                            self.send_message(endpoint, Body::Data { offset: self.sent }, &chunk);
                            self.sent = bytes;
                        }
                        Ok(SourceEvent::Eof { bytes, digest }) => {
                            ensure!(
                                self.bytes.is_none_or(|announced| bytes == announced),
                                self.changed_text()
                            );
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

    /// Notifies the receiver of a failure, if that is possible soon, and cancels all pending data.
    fn fail(&mut self, endpoint: &mut Endpoint, reason: &str) {
        let is_reachable = endpoint.running_since(&self.last_seen) < RECENTLY;
        endpoint.abort();
        self.send_message(endpoint, Body::Failed { reason: reason.to_owned() }, b"");
        endpoint.linger(
            Duration::ZERO,
            if is_reachable { ABORT_TIMEOUT } else { ABORT_TIMEOUT_UNREACHABLE },
        );
    }

    /// Returns the error for a file whose size has changed: parts of two versions make no file.
    fn changed_text(&self) -> String {
        let bytes = self.bytes.unwrap_or_default();
        format!("{} had {bytes} bytes and was modified while it was sent", self.name)
    }

    fn show(&mut self) {
        match self.bytes {
            Some(bytes) => {
                let fraction = self.written as f64 / bytes.max(1) as f64;
                self.bar.show(fraction.min(1.0), &self.name);
            }
            None => {
                let text = || format!("{} bytes of {}", readable(self.written as f64), self.name);
                self.bar.show_count(text);
            }
        }
    }

    /// Returns the error for a receiver that timed out.
    fn timeout_error(&self, endpoint: &Endpoint) -> anyhow::Error {
        let waited = endpoint.running_since(&self.last_seen).as_secs_f64();
        let diagnosis = endpoint.diagnose(&self.last_seen).unwrap_or_else(|| {
            let to = self.to.0;
            let slots =
                endpoint.counters().endpoint.slots_sent - self.last_seen.endpoint.slots_sent;
            // With two senders of one id, the earlier one gets no more messages.
            let was_connected = matches!(self.state, State::Sending | State::Finishing(_));
            let duplicate_id = match was_connected || self.foreign_messages > 0 {
                true => format!(", or does another process use id {}", endpoint.process()),
                false => String::new(),
            };
            format!(
                "process {to} does not answer, though {} and {slots} packets were sent to it: does \
                 `onepipe transfer receive --process {to}` run there{duplicate_id}?",
                endpoint.describe_arbiter()
            )
        });
        anyhow::anyhow!("gave up after {waited:.1} s ({}): {diagnosis}", endpoint.describe())
    }
}
