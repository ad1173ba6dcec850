//! Child processes of a demo, killed on drop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::messages::{FabricAddress, WorkerCommand, WorkerReport, WorkerSpec};

/// Time for a process to exit before it is killed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes kept of a process's standard error.
const STDERR_LEN_MAX: u64 = 4096;

/// Events of the child processes.
#[derive(Debug)]
pub enum ChildEvent {
    /// A worker sent a report.
    Report(usize, Box<WorkerReport>),
    /// A worker closed its standard output: it has exited.
    Exited(usize),
    /// The user interrupted the demo.
    Interrupted,
}

/// A child process, with pipes to its standard input and output.
pub(super) struct ChildProcess {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stderr_reader: Option<JoinHandle<String>>,
    has_ended: bool,
}

/// All processes of a demo.
pub struct Children {
    workers: Vec<ChildProcess>,
    switch: Option<ChildProcess>,
    controller: Option<ChildProcess>,
    /// The controller's store, removed in the end.
    store: Option<PathBuf>,
}

impl Children {
    pub fn new() -> Self {
        Self { workers: Vec::new(), switch: None, controller: None, store: None }
    }

    /// Starts the software switch as a process and waits until it listens.
    pub fn start_switch(
        &mut self,
        listen: &str,
        processes: u32,
        controllers: Option<&str>,
    ) -> Result<SocketAddr> {
        let processes = processes.to_string();
        let mut arguments = vec!["switch", "--listen", listen, "--exit-on-stdin-eof"];
        arguments.extend(["--processes", &processes]);
        if let Some(controllers) = controllers {
            arguments.extend(["--controllers", controllers]);
        }
        let mut child_process = ChildProcess::start("the switch".to_string(), &arguments)?;
        let mut lines = child_process.output()?;
        let switch = self.switch.insert(child_process);
        let mut line = String::new();
        lines.read_line(&mut line).context("cannot read from the switch")?;
        let address = line.trim().rsplit(' ').next().and_then(|text| text.parse().ok());
        let Some(address) = address else {
            bail!("the switch did not start: {}", switch.failure_reason());
        };
        // Drains the output, so that the process never blocks on it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(address)
    }

    /// Starts the controller as a process and waits until it is active.
    pub fn start_controller(&mut self, fabric: &FabricAddress, process: u32) -> Result<()> {
        // In memory if possible; no decision outlives the demo.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let store = directory.join(format!("onepipe-demo-{}.redb", std::process::id()));
        let (kind, name) = match fabric {
            FabricAddress::SharedMemory(name) => ("--fabric", name.clone()),
            FabricAddress::Switch(address) => ("--udp", address.to_string()),
        };
        let (controllers, path) = (format!("{process}:1"), store.to_string_lossy().into_owned());
        let arguments =
            ["controller", kind, &name, "--controllers", &controllers, "--store", &path];
        let arguments = [
            &arguments[..],
            &["--status-listen", "127.0.0.1:0", "--exit-on-stdin-eof", "--remove-store"],
        ]
        .concat();
        self.store = Some(store);
        let mut child_process = ChildProcess::start("the controller".to_string(), &arguments)?;
        let mut lines = child_process.output()?.lines();
        let controller = self.controller.insert(child_process);
        loop {
            match lines.next() {
                Some(Ok(line)) if line.starts_with("active") => break,
                Some(Ok(_)) => {}
                _ => bail!("the controller did not start: {}", controller.failure_reason()),
            }
        }
        // Drains the output, so that the process never blocks on it.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(())
    }

    /// Starts a worker, whose reports go to `events`.
    pub fn start_worker(&mut self, spec: &WorkerSpec, events: &Sender<ChildEvent>) -> Result<()> {
        let process = self.workers.len();
        let mut child_process =
            ChildProcess::start(format!("process {process}"), &["demo-worker"])?;
        let output = child_process.output()?;
        let events = events.clone();
        std::thread::spawn(move || {
            for line in output.lines() {
                // A line that was cut short by a kill is ignored.
                let report = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                let Some(report) = report else { break };
                if events.send(ChildEvent::Report(process, Box::new(report))).is_err() {
                    return;
                }
            }
            // Fails when the demo has ended.
            let _ = events.send(ChildEvent::Exited(process));
        });
        child_process.write_line(spec);
        self.workers.push(child_process);
        Ok(())
    }

