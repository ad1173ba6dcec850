//! `onepipe transfer receive`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use onepipe::ProcessId;

use super::ReceiveArguments;
use super::end::{Counted, End};
use super::report::Came;
use super::send::WINDOW_BYTES;
use super::talk::{self, Word};
use super::target::{Out, Target, Wrote};
use crate::number::readable;
use crate::progress::Progress;

/// A sender that says nothing for so long is none;
const SILENCE: Duration = Duration::from_secs(30);
/// so long before that it is told something: whoever wants nothing does not see whether there is an
/// arbiter.
const PROBE: Duration = Duration::from_secs(5);
/// So long is tried to tell senders how it ended.
const FAREWELL: Duration = Duration::from_millis(300);
/// Whoever was told that its file is here has heard it within this, or never hears it.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A file: its sender, and its number among those of the sender.
type Key = (ProcessId, u64);

/// Receives a file, or file after file.
pub fn run(arguments: &ReceiveArguments) -> Result<ExitCode> {
    let ReceiveArguments { process, out, forever, place, .. } = arguments;
    place.check(*process);
    if *forever && super::is_standard(out) {
        crate::refuse("--forever needs a folder: standard output has room for one file");
    }
    let target = Out::prepare(out, arguments.force, *forever)?;
    let mut end = End::open(place, *process)?;
    let (teller, told) = channel();
    say(arguments, &end.name())?;
    let mut receiving = Receiving {
        arguments,
        out: target,
        files: BTreeMap::new(),
        ended: BTreeSet::new(),
        teller,
        told,
        strangers: BTreeSet::new(),
        bar: Progress::new(),
    };
    match receiving.run(&mut end) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            receiving.fail_all(&mut end, "its receiver was interrupted");
            end.linger(Duration::ZERO, FAREWELL);
            eprintln!("onepipe: interrupted");
            Ok(ExitCode::from(crate::interrupt::EXIT_STATUS))
        }
        Err(why) => {
            receiving.fail_all(&mut end, &format!("{why:#}"));
            end.linger(Duration::ZERO, FAREWELL);
            Err(why)
        }
    }
}

/// Says how it is, where neither bytes go nor what a program reads.
fn say(arguments: &ReceiveArguments, what: &str) -> Result<()> {
    let said = match super::is_standard(&arguments.out) || arguments.json {
        true => writeln!(stderr(), "{what}"),
        false => writeln!(stdout(), "{what}"),
    };
    said.context("cannot print")
}

/// A file that is coming.
struct Incoming {
    name: String,
    bytes: Option<u64>,
    target: Target,
    /// What was handed to be written, and what came out of turn, by its place.
    next: u64,
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: u64,
    written: u64,
    /// What was written when the sender was told last, and whether it has heard that.
    told: u64,
    end: Option<(u64, String)>,
    is_ending: bool,
    /// When something was heard of its sender, as [`End::lived`] counts, and whether that was asked
    /// for since.
    heard: Duration,
    is_probed: bool,
    began: Counted,
}

struct Receiving<'a> {
    arguments: &'a ReceiveArguments,
    out: Out,
    files: BTreeMap<Key, Incoming>,
    /// Files that have come, or never will.
    ended: BTreeSet<Key>,
    teller: Sender<(Key, Wrote)>,
    told: Receiver<(Key, Wrote)>,
    strangers: BTreeSet<ProcessId>,
    bar: Progress,
}

