//! Runs the program and inspects what it leaves behind.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Reached only if the test hangs.
const HANG: Duration = Duration::from_secs(120);
/// Signal number of SIGINT.
const SIGINT: u32 = 2;
/// Environment variable by which descendants of a program are found.
const TEST_MARK: &str = "ONEPIPE_TEST_MARK";

/// Environment variable with which tests that need a missing program skip themselves.
const NO_INSTALL: &str = "ONEPIPE_NO_INSTALL";

/// Serialises tests that keep all cores busy.
pub fn exclusive() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a name that no other test uses.
pub fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns whether a program is installed.
///
/// # Panics
/// If not, unless tests may skip themselves.
pub fn has(program: &str, package: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    let is_there = version.is_ok_and(|status| status.success());
    let may_skip = std::env::var_os(NO_INSTALL).is_some();
    assert!(is_there || may_skip, "{program} is missing: apt-get install --yes {package}");
    if !is_there {
        eprintln!("SKIPPED: {package} is not installed");
    }
    is_there
}

/// Returns the program with these arguments.
pub fn onepipe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onepipe"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn output(arguments: &[&str]) -> Output {
    onepipe(arguments).output().expect("the program starts")
}

/// Parses the last line of standard output as JSON.
pub fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last:?}\n{errors}"))
}

/// Returns the standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for a condition; fails only after a hang.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Waits for a value, and returns it; fails only after a hang.
pub fn wait_for<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + HANG;
    loop {
        if let Some(value) = get() {
            return value;
        }
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines that a program prints to one pipe.
struct Lines(Receiver<String>);

impl Lines {
    /// Starts a thread that reads the pipe, so that waiting for a line has a limit.
    fn read(pipe: impl Read + Send + 'static) -> Self {
        let (lines_tx, lines_rx) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            // The test may have ended before the program.
            lines.map(|line| lines_tx.send(line)).take_while(Result::is_ok).for_each(drop);
        });
        Self(lines_rx)
    }

    /// Returns the next line, empty at the end of the output; `None` if there is none in time.
    fn next_within(&self, limit: Duration) -> Option<String> {
        match self.0.recv_timeout(limit) {
            Ok(line) => Some(line.trim_end().to_string()),
            Err(RecvTimeoutError::Disconnected) => Some(String::new()),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }

    /// Returns the next line, empty at the end of the output; fails only after a hang.
    fn next(&self, of: &str) -> String {
        self.next_unless_ended(of).unwrap_or_default()
    }

    /// Returns the next line, `None` at the end of the output; fails only after a hang.
    fn next_unless_ended(&self, of: &str) -> Option<String> {
        match self.0.recv_timeout(HANG) {
            Ok(line) => Some(line.trim_end().to_string()),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("timed out: a line of {of}"),
        }
    }
}

/// A program in the background, killed on drop.
pub struct Running {
    pub child: Child,
    stdout: Lines,
    stderr: Lines,
    /// Whether the test reads standard error.
    is_stderr_read: bool,
    mark: String,
}

impl Running {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts it. If it ends, a test that fails for want of a line shows its standard error.
    pub fn start(command: &mut Command) -> Self {
        Self::begin(command, false)
    }

    /// Starts it, and closes its standard error, as if a parent that reads it were killed.
    pub fn start_without_stderr(command: &mut Command) -> Self {
        Self::spawn(command, false, |_closed| Lines::read(std::io::empty()))
    }

    /// Starts it, and lets the test read its standard error.
    pub fn start_with_stderr(command: &mut Command) -> Self {
        Self::begin(command, true)
    }

    fn begin(command: &mut Command, is_stderr_read: bool) -> Self {
        Self::spawn(command, is_stderr_read, Lines::read)
    }

    fn spawn(
        command: &mut Command,
        is_stderr_read: bool,
        read_stderr: impl FnOnce(ChildStderr) -> Lines,
    ) -> Self {
        let mark = unique("mark");
        let mut child = command
            .env(TEST_MARK, &mark)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = Lines::read(child.stdout.take().expect("its output is piped"));
        let stderr = read_stderr(child.stderr.take().expect("its errors are piped"));
        Self { child, stdout, stderr, is_stderr_read, mark }
    }

