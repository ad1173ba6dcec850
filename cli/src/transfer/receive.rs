//! `onepipe transfer receive`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use onepipe::ProcessId;
use tracing::warn;

use super::ReceiveArguments;
use super::counters::Counters;
use super::endpoint::Endpoint;
use super::message::{self, Body};
use super::report::ReceivedFile;
use super::send::WINDOW_BYTES;
use super::target::{Destination, Target, WriteEvent};
use crate::incoming_file::check_bytes;
use crate::progress::Progress;
use crate::units::readable;

/// Timeout of a sender from which nothing is received.
const SENDER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time before that timeout at which the sender is probed: an endpoint without pending objects does
/// not notice that the arbiter is gone.
const PROBE_BEFORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for notifying senders of a failure.
const ABORT_TIMEOUT: Duration = Duration::from_millis(300);
/// Time for a sender to receive the final message.
const DONE_TIMEOUT: Duration = Duration::from_secs(2);

/// A transfer: its sender, and the id that the sender has chosen.
type Key = (ProcessId, u64);

/// Receives a file, or file after file.
pub fn run(arguments: &ReceiveArguments) -> Result<ExitCode> {
    let ReceiveArguments { process, out, forever, options, .. } = arguments;
    options.check(*process);
    if *forever && super::is_stdio(out) {
        crate::usage_error("--forever needs a directory: standard output takes one file");
    }
    let destination = Destination::prepare(out, arguments.force, *forever)?;
    let mut endpoint = Endpoint::open(options, *process)?;
    let (events_tx, events_rx) = channel();
    print_status(arguments, &endpoint.describe())?;
    let mut session = ReceiveSession {
        arguments,
        destination,
        files: BTreeMap::new(),
        ended: BTreeSet::new(),
        events_tx,
        events_rx,
        unknown_senders: BTreeSet::new(),
        bar: Progress::new(),
    };
    match session.run(&mut endpoint) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            session.fail_all(&mut endpoint, "its receiver was interrupted");
            endpoint.linger(Duration::ZERO, ABORT_TIMEOUT);
            eprintln!("onepipe: interrupted");
            Ok(ExitCode::from(crate::interrupt::EXIT_STATUS))
        }
        Err(reason) => {
            session.fail_all(&mut endpoint, &format!("{reason:#}"));
            endpoint.linger(Duration::ZERO, ABORT_TIMEOUT);
            Err(reason)
        }
    }
}

/// Prints a status line to the output that has neither file contents nor JSON.
fn print_status(arguments: &ReceiveArguments, what: &str) -> Result<()> {
    let printed = match super::is_stdio(&arguments.out) || arguments.json {
        true => writeln!(stderr(), "{what}"),
        false => writeln!(stdout(), "{what}"),
    };
    printed.context("cannot print")
}

/// A file that is being received.
struct Incoming {
    name: String,
    bytes: Option<u64>,
    target: Target,
    /// Offset of the next byte to be written, and chunks behind it by offset.
    next: u64,
    out_of_order: BTreeMap<u64, Vec<u8>>,
    out_of_order_bytes: u64,
    written: u64,
    /// Bytes written as of the last report to the sender.
    reported: u64,
    /// Size and digest of the file, once the sender has sent its end.
    trailer: Option<(u64, String)>,
    is_finishing: bool,
    /// Running time at which the sender was last seen, and whether it was probed since.
    last_seen: Duration,
    is_probed: bool,
    began: Counters,
}

struct ReceiveSession<'a> {
    arguments: &'a ReceiveArguments,
    destination: Destination,
    files: BTreeMap<Key, Incoming>,
    /// Transfers that have completed or failed.
    ended: BTreeSet<Key>,
    events_tx: Sender<(Key, WriteEvent)>,
    events_rx: Receiver<(Key, WriteEvent)>,
    unknown_senders: BTreeSet<ProcessId>,
    bar: Progress,
}