impl Receiving<'_> {
    /// Answers whether it is done, and not interrupted.
    fn run(&mut self, end: &mut End) -> Result<bool> {
        let began = end.counted();
        let mut is_ready = false;
        loop {
            if end.is_stopped() {
                return Ok(false);
            }
            if !is_ready && end.is_served() {
                is_ready = true;
                say(self.arguments, &format!("ready: {}", end.arbiter()))?;
            }
            let is_over = end.suits_nobody() || end.since(&began) >= end.patience();
            if !is_ready && is_over {
                let (waited, name) = (end.since(&began).as_secs_f64(), end.name());
                let trouble = end.trouble(&began).unwrap_or_else(|| "nobody answers".to_owned());
                bail!("gave up after {waited:.1} s ({name}): {trouble}");
            }
            while let Some((from, object)) = end.next() {
                self.hear(end, from, &object)?;
            }
            while let Ok((key, wrote)) = self.told.try_recv() {
                if self.on_wrote(end, key, wrote)? && !self.arguments.forever {
                    return Ok(true);
                }
            }
            self.expire(end);
            self.show();
            end.turn();
        }
    }

    fn hear(&mut self, end: &mut End, from: ProcessId, object: &[u8]) -> Result<()> {
        let (line, at) = match talk::read(object) {
            Ok(read) => read,
            Err(why) => {
                if self.strangers.insert(from) {
                    let from = from.0;
                    eprintln!("onepipe: process {from} sends what is no file: {why:#}");
                }
                return Ok(());
            }
        };
        let key = (from, line.file);
        let bytes = &object[at..];
        match line.word {
            Word::Begin { name, bytes } => {
                if let Err(why) = self.begin(end, key, name, bytes) {
                    let why = format!("{why:#}");
                    eprintln!("onepipe: process {}: {why}", from.0);
                    self.answer(end, key, Word::Failed { why });
                    ensure!(
                        self.arguments.forever || !self.files.is_empty(),
                        "nothing was received"
                    );
                }
            }
            Word::Chunk { .. } | Word::End { .. } | Word::Here
                if !self.files.contains_key(&key) =>
            {
                if !self.ended.contains(&key) {
                    let own = self.arguments.process;
                    let why = format!(
                        "it knows nothing of the file: it has begun anew, or another one is process \
                         {own}, too"
                    );
                    self.answer(end, key, Word::Failed { why });
                }
            }
            Word::Chunk { offset } => {
                if let Err(why) = self.chunk(key, end.lived(), (offset, bytes)) {
                    self.fail(end, key, &format!("{why:#}"));
                }
            }
            Word::End { bytes, digest } => {
                let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
                match file.bytes.filter(|announced| *announced != bytes) {
                    Some(announced) => {
                        let why = format!("{bytes} bytes came of {announced}");
                        self.fail(end, key, &why);
                    }
                    None => {
                        file.end = Some((bytes, digest));
                        file.go_on();
                    }
                }
            }
            Word::Here => {
                if let Some(file) = self.files.get_mut(&key) {
                    file.hear(end.lived());
                }
            }
            Word::Failed { why } => {
                if self.files.remove(&key).is_some() {
                    self.ended.insert(key);
                    let from = from.0;
                    eprintln!("onepipe: nothing comes of the file of process {from}: {why}");
                }
            }
            // A receiver's words: two of them talk past each other.
            Word::Ready | Word::Written { .. } | Word::Done => {}
        }
        Ok(())
    }

    fn begin(&mut self, end: &mut End, key: Key, name: String, bytes: Option<u64>) -> Result<()> {
        let ReceiveArguments { force, forever, .. } = self.arguments;
        // A process sends one file at a time: of a former one nothing comes any more.
        let of_it = self.files.keys().copied().filter(|(from, _)| *from == key.0);
        for former in of_it.collect::<Vec<_>>() {
            let from = key.0.0;
            let why = format!(
                "process {from} has begun with another file: is another one process {from}, too?"
            );
            self.fail(end, former, &why);
        }
        if !forever && let Some((busy, _)) = self.files.keys().next() {
            bail!("it receives one file, of process {} (--forever: of several at a time)", busy.0);
        }
        let path = self.out.path(&name)?;
        if self.files.values().any(|file| file.target.path == path) {
            bail!("{} is coming already, from another process", path.display());
        }
        let teller = self.teller.clone();
        let tell = move |wrote| {
            // When nobody listens it is over.
            let _ = teller.send((key, wrote));
        };
        let target = Target::open(path, *force, end.doorbell(), tell)?;
        let file = Incoming {
            name,
            bytes,
            target,
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            written: 0,
            told: 0,
            end: None,
            is_ending: false,
            heard: end.lived(),
            is_probed: false,
            began: end.counted(),
        };
        self.files.insert(key, file);
        self.bar = Progress::new();
        self.answer(end, key, Word::Ready);
        Ok(())
    }

    fn chunk(&mut self, key: Key, now: Duration, (offset, bytes): (u64, &[u8])) -> Result<()> {
        let Some(file) = self.files.get_mut(&key) else { return Ok(()) };
        file.hear(now);
        let count = bytes.len() as u64;
        let until = offset.saturating_add(count);
        let is_all = file.bytes.is_none_or(|announced| until <= announced);
        ensure!(is_all, "more bytes come than it was to have");
        let is_next = offset >= file.next && !file.early.contains_key(&offset);
        let waits = (file.next - file.written).saturating_add(file.early_bytes);
        // A chunk may begin within the window and end behind it.
        ensure!(is_next && waits <= WINDOW_BYTES, "bytes from {offset} on came out of turn");
        file.early.insert(offset, bytes.to_vec());
        file.early_bytes += count;
        file.go_on();
        Ok(())
    }

    /// Answers whether a file is there, and its sender was told.
    fn on_wrote(&mut self, end: &mut End, key: Key, wrote: Wrote) -> Result<bool> {
        match wrote {
            Wrote::Bytes(bytes) => {
                let Some(file) = self.files.get_mut(&key) else { return Ok(false) };
                file.written = bytes;
                // The sender has room for a window; it is told of each eighth.
                if bytes - file.told >= WINDOW_BYTES / 8 || file.early.is_empty() {
                    file.told = bytes;
                    self.answer(end, key, Word::Written { bytes });
                }
                Ok(false)
            }
            Wrote::Whole => {
                let Some(file) = self.files.remove(&key) else { return Ok(false) };
                self.ended.insert(key);
                self.answer(end, key, Word::Done);
                let (bytes, digest) = file.end.unwrap_or_default();
                let is_beside = super::is_standard(&self.arguments.out);
                let path = match is_beside {
                    true => file.name,
                    false => file.target.path.display().to_string(),
                };
                self.bar = Progress::new();
                let (process, from) = (self.arguments.process, key.0.0);
                let (digest, began) = (digest.as_str(), file.began);
                let until = end.counted();
                if !self.arguments.forever {
                    end.linger(Duration::ZERO, LAST_WORD);
                }
                Came { path, bytes, digest, from, process, end, began, until, is_beside }
                    .tell(self.arguments.json)?;
                Ok(true)
            }
            Wrote::Failed(why) => {
                ensure!(self.arguments.forever, "{why}");
                self.fail(end, key, &why);
                Ok(false)
            }
        }
    }

    fn answer(&self, end: &mut End, (to, file): Key, word: Word) {
        end.send(to, talk::write(file, word, b""));
    }

    /// Nothing comes of a file.
    fn fail(&mut self, end: &mut End, key: Key, why: &str) {
        if self.files.remove(&key).is_some() {
            self.ended.insert(key);
            eprintln!("onepipe: process {}: {why}", key.0.0);
            self.answer(end, key, Word::Failed { why: why.to_owned() });
        }
    }

    fn fail_all(&mut self, end: &mut End, why: &str) {
        for key in std::mem::take(&mut self.files).into_keys() {
            self.answer(end, key, Word::Failed { why: why.to_owned() });
        }
    }

    /// Nothing comes of what nothing has come of for long.
    fn expire(&mut self, end: &mut End) {
        let silence = |file: &Incoming| match file.is_ending {
            true => Duration::ZERO,
            false => end.lived() - file.heard,
        };
        let longest = self.files.iter_mut().max_by_key(|(_, file)| silence(file));
        let Some((key, file)) = longest else { return };
        let (key, silence) = (*key, silence(file));
        if silence >= SILENCE {
            let why = end.trouble(&file.began).unwrap_or_else(|| "it may be dead".to_owned());
            let silence = SILENCE.as_secs();
            self.fail(end, key, &format!("it has said nothing for {silence} s: {why}"));
        } else if silence >= SILENCE - PROBE && !file.is_probed {
            file.is_probed = true;
            let bytes = file.told;
            self.answer(end, key, Word::Written { bytes });
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
                let part = file.written as f64 / bytes.max(1) as f64;
                self.bar.show(part.min(1.0), &name);
            }
            None => {
                let what = || format!("{} bytes of {name}", readable(file.written as f64));
                self.bar.show_count(what);
            }
        }
    }
}

impl Incoming {
    /// Something was heard of its sender.
    fn hear(&mut self, now: Duration) {
        (self.heard, self.is_probed) = (now, false);
    }

    /// Hands on what is in turn, and ends it if that was all.
    fn go_on(&mut self) {
        while let Some(bytes) = self.early.remove(&self.next) {
            self.early_bytes -= bytes.len() as u64;
            self.next += bytes.len() as u64;
            self.target.write(bytes);
        }
        if let Some((bytes, digest)) = &self.end
            && *bytes == self.next
            && !self.is_ending
        {
            self.is_ending = true;
            self.target.finish(digest.clone());
        }
    }
}
