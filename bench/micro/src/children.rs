//! Child processes of a benchmark: they run the same program again.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use onepipe_transport_shm::remove_stale_segments;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Name of the hidden subcommand (or first argument) upon which a program that uses this crate must
/// call [`crate::worker`].
pub const WORKER: &str = "bench-worker";

/// Has the kernel kill this process when its parent exits, however that happens.
pub(crate) fn die_with_parent(parent_pid: u32) -> Result<()> {
    use rustix::process::{getppid, set_parent_process_death_signal};

    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot set the parent death signal")?;
    // The parent may have exited before the signal was set.
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
    ensure!(parent == parent_pid, "the parent process has exited");
    Ok(())
}

/// The child processes that run now.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all child processes, waits for their end and removes what they leave in shared memory; for
/// a process that is about to exit, as no child can be started afterwards.
pub(crate) fn cleanup_children() {
    let children = running();
    for child in children.iter() {
        // Fails when the process has exited already.
        let _ = kill_process(*child, Signal::KILL);
        // The thread that has started it may wait for it as well.
        let _ = waitid(WaitId::Pid(*child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }
    // A segment that cannot be removed now is left to `onepipe clean`.
    let _ = remove_stale_segments();
    // The lock is never released.
    std::mem::forget(children);
}

/// Runs a worker of this program for each job, all at once, and returns their outcomes; `waiting`
/// as for [`Children::outcomes`].
pub(crate) fn run_workers<T: serde::de::DeserializeOwned>(
    role: &str,
    jobs: &[impl serde::Serialize],
    waiting: usize,
) -> Result<Vec<T>> {
    let program = std::env::current_exe().context("finding this program")?;
    let parent_pid = std::process::id().to_string();
    let mut children = Children::default();
    for job in jobs {
        let job = serde_json::to_string(job)?;
        children.start(Command::new(&program).args([WORKER, role, &parent_pid, &job]))?;
    }
    children.outcomes(waiting)
}

/// Child processes, killed on drop.
#[derive(Debug, Default)]
pub(crate) struct Children {
    children: Vec<Child>,
}

impl Children {
    pub(crate) fn start(&mut self, command: &mut Command) -> Result<()> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.spawn(command.stderr(Stdio::inherit())).map(|_| ())
    }

    /// Starts a process with the input and output that are set.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> Result<&mut Child> {
        // A terminal interrupts this process alone, which then ends its children.
        command.process_group(0);
        // Held while it starts, so that no child is missed by a cleanup.
        let mut running = running();
        let child = command.spawn();
        let program = command.get_program().display();
        let child = child.with_context(|| format!("starting {program}"))?;
        running.push(Pid::from_child(&child));
        self.children.push(child);
        Ok(self.children.last_mut().expect("the child was pushed"))
    }

    /// Returns the ids of the processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Returns the status of the first process that has ended, if one has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }

    /// Asks all processes to end, and waits; those that run after `limit` are killed.
    pub(crate) fn terminate(mut self, limit: Duration) -> Result<()> {
        for child in &self.children {
            // Fails when the process has exited already.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let began = Instant::now();
        for child in &mut self.children {
            while child.try_wait()?.is_none() && began.elapsed() < limit {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Waits for all children and returns their outcomes, in the order of their start: the one
    /// line that each prints. The first `waiting` children go on after that until their standard
    /// input is closed, which it is when all of them have printed theirs.
    pub(crate) fn outcomes<T: serde::de::DeserializeOwned>(
        mut self,
        waiting: usize,
    ) -> Result<Vec<T>> {
        let mut outcomes = Vec::new();
        for at in 0..self.children.len() {
            if at == waiting {
                self.close_inputs();
            }
            let child = &mut self.children[at];
            let mut output = String::new();
            let stdout = child.stdout.take().context("its output is piped")?;
            BufReader::new(stdout).read_line(&mut output)?;
            if output.is_empty() || at >= waiting {
                wait(at, child)?;
            }
            let outcome = serde_json::from_str(output.trim());
            outcomes.push(outcome.with_context(|| format!("reading the outcome of process {at}"))?);
        }
        self.close_inputs();
        self.children
            .iter_mut()
            .take(waiting)
            .enumerate()
            .try_for_each(|(at, child)| wait(at, child))?;
        Ok(outcomes)
    }

    fn close_inputs(&mut self) {
        self.children.iter_mut().for_each(|child| drop(child.stdin.take()));
    }
}

fn wait(at: usize, child: &mut Child) -> Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "process {at} of the benchmark failed: {status}");
    Ok(())
}

/// Returns a flag that is set when standard input is closed: all other processes have finished.
pub(crate) fn release_flag() -> Arc<AtomicBool> {
    let is_released = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_released);
    std::thread::spawn(move || {
        // An error closes it as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        flag.store(true, Ordering::Relaxed);
    });
    is_released
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Fails when the process has exited already.
            let _ = child.kill();
            let _ = child.wait();
            let ended = Pid::from_child(child);
            running().retain(|running| *running != ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const ROLE: &str = "ONEPIPE_TEST_ROLE";

    /// Returns a command that runs this test again in `role`.
    fn spawn_self(role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("path of this program"));
        let test = "children::tests::worker_dies_with_terminated_benchmark";
        command.args([test, "--exact", "--nocapture"]).env(ROLE, role);
        command
    }

    #[test]
    fn worker_dies_with_terminated_benchmark() {
        match std::env::var(ROLE).as_deref() {
            Ok("benchmark") => {
                let mut worker =
                    spawn_self(&std::process::id().to_string()).spawn().expect("starts");
                worker.wait().expect("own child");
            }
            Ok(parent_pid) => {
                die_with_parent(parent_pid.parse().expect("a number"))
                    .expect("the parent is alive");
                println!("\nrunning");
                std::thread::sleep(Duration::from_secs(10));
                println!("\nsurvived");
            }
            Err(_) => {
                let mut benchmark =
                    spawn_self("benchmark").stdout(Stdio::piped()).spawn().expect("starts");
                let mut output = BufReader::new(benchmark.stdout.take().expect("it is piped"));
                let mut line = String::new();
                while line.trim() != "running" {
                    line.clear();
                    assert_ne!(output.read_line(&mut line).expect("a pipe"), 0, "it did not start");
                }
                let benchmark_id = Pid::from_child(&benchmark);
                kill_process(benchmark_id, Signal::TERM).expect("own child");
                // The worker holds the other end too: the pipe closes when both have exited.
                let mut rest = String::new();
                output.read_to_string(&mut rest).expect("a pipe");
                assert!(!rest.contains("survived"), "{rest}");
                benchmark.wait().expect("own child");
            }
        }
    }
}