impl ReceiveSession<'_> {
    /// Runs the session. Returns whether it is done, and not interrupted.
    fn run(&mut self, endpoint: &mut Endpoint) -> Result<bool> {
        let began = endpoint.counters();
        let mut is_ready = false;
        loop {
            if endpoint.is_stopped() {
                return Ok(false);
            }
            if !is_ready && endpoint.is_served() {
                is_ready = true;
                print_status(self.arguments, &format!("ready: {}", endpoint.describe_arbiter()))?;
            }
            let is_over = endpoint.has_no_matching_arbiter()
                || endpoint.running_since(&began) >= endpoint.timeout();
            if !is_ready && is_over {
                let (waited, name) =
                    (endpoint.running_since(&began).as_secs_f64(), endpoint.describe());
                let diagnosis =
                    endpoint.diagnose(&began).unwrap_or_else(|| "no response".to_owned());
                bail!("gave up after {waited:.1} s ({name}): {diagnosis}");
            }
            while let Some((from, object)) = endpoint.next_received() {
                self.on_message(endpoint, from, &object)?;
            }
            while let Ok((key, event)) = self.events_rx.try_recv() {
                if self.on_write_event(endpoint, key, event)? && !self.arguments.forever {
                    return Ok(true);
                }
            }
            self.expire(endpoint);
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
    ) -> Result<()> {
        let (message, data_at) = match message::read(object) {
            Ok(read) => read,
            Err(reason) => {
                if self.unknown_senders.insert(from) {
                    let from = from.0;
                    warn!("process {from} sent a malformed message: {reason:#}");
                }
                return Ok(());
            }
        };
        let key = (from, message.file);
        let bytes = &object[data_at..];
        match message.body {
            Body::Open { name, bytes } => {
                if let Err(reason) = self.on_open(endpoint, key, name, bytes) {
                    let reason = format!("{reason:#}");
                    warn!("process {}: {reason}", from.0);
                    self.reply(endpoint, key, Body::Failed { reason });
                    ensure!(
                        self.arguments.forever || !self.files.is_empty(),
                        "nothing was received"
                    );
                }
            }
            Body::Data { .. } | Body::Finish { .. } | Body::KeepAlive
                if !self.files.contains_key(&key) =>
            {
                if !self.ended.contains(&key) {
                    let own = self.arguments.process;
                    let reason = format!(
                        "unknown transfer: this receiver was restarted, or another process uses id \
                         {own}"
                    );
                    self.reply(endpoint, key, Body::Failed { reason });
                }
            }
            Body::Data { offset } => {
                if let Err(reason) = self.on_data(key, endpoint.running(), (offset, bytes)) {
                    self.fail(endpoint, key, &format!("{reason:#}"));
                }
            }
            Body::Finish { bytes, digest } => {
                let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
                match file.bytes.filter(|announced| *announced != bytes) {
                    Some(announced) => {
                        let reason = format!("{bytes} of {announced} bytes were received");
                        self.fail(endpoint, key, &reason);
                    }
                    None => {
                        file.trailer = Some((bytes, digest));
                        file.flush();
                    }
                }
            }
            Body::KeepAlive => {
                if let Some(file) = self.files.get_mut(&key) {
                    file.touch(endpoint.running());
                }
            }
            Body::Failed { reason } => {
                if self.files.remove(&key).is_some() {
                    self.ended.insert(key);
                    let from = from.0;
                    warn!("process {from} aborted its file: {reason}");
                }
            }
            // Messages of a receiver: two receivers are talking to each other.
            Body::Accept | Body::Written { .. } | Body::Complete => {}
        }
        Ok(())
    }

    fn on_open(
        &mut self,
        endpoint: &mut Endpoint,
        key: Key,
        name: String,
        bytes: Option<u64>,
    ) -> Result<()> {
        let ReceiveArguments { force, forever, max_bytes, .. } = self.arguments;
        // A process sends one file at a time, so a previous transfer is dead.
        let previous = self.files.keys().copied().filter(|(from, _)| *from == key.0);
        for transfer in previous.collect::<Vec<_>>() {
            let from = key.0.0;
            let reason =
                format!("process {from} started another file: does another process use id {from}?");
            self.fail(endpoint, transfer, &reason);
        }
        if !forever && let Some((busy, _)) = self.files.keys().next() {
            bail!("busy with a file from process {} (--forever accepts several)", busy.0);
        }
        check_bytes(bytes.unwrap_or(0), max_bytes.map(|bytes_max| bytes_max as u64))?;
        let path = self.destination.path(&name)?;
        if self.files.values().any(|file| file.target.path == path) {
            bail!("{} is already being received from another process", path.display());
        }
        let events_tx = self.events_tx.clone();
        let notify = move |event| {
            // The session is over when the receiver is gone.
            let _ = events_tx.send((key, event));
        };
        let options = (*force, self.destination.may_be_device());
        let target = Target::open(path, options, endpoint.doorbell(), notify)?;
        let file = Incoming {
            name,
            bytes,
            target,
            next: 0,
            out_of_order: BTreeMap::new(),
            out_of_order_bytes: 0,
            written: 0,
            reported: 0,
            trailer: None,
            is_finishing: false,
            last_seen: endpoint.running(),
            is_probed: false,
            began: endpoint.counters(),
        };
        self.files.insert(key, file);
        self.bar = Progress::new();
        self.reply(endpoint, key, Body::Accept);
        Ok(())
    }

    fn on_data(&mut self, key: Key, now: Duration, (offset, bytes): (u64, &[u8])) -> Result<()> {
        let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
        file.touch(now);
        let count = bytes.len() as u64;
        let end = offset.saturating_add(count);
        let is_within = file.bytes.is_none_or(|announced| end <= announced);
        ensure!(is_within, "received more bytes than announced");
        // A pipe announces no number of bytes.
        check_bytes(end, self.arguments.max_bytes.map(|bytes_max| bytes_max as u64))?;
        let is_new = offset >= file.next && !file.out_of_order.contains_key(&offset);
        let unwritten = (file.next - file.written).saturating_add(file.out_of_order_bytes);
        // A chunk may begin within the window and end behind it.
        ensure!(
            is_new && unwritten <= WINDOW_BYTES,
            "bytes at offset {offset} are out of sequence"
        );
        file.out_of_order.insert(offset, bytes.to_vec());
        file.out_of_order_bytes += count;
        file.flush();
        Ok(())
    }

    /// Handles an event of the writer. Returns whether the file is complete and its sender
    /// notified.
    fn on_write_event(
        &mut self,
        endpoint: &mut Endpoint,
        key: Key,
        event: WriteEvent,
    ) -> Result<bool> {
        match event {
            WriteEvent::Bytes(bytes) => {
                let Some(file) = self.files.get_mut(&key) else { return Ok(false) };
                file.written = bytes;
                // The sender has a window; progress is reported for each eighth of it.
                if bytes - file.reported >= WINDOW_BYTES / 8 || file.out_of_order.is_empty() {
                    file.reported = bytes;
                    self.reply(endpoint, key, Body::Written { bytes });
                }
                Ok(false)
            }
            WriteEvent::Complete => {
                let Some(file) = self.files.remove(&key) else { return Ok(false) };
                self.ended.insert(key);
                self.reply(endpoint, key, Body::Complete);
                let (bytes, digest) = file.trailer.unwrap_or_default();
                let uses_stderr = super::is_stdio(&self.arguments.out);
                let path = match uses_stderr {
                    true => file.name,
                    false => file.target.path.display().to_string(),
                };
                self.bar = Progress::new();
                let (process, from) = (self.arguments.process, key.0.0);
                let (digest, began) = (digest.as_str(), file.began);
                let until = endpoint.counters();
                if !self.arguments.forever {
                    endpoint.linger(Duration::ZERO, DONE_TIMEOUT);
                }
                ReceivedFile {
                    path,
                    bytes,
                    digest,
                    from,
                    process,
                    endpoint,
                    began,
                    until,
                    uses_stderr,
                }
                .print(self.arguments.json)?;
                Ok(true)
            }
            WriteEvent::Failed(reason) => {
                ensure!(self.arguments.forever, "{reason}");
                self.fail(endpoint, key, &reason);
                Ok(false)
            }
        }
    }

    fn reply(&self, endpoint: &mut Endpoint, (to, file): Key, body: Body) {
        endpoint.send(to, message::write(file, body, b""));
    }

    /// Fails a transfer, and notifies its sender.
    fn fail(&mut self, endpoint: &mut Endpoint, key: Key, reason: &str) {
        if self.files.remove(&key).is_some() {
            self.ended.insert(key);
            warn!("process {}: {reason}", key.0.0);
            self.reply(endpoint, key, Body::Failed { reason: reason.to_owned() });
        }
    }

    fn fail_all(&mut self, endpoint: &mut Endpoint, reason: &str) {
        for key in std::mem::take(&mut self.files).into_keys() {
            self.reply(endpoint, key, Body::Failed { reason: reason.to_owned() });
        }
    }

    /// Probes senders that are idle, and fails transfers whose sender timed out.
    fn expire(&mut self, endpoint: &mut Endpoint) {
        // A file that is being finished waits for the disk, not for its sender.
        let idle = |file: &Incoming| match file.is_finishing {
            true => Duration::ZERO,
            false => endpoint.running() - file.last_seen,
        };
        let most_idle = self.files.iter_mut().max_by_key(|(_, file)| idle(file));
        let Some((key, file)) = most_idle else { return };
        let (key, idle) = (*key, idle(file));
        if idle >= SENDER_TIMEOUT {
            let reason =
                endpoint.diagnose(&file.began).unwrap_or_else(|| "it may have failed".to_owned());
            let idle = SENDER_TIMEOUT.as_secs();
            self.fail(endpoint, key, &format!("no message for {idle} s: {reason}"));
        } else if idle >= SENDER_TIMEOUT - PROBE_BEFORE_TIMEOUT && !file.is_probed {
            file.is_probed = true;
            let bytes = file.reported;
            self.reply(endpoint, key, Body::Written { bytes });
        }
    }

    fn show(&mut self) {
        let Some(file) = self.files.values().next() else { return };
        let name = match self.files.len() {
            1 => file.name.clone(),
            count => format!("{}, and {} more", file.name, count - 1),
        };
        match file.bytes {
            Some(bytes) => {
                let fraction = file.written as f64 / bytes.max(1) as f64;
                self.bar.show(fraction.min(1.0), &name);
            }
            None => {
                let text = || format!("{} bytes of {name}", readable(file.written as f64));
                self.bar.show_count(text);
            }
        }
    }
}

impl Incoming {
    /// Records that a message of the sender was received.
    fn touch(&mut self, now: Duration) {
        (self.last_seen, self.is_probed) = (now, false);
    }

    /// Writes the data that is in order, and finishes the file if that was all.
    fn flush(&mut self) {
        while let Some(bytes) = self.out_of_order.remove(&self.next) {
            self.out_of_order_bytes -= bytes.len() as u64;
            self.next += bytes.len() as u64;
            self.target.write(bytes);
        }
        if let Some((bytes, digest)) = &self.trailer
            && *bytes == self.next
            && !self.is_finishing
        {
            self.is_finishing = true;
            self.target.finish(digest.clone());
        }
    }
}