    /// Sends a command to a worker; one that has exited is reported as an event anyway.
    pub fn send_command(&mut self, process: usize, command: WorkerCommand) {
        self.workers[process].write_line(&command);
    }

    /// Kills a worker with SIGKILL. Returns its pid.
    pub fn kill(&mut self, process: usize) -> Result<u32> {
        self.workers[process].kill()
    }

    /// Returns the error output and the exit status of a worker that has ended.
    pub fn failure_reason(&mut self, process: usize) -> String {
        self.workers[process].failure_reason()
    }

    /// Waits for all processes to exit, and kills those that take longer than [`LEAVE_TIMEOUT`].
    /// Returns the names of the killed ones.
    pub fn shut_down(&mut self) -> Vec<String> {
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        let mut killed = Vec::new();
        let others = self.controller.iter_mut().chain(&mut self.switch);
        for child_process in self.workers.iter_mut().chain(others) {
            if !child_process.wait_exit(deadline) {
                killed.push(child_process.name.clone());
            }
        }
        killed
    }
}

impl ChildProcess {
    /// Starts this program with `arguments`.
    pub(super) fn start(name: String, arguments: &[&str]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = Command::new(&program);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C on the terminal goes to the parent only, which ends the others in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", program.display()))?;
        let stdin = child.stdin.take();
        let stderr_reader = child.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let mut text = String::new();
                let mut stderr = stderr.take(STDERR_LEN_MAX);
                // An unreadable error output is empty.
                let _ = stderr.read_to_string(&mut text);
                let _ = std::io::copy(stderr.get_mut(), &mut std::io::sink());
                text
            })
        });
        Ok(Self { name, child, stdin, stderr_reader, has_ended: false })
    }

    /// Writes a line of JSON to its standard input; ignored if the process has exited.
    pub(super) fn write_line(&mut self, what: &impl serde::Serialize) {
        let Some(stdin) = &mut self.stdin else { return };
        let written = serde_json::to_vec(what).map_err(std::io::Error::other);
        let written = written.and_then(|mut line| {
            line.push(b'\n');
            stdin.write_all(&line)?;
            stdin.flush()
        });
        if written.is_err() {
            self.stdin = None;
        }
    }

    /// Returns its error output and exit status.
    pub(super) fn failure_reason(&mut self) -> String {
        let status = self.end();
        let text =
            self.stderr_reader.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        match text.trim() {
            "" => format!("exited without an error message ({status})"),
            text => text.trim_start_matches("onepipe: ").to_string(),
        }
    }

    /// Ends the process if it still runs. Returns its exit status.
    fn end(&mut self) -> String {
        self.has_ended = true;
        self.stdin = None;
        // A process that fails by itself exits within this time.
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return error.to_string(),
            }
        }
        // Fails when the process has exited already.
        let _ = self.child.kill();
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Returns its standard output; can be called once.
    pub(super) fn output(&mut self) -> Result<BufReader<ChildStdout>> {
        let output = self.child.stdout.take();
        output.map(BufReader::new).with_context(|| format!("{} has no output", self.name))
    }

    /// Kills the process with SIGKILL. Returns its pid.
    pub(super) fn kill(&mut self) -> Result<u32> {
        let pid = self.child.id();
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.end();
        Ok(pid)
    }

    /// Closes its standard input and waits. Returns whether it exited by itself.
    pub(super) fn wait_exit(&mut self, deadline: Instant) -> bool {
        self.stdin = None;
        while !self.has_ended {
            match self.child.try_wait() {
                Ok(Some(_)) | Err(_) => self.has_ended = true,
                Ok(None) if Instant::now() >= deadline => {
                    let _ = self.child.kill();
                    self.end();
                    return false;
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        true
    }
}

/// Kills all processes that have not ended, then waits for each: none runs on while another one is
/// waited for.
pub(super) fn end_all<'a>(children: impl Iterator<Item = &'a mut ChildProcess>) {
    let mut children: Vec<_> = children.filter(|child_process| !child_process.has_ended).collect();
    for child_process in &mut children {
        let _ = child_process.child.kill();
    }
    for child_process in &mut children {
        let _ = child_process.child.wait();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let others = self.controller.iter_mut().chain(&mut self.switch);
        end_all(self.workers.iter_mut().chain(others));
        if let Some(store) = &self.store {
            // The file does not exist if the controller decided nothing.
            let _ = std::fs::remove_file(store);
        }
    }
}