    /// Returns the next line of its standard output, empty at the end.
    pub fn line(&mut self) -> String {
        let line = self.stdout.next_unless_ended("standard output");
        line.unwrap_or_else(|| {
            self.show_end();
            String::new()
        })
    }

    /// Prints how it has ended, which the test runner shows if the test fails.
    fn show_end(&mut self) {
        if !self.is_stderr_read {
            let status = self.child.wait().expect("own child");
            // Its descendants may have its standard error for longer.
            let limit = Duration::from_secs(1);
            let lines = std::iter::from_fn(|| self.stderr.0.recv_timeout(limit).ok());
            let lines: Vec<String> = lines.collect();
            eprintln!("the program has ended ({status}): {}", lines.join("\n"));
        }
    }

    /// Returns the next line of its standard output, if there is one in time.
    pub fn line_within(&mut self, limit: Duration) -> Option<String> {
        self.stdout.next_within(limit)
    }

    /// Returns the remaining lines of its standard output, once it has ended.
    pub fn remaining_lines(&mut self) -> Vec<String> {
        self.stdout.0.iter().collect()
    }

    /// Returns the next line of its standard error.
    pub fn stderr_line(&mut self) -> String {
        self.stderr.next("standard error")
    }

    /// Returns the next line of its standard error, if there is one in time.
    pub fn stderr_line_within(&mut self, limit: Duration) -> Option<String> {
        self.stderr.next_within(limit)
    }

    /// Returns the remaining lines of its standard error, once it has ended.
    pub fn remaining_stderr(&mut self) -> String {
        let lines = std::iter::repeat_with(|| self.stderr_line());
        lines.take_while(|line| !line.is_empty()).collect()
    }

    /// Sends it a signal by name.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(status.success());
    }

    /// Waits until it has installed a handler for SIGINT.
    pub fn wait_for_signal_handler(&self) {
        let path = format!("/proc/{}/status", self.child.id());
        wait_until("it listens to signals", || {
            let status = std::fs::read_to_string(&path).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            caught.is_some_and(|mask| mask & 1 << (SIGINT - 1) != 0)
        });
    }

    /// Waits until it has ended. Returns its exit status.
    pub fn status(&mut self) -> Option<i32> {
        wait_until("the program ends", || self.child.try_wait().expect("own child").is_some());
        self.child.wait().expect("it has ended").code()
    }

    /// Returns its descendants that run this subcommand.
    pub fn descendants_named(&self, command: &str) -> Vec<String> {
        let mut all = self.descendants();
        all.retain(|path| {
            let line = std::fs::read(format!("{path}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(command.as_bytes())
        });
        all
    }

    /// Returns the processes started by it or by its descendants that still exist.
    pub fn descendants(&self) -> Vec<String> {
        let wanted = format!("{TEST_MARK}={}", self.mark);
        let processes = std::fs::read_dir("/proc").expect("there is /proc").flatten();
        let paths = processes.map(|process| process.path());
        let found = paths.filter(|path| {
            let environment = std::fs::read(path.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        });
        found.map(|path| path.display().to_string()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the files in shared memory whose names end with `end`.
pub fn segments(end: &str) -> Vec<String> {
    let files = std::fs::read_dir("/dev/shm").expect("there is /dev/shm").flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(end)).collect()
}

/// Returns the first line of `program` on standard error that is no line of a panic.
pub fn own_line(program: &mut Running) -> String {
    // A panic with a backtrace prints fewer lines.
    let mut lines = (0..300).map(|_| program.stderr_line());
    let is_own = |line: &String| line.starts_with("onepipe: ") || line.contains(" onepipe::");
    lines.find(is_own).unwrap_or_default()
}

/// Changes `text` wherever it stands in a store's file.
pub fn damage(store: &Path, text: &[u8], change: impl Fn(&mut [u8])) {
    let mut bytes = std::fs::read(store).expect("it is written");
    let found: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!found.is_empty(), "the file has another layout");
    found.into_iter().for_each(|at| change(&mut bytes[at..at + text.len()]));
    std::fs::write(store, bytes).expect("write");
}
