//! A running program: its input, the lines that it prints, and signals to it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::stopwatch::Stopwatch;

/// A line that a program has printed.
pub enum Line {
    Out(String),
    Error(String),
}

/// A program that runs on a host. Dropping kills the program.
pub struct Program {
    child: Child,
    input: Option<Sender<String>>,
    lines: Receiver<Line>,
    /// The threads that read what it prints.
    readers: [JoinHandle<()>; 2],
}

impl Program {
    /// Starts `command`; everything that the program prints is also appended to a log in `logs`.
    pub fn start(name: &str, mut command: Command, logs: &Path) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let log = logs.join(name);
        let open = || File::options().create(true).append(true).open(&log);
        let open = || open().with_context(|| format!("cannot write {}", log.display()));
        let (sender, lines) = channel();
        let out = child.stdout.take().context("the output is piped")?;
        let error = child.stderr.take().context("the errors are piped")?;
        let readers = [
            forward(out, open()?, sender.clone(), Line::Out),
            forward(error, open()?, sender, Line::Error),
        ];
        let mut stdin = child.stdin.take().context("the input is piped")?;
        let (input, inputs) = channel::<String>();
        // Writing blocks while the program is stopped.
        std::thread::spawn(move || {
            for line in inputs {
                if stdin.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input: Some(input), lines, readers })
    }

    /// Writes a line to the standard input of the program.
    pub fn write(&self, line: &str) {
        if let Some(input) = &self.input {
            // The thread that writes ends when the program has ended.
            let _ = input.send(format!("{line}\n"));
        }
    }

    /// Returns the next line that the program has printed.
    pub fn read(&self) -> Option<Line> {
        self.lines.try_recv().ok()
    }

    /// Returns whether [`Program::read`] will return no further lines than those of now.
    pub fn is_read(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // Fails only if the program has ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Returns the exit status if the program has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until the program has ended, for `limit` at most. Returns the exit status.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut watch = Stopwatch::start();
        loop {
            let status = self.exit_status();
            if status.is_some() || watch.elapsed() > limit {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn forward(
    from: impl Read + Send + 'static,
    mut log: File,
    lines: Sender<Line>,
    kind: fn(String) -> Line,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // A log that cannot be written does not change the verdict.
            let _ = writeln!(log, "{line}");
            if lines.send(kind(line)).is_err() {
                return;
            }
        }
    })
}

impl Drop for Program {
    fn drop(&mut self) {
        // A stopped program dies of the signal as well.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
