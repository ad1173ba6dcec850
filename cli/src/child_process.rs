//! Child processes: this program, started again, and killed on drop.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Maximum bytes kept of a process's standard error.
const STDERR_LEN_MAX: u64 = 4096;
/// Time within which a process that fails by itself exits.
const FAIL_TIMEOUT: Duration = Duration::from_millis(500);

/// A child process, with pipes to its standard input and output.
pub struct ChildProcess {
    pub name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stderr_reader: Option<JoinHandle<String>>,
}

impl ChildProcess {
    /// Starts this program with `arguments`.
    pub fn start(name: String, arguments: &[&str]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = Command::new(&program);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C on the terminal goes to the parent only, which ends the others in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", program.display()))?;
        let stderr_reader = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let (mut text, mut stderr) = (String::new(), stderr.take(STDERR_LEN_MAX));
                // An unreadable error output is empty.
                let _ = stderr.read_to_string(&mut text);
                let _ = std::io::copy(stderr.get_mut(), &mut std::io::sink());
                text
            })
        });
        Ok(Self { name, stdin: child.stdin.take(), child, stderr_reader })
    }

    /// Returns the lines of its standard output; can be called once.
    pub fn lines(&mut self) -> Result<Lines<BufReader<ChildStdout>>> {
        let output = self.child.stdout.take();
        Ok(BufReader::new(output.with_context(|| format!("{} has no output", self.name))?).lines())
    }

    /// Waits for a line that begins with `word` and returns it. A thread calls `on_line` for each
    /// later line, so that the process never blocks on its output.
    pub fn wait_for_line(
        &mut self,
        word: &str,
        on_line: impl FnMut(String) + Send + 'static,
    ) -> Result<String> {
        let mut lines = self.lines()?;
        loop {
            match lines.next() {
                Some(Ok(line)) if line.starts_with(word) => {
                    std::thread::spawn(move || lines.map_while(Result::ok).for_each(on_line));
                    return Ok(line);
                }
                Some(Ok(_)) => {}
                _ => {
                    let reason = self.failure_reason();
                    bail!("{} did not start: {reason}", self.name);
                }
            }
        }
    }

    /// Writes a line of JSON to its standard input; ignored if the process has exited.
    pub fn write_line(&mut self, what: &impl serde::Serialize) {
        let Some(stdin) = &mut self.stdin else { return };
        let written = serde_json::to_vec(what).map_err(std::io::Error::other);
        let written = written.and_then(|mut line| {
            line.push(b'\n');
            stdin.write_all(&line)
        });
        if written.is_err() {
            self.stdin = None;
        }
    }

    /// Ends the process. Returns its error output, or its exit status if that is empty.
    pub fn failure_reason(&mut self) -> String {
        let status = self.wait_exit(Instant::now() + FAIL_TIMEOUT);
        let text =
            self.stderr_reader.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        match (text.trim().trim_start_matches("onepipe: "), status) {
            ("", Some(status)) => format!("exited without an error message ({status})"),
            ("", None) => "did not exit".to_string(),
            (text, _) => text.to_string(),
        }
    }

    /// Kills the process with SIGKILL. Returns its pid.
    pub fn kill(&mut self) -> Result<u32> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(self.child.id())
    }

    /// Closes its standard input and waits. Returns `None` if it had to be killed at the deadline.
    pub fn wait_exit(&mut self, deadline: Instant) -> Option<ExitStatus> {
        self.stdin = None;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => {
                    let _ = self.kill();
                    return None;
                }
            }
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Fails when the process has exited already.
        let _ = self.kill();
    }
}

/// File of a store whose decisions do not outlive this process, removed on drop.
pub struct TemporaryStore(PathBuf);

impl TemporaryStore {
    /// Names the file, in memory if possible. `onepipe clean` knows `prefix`.
    pub fn new(prefix: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        Self(folder.join(format!("{prefix}{}.redb", std::process::id())))
    }

    pub fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for TemporaryStore {
    fn drop(&mut self) {
        // The file does not exist if nothing was decided.
        let _ = std::fs::remove_file(&self.0);
    }
}
