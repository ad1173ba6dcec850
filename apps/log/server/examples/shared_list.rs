//! A list of lines that several processes share: each is a replica of a log, and appends the lines
//! that it reads. Start in three terminals:
//!
//! ```sh
//! cargo run -p onepipe-log-server --example shared_list -- /tmp/list 0
//! cargo run -p onepipe-log-server --example shared_list -- /tmp/list 1
//! cargo run -p onepipe-log-server --example shared_list -- /tmp/list 2
//! ```
//!
//! A line that was committed is in the lists of all processes, in one order, whichever of them are
//! killed and started again. The line `?` prints the own list.

use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onepipe::{Pipe, ProcessId};
use onepipe_log::{ClientOptions, Committed, Entry, Part, PartRequest, ReplicaOptions, State};
use onepipe_log_server::{AppendFailure, Node, NodeOptions, Own};

/// Number of replicas.
const REPLICAS: u32 = 3;

/// The lines, which the main thread prints.
type Lines = Arc<Mutex<Vec<String>>>;

/// The list as the state of a log.
struct List {
    path: PathBuf,
    lines: Lines,
    /// Number of lines in the file.
    durable_len: u64,
    /// Lines of another process that are being installed.
    incoming: Vec<String>,
    failure: Option<String>,
}

impl List {
    fn open(path: &Path) -> io::Result<Self> {
        let lines: Vec<String> = match fs::read_to_string(path) {
            Ok(text) => text.lines().map(str::to_owned).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let (durable_len, path) = (lines.len() as u64, path.to_owned());
        let lines = Arc::new(Mutex::new(lines));
        Ok(Self { path, lines, durable_len, incoming: Vec::new(), failure: None })
    }

    fn with_lines<T>(&self, change: impl FnOnce(&mut Vec<String>) -> T) -> T {
        change(&mut self.lines.lock().expect("no thread panics while it holds the lock"))
    }

    /// Replaces the file as a whole: a crash leaves the old one or the new one.
    fn save(&self) -> io::Result<u64> {
        let lines = self.with_lines(|lines| lines.clone());
        let unfinished = self.path.with_extension("new");
        let mut file = File::create(&unfinished)?;
        for line in &lines {
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(lines.len() as u64)
    }
}

impl State for List {
    fn apply(&mut self, _: u64, entry: &Entry) {
        let line = String::from_utf8_lossy(&entry.payload).into_owned();
        self.with_lines(|lines| lines.push(line));
    }

    fn begin_sync(&mut self) {
        // A state that is not so small does this in another thread.
        match self.save() {
            Ok(len) => self.durable_len = len,
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    fn durable_len(&self) -> u64 {
        self.durable_len
    }

    fn read_part(&mut self, request: &PartRequest) -> Option<Part> {
        let len = self.with_lines(|lines| lines.len() as u64);
        // A list only grows, so all parts are of the moment of the first one.
        let end = request.image.unwrap_or(len);
        let from = request.since + request.cursor;
        let mut bytes = Vec::new();
        let mut next = from;
        self.with_lines(|lines| {
            while next < end && (next == from || bytes.len() < request.bytes_max / 2) {
                bytes.extend(lines.get(next as usize).map_or("", String::as_str).bytes());
                bytes.push(b'\n');
                next += 1;
            }
        });
        let next = (next < end).then(|| next - request.since);
        Some(Part { len, next, bytes })
    }

    fn install_part(&mut self, since: u64, cursor: u64, bytes: &[u8]) {
        if cursor == 0 {
            self.incoming = self.with_lines(|lines| lines[..since as usize].to_vec());
        }
        let text = String::from_utf8_lossy(bytes);
        self.incoming.extend(text.lines().map(str::to_owned));
    }

    fn finish_install(&mut self, len: u64) {
        let incoming = std::mem::take(&mut self.incoming);
        assert_eq!(incoming.len() as u64, len, "parts are whole");
        self.with_lines(|lines| *lines = incoming);
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(process)) = (arguments.next(), arguments.next()) else {
        return Err("usage: shared_list DIRECTORY PROCESS".into());
    };
    let (directory, process) = (PathBuf::from(directory), process.parse::<u32>()?);
    fs::create_dir_all(&directory)?;
    let list = List::open(&directory.join(format!("list-{process}")))?;
    let lines = Arc::clone(&list.lines);
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let builder = Pipe::builder().fabric(name).process(process).processes(REPLICAS);
    let options = NodeOptions {
        replicas: (0..REPLICAS).map(ProcessId).collect(),
        client: ClientOptions::default(),
        replica: ReplicaOptions::default(),
    };
    let own = Own { directory: Some(directory), state: list };
    let node = Node::start(ProcessId(process), builder, &options, own)?;
    let handle = node.handle();
    while !handle.stats().is_current {
        if let Some(reason) = handle.ended() {
            return Err(format!("the replica has ended: {reason}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("serving");
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line == "?" {
            let lines = lines.lock().expect("no thread panics while it holds the lock").clone();
            lines.iter().for_each(|line| println!("line {line}"));
            let stats = handle.stats();
            println!(
                "end of {} lines, trimmed {}, installed {}",
                lines.len(),
                stats.base_len,
                stats.installed
            );
            continue;
        }
        let text = line.clone();
        let on_committed = move |result: Result<Committed, AppendFailure>| match result {
            Ok(committed) => println!("committed {} {text}", committed.position.index),
            Err(error) => println!("failed {text}: {error}"),
        };
        handle.append(line.into_bytes(), Box::new(on_committed));
    }
    Ok(())
}
